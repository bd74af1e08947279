"""What docs/proxmox.md tells to grant is enough for a container's whole life, and each part of it is needed."""

from __future__ import annotations

import dataclasses
import re

import pytest

from provisioner.providers.proxmox import ProxmoxProvider, granting
from provisioner.providers.proxmox.access import Access
from provisioner.values.errors import ProvisionError
from tests.doubles.proxmox import Double
from tests.unit.providers.proxmox.plans import GIB, PAGE, ROLE, creation, limited, update, wanted

LOCK = "provisioner-lock-homelab-1"
UNFINISHED = "provisioner-unfinished-homelab_web"


def life(access: Access) -> None:
    """All that is done with a container over the API, and the lab's lock around it."""
    provider = ProxmoxProvider("pve", access=access)
    assert provider.create_lock(LOCK, {"nonce": "1"})
    assert provider.renew_lock(LOCK, {"nonce": "1"})
    web = wanted(image="debian/13", cpu=1)
    assert provider.review([creation(web)]) == ()
    made = provider.create(web)
    provider.start(made)
    provider.wait_until_ready(made)
    there = provider.observe("homelab").instance("web")
    assert there is not None
    larger = wanted(image="debian/13", cpu=2, memory=2 * GIB, disk=5 * GIB, proxmox={"network": {"firewall": True}})
    assert provider.review([update(there, larger)]) == ()
    provider.update(larger)
    provider.snapshot(made, "kept")
    assert provider.create_lock(UNFINISHED, {"work": "rollback"})
    assert provider.read_locks(UNFINISHED) == {UNFINISHED: {"work": "rollback"}}
    provider.rollback(made, "kept")
    provider.delete_lock(UNFINISHED)
    provider.delete(provider.clone(made, "copy"))
    provider.delete_snapshot(made, "kept")
    provider.stop(made)
    provider.delete(made)
    provider.delete_lock(LOCK)


def test_what_host_prepare_makes_is_what_the_page_says() -> None:
    assert granting.ROLES["Provisioner"] | granting.ROLES["ProvisionerSees"] == set(ROLE)
    narrow = re.findall(r"pveum acl modify (\S+) --users provision@pve --roles (\S+)", PAGE)
    need = granting.Need(frozenset({"local", "local-lvm"}), frozenset({"vmbr0"}))
    assert set(need.grants) == {(path, role) for path, role in narrow if (path, role) != ("/", "Provisioner")}
    access = Access("https://pve:8006", "provision@pve", token_id="homelab")
    said = granting.commands(access, need)
    assert [one for one in said if one.startswith(("pveum user", "pveum acl")) and one not in PAGE] == []


def test_the_role_of_the_page_is_enough(pve: Double, access: Access) -> None:
    life(limited(pve, access))
    assert not pve.world.guests


def test_its_narrow_grants_are_enough(pve: Double, access: Access) -> None:
    narrow = re.findall(r"pveum acl modify (\S+) --users provision@pve --roles (\S+)", PAGE)
    paths = tuple(path for path, role in narrow if role == "Provisioner" and path != "/")
    pve.world.access.permissions.add_role("ProvisionerSees", "Datastore.Audit", "Sys.Audit")
    pve.world.access.permissions.grant("/", "penny@pve", "ProvisionerSees")
    life(limited(pve, access, paths=paths))
    assert not pve.world.guests


@pytest.mark.parametrize("name", sorted(ROLE))
def test_nothing_in_it_is_too_much(pve: Double, access: Access, name: str) -> None:
    chosen = limited(pve, access, without=frozenset({name}))
    if name == "Sys.Audit":
        chosen = dataclasses.replace(chosen, node="pve1")
    if name == "Datastore.Audit":
        notes = ProxmoxProvider("pve", access=chosen).review([creation(wanted())])
        assert all(name in note for note in notes)
        assert notes, "it is needed to see, and nothing is refused without it"
        return
    with pytest.raises(ProvisionError) as caught:
        life(chosen)
    assert name in str(caught.value), str(caught.value)
