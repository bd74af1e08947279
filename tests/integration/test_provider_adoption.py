"""The contract suite's part on containers that provision did not make: looked at by name, and made a lab's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from provisioner.hosts.base import Provider
from provisioner.values.errors import ProviderError
from provisioner.values.state import Instance, Status
from tests.integration.test_provider_contract import IMAGE, Host, copied_driver, host

__all__ = ["copied_driver", "host"]  # the fixtures: every driver of the registry, with a lab of its own


@pytest.fixture
def nobodys(host: Host) -> Iterator[Instance]:
    """A container whose mark was taken away: to the program it is one that somebody made by hand."""
    wanted = host.instance("hand", cpu=1, memory=2**29)
    host.provider.create(wanted)
    unmark(host.provider, wanted)
    yield wanted
    if host.provider.read(wanted.name) is not None:
        host.provider.adopt(wanted)  # so that the host's own fixture removes it


def unmark(provider: Provider, instance: Instance) -> None:
    """Take every mark of provision away, by the host's own means."""
    from provisioner.hosts.incus import IncusProvider
    from provisioner.hosts.proxmox import ProxmoxProvider

    in_memory = getattr(provider, "containers", {})
    if in_memory:
        box = in_memory[instance.name]
        box.instance = replace(box.instance, lab="", image="")
    elif isinstance(provider, IncusProvider):
        body = provider.client.get("instances", instance.name)
        config = {key: value for key, value in body["config"].items() if not key.startswith("user.provisioner.")}
        kept = {key: body[key] for key in ("architecture", "devices", "ephemeral", "profiles")}
        provider.client.change("put", "instances", instance.name, body={**kept, "config": config})
    elif isinstance(provider, ProxmoxProvider):
        vmid = provider.vmid(instance.name, "Unable to take the mark away")
        provider.client.put(*provider.path(vmid, "config"), delete="description,tags")
    else:
        raise NotImplementedError(f"how is a mark taken away on {provider.kind}?")


def test_what_is_nobodys_is_told_only_when_it_is_asked_for(host: Host, nobodys: Instance) -> None:
    seen = host.provider.observe(host.lab, adopt={nobodys.name, "missing"})
    assert seen.instance(nobodys.name) is None
    state = seen.hosts["box"]
    assert set(state.adoptable) == {nobodys.name}
    assert nobodys.name in state.unmanaged
    there = state.adoptable[nobodys.name]
    assert (there.lab, there.cpu, there.memory) == ("", 1, 2**29)
    assert host.provider.observe(host.lab).hosts["box"].adoptable == {}


def test_what_bears_a_mark_is_never_adoptable(host: Host) -> None:
    theirs = replace(host.instance("theirs"), lab=f"{host.lab}-other")
    ours = host.instance("ours")
    for one in (theirs, ours):
        host.provider.create(one)
    seen = host.provider.observe(host.lab, adopt={theirs.name, ours.name})
    assert seen.hosts["box"].adoptable == {}
    with pytest.raises(ProviderError, match=f"Unable to adopt container {theirs.name}") as caught:
        host.provider.adopt(replace(theirs, lab=host.lab))
    assert theirs.lab in caught.value.details
    assert host.provider.observe(theirs.lab).instance(theirs.name) is not None


def test_an_adopted_container_bears_the_mark_and_is_as_it_was(host: Host, nobodys: Instance) -> None:
    before = host.provider.read(nobodys.name)
    assert before is not None
    made = host.provider.adopt(nobodys)
    assert (made.lab, made.image, made.status) == (host.lab, IMAGE, before.status)
    assert replace(made, lab="", image=before.image) == before
    assert made.settings == before.settings
    assert host.seen(nobodys) == made
    assert host.provider.adopt(nobodys) == made, "one that is ours already is success"
    assert host.provider.observe(host.lab, adopt={nobodys.name}).hosts["box"].adoptable == {}


def test_an_adopted_container_is_managed_like_any_other(host: Host, nobodys: Instance) -> None:
    host.provider.adopt(nobodys)
    host.provider.start(nobodys)
    assert host.provider.wait_until_ready(nobodys).status is Status.RUNNING
    host.provider.snapshots.take(nobodys, "kept")
    assert [one.name for one in host.provider.snapshots.rollback(nobodys, "kept").snapshots] == ["kept"]
    host.provider.delete(nobodys)
    assert host.seen(nobodys) is None


def test_what_is_missing_cannot_be_adopted(host: Host) -> None:
    with pytest.raises(ProviderError, match="Unable to adopt container"):
        host.provider.adopt(host.instance("missing"))
    assert host.seen(host.instance("missing")) is None


def test_any_container_can_be_read(host: Host, nobodys: Instance) -> None:
    theirs = replace(host.instance("theirs"), lab=f"{host.lab}-other")
    host.provider.create(theirs)
    found = host.provider.read(theirs.name)
    assert found is not None
    assert (found.name, found.lab, found.image) == (theirs.name, theirs.lab, IMAGE)
    found = host.provider.read(nobodys.name)
    assert found is not None
    assert (found.lab, found.status) == ("", Status.STOPPED)
    assert host.provider.read(f"{host.lab}-missing") is None


def test_whether_a_snapshot_holds_all_is_known_before_it_is_adopted(host: Host, nobodys: Instance) -> None:
    assert host.provider.snapshots.obstacle(replace(nobodys, lab="")) == ""
