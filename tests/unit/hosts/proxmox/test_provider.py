"""The driver as a whole: a life from beginning to end, adoption, and what callers see of what goes wrong."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible.playbook.play_context import PlayContext
from ansible.plugins.loader import connection_loader

from provisioner.hosts import provider_for
from provisioner.hosts.proxmox import ProxmoxProvider, marks
from provisioner.hosts.proxmox.access import Access
from provisioner.hosts.proxmox.marks import Mark
from provisioner.labfile.hosts import ProxmoxContainer, ProxmoxHost
from provisioner.reconcile.apply import apply_instances
from provisioner.reconcile.plan import make_plan
from provisioner.values import paths
from provisioner.values.errors import PreflightError, ProviderError, UnavailableError
from provisioner.values.plan import Change
from provisioner.values.state import Fleet, Instance, Secret
from tests.doubles.proxmox import Double
from tests.unit.hosts.proxmox.box import LAB, driver, guest, running, wanted
from tests.unit.hosts.proxmox.plans import limited

PAGE: dict[str, Any] = {
    "vmid": 150,
    "swap": "1GiB",
    "network": {"ip": "10.0.0.5/24", "gateway": "10.0.0.1", "vlan": 7},
    "mounts": [{"path": "/srv", "size": "2GiB"}],
    "order": 2,
    "tags": ["web"],
    "description": "mine",
}
ABOVE = "above the block"


def desired(name: str = "one", **page: Any) -> Instance:
    """A container as the file's page says it."""
    host = ProxmoxHost.model_validate({"proxmox": "https://pve", "user": "root@pam", "password": Secret("p", "x")})
    return wanted(name, settings=host.settings_of(ProxmoxContainer.model_validate(page)))


def test_who_may_not_ask_for_the_nodes_processor_can_look_all_the_same(pve: Double, access: Access) -> None:
    provider = driver(limited(pve, access, without=frozenset({"Sys.Audit"})), node="pve1")
    assert provider.observe(LAB).hosts["box"].architecture == "x86_64"


def test_what_the_file_says_is_reached_and_leaves_nothing_to_do(provider: ProxmoxProvider) -> None:
    """Plan, apply and plan again, as `provision up` does."""
    fleet = Fleet(LAB, (desired(**PAGE),))

    def planned(fleet: Fleet) -> tuple[Change, ...]:
        return make_plan(fleet, provider.observe(LAB, detailed=False)).changes

    changes = planned(fleet)
    assert [one.action for one in changes] == ["create"]
    (made,) = apply_instances(changes, {"box": provider}, lambda _event: None)
    assert made.address == "10.0.0.5"
    assert planned(fleet) == ()
    page = {**PAGE, "network": {"ip": "dhcp"}, "order": None, "mounts": [{"path": "/srv", "size": "3GiB"}]}
    (change,) = planned(Fleet(LAB, (desired(**page),)))
    assert (change.action, set(change.attributes())) == ("update", {"network", "order", "mounts"})
    apply_instances([change], {"box": provider}, lambda _event: None)
    assert planned(Fleet(LAB, (desired(**page),))) == ()


def test_one_that_somebody_made_is_read_adopted_and_then_changed(pve: Double, provider: ProxmoxProvider) -> None:
    config = {"hostname": "old", "cores": "2", "tags": "mine", "description": "of a user", "features": "nesting=1"}
    pve.world.add_guest(150, "pve1", net0="name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:01,ip=dhcp", **config)
    before = dict(guest(pve, "old").config)
    for reference in ("old", "150"):
        read = provider.read(reference)
        assert read is not None
        assert (read.name, read.lab, read.cpu, read.settings["description"]) == ("old", "", 2, "of a user")
    assert provider.read("missing") is None
    made = provider.adopt(wanted("old", image="debian/11"))
    assert (made.lab, made.image, made.cpu, made.settings["tags"]) == (LAB, "debian/11", 2, ("mine",))
    assert made.settings["description"] == "of a user"
    after = guest(pve, "old").config
    assert {name for name in {*before, *after} if before.get(name) != after.get(name)} == {"description", "tags"}
    assert provider.adopt(wanted("old")) == made, "it is ours already"
    assert provider.update(replace(made, cpu=4)).cpu == 4
    provider.delete(made)


def test_what_is_anothers_is_not_adopted(pve: Double, provider: ProxmoxProvider) -> None:
    pve.world.add_guest(105, "pve1", hostname="theirs", description=marks.mark_text("", Mark("other", 105, "x")))
    with pytest.raises(ProviderError, match="Unable to adopt container theirs") as caught:
        provider.adopt(wanted("theirs"))
    assert "CT 105 bears the mark of lab other" in caught.value.details
    with pytest.raises(ProviderError, match="Unable to adopt container missing"):
        provider.adopt(wanted("missing"))
    for vmid in (201, 202):
        pve.world.add_guest(vmid, "pve1", hostname="twin")
    with pytest.raises(ProviderError, match="Unable to adopt container twin"):
        provider.adopt(wanted("twin"))
    with pytest.raises(ProviderError, match="there are 2 of that name"):
        provider.read("twin")
    assert provider.read("202") is not None


def test_an_adoption_is_tried_again_when_somebody_writes_meanwhile(
    pve: Double, provider: ProxmoxProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    pve.world.add_guest(105, "pve1", hostname="old")
    put = provider.client.put
    calls: list[object] = []

    def late(*path: object, **form: Any) -> Any:
        calls.append(path)
        if len(calls) == 1:
            guest(pve, "old").config["description"] = "written meanwhile"
        return put(*path, **form)

    monkeypatch.setattr(provider.client, "put", late)
    assert provider.adopt(wanted("old")).settings["description"] == "written meanwhile"


def test_a_copy_that_somebody_made_by_hand_is_never_touched(pve: Double, provider: ProxmoxProvider) -> None:
    """It has our tags and our description, and another number."""
    one = provider.create(wanted())
    copied = {name: value for name, value in guest(pve).config.items() if name in ("tags", "description", "hostname")}
    provider.delete(one)
    pve.world.add_guest(500, "pve1", **copied)
    assert provider.observe(LAB).hosts["box"].unmanaged == {"one"}
    for verb in (provider.start, provider.stop, provider.delete, provider.update, provider.create):
        with pytest.raises(ProviderError):
            verb(one)
    assert pve.world.guests[500].config["description"] == copied["description"]


def test_the_text_that_a_user_wrote_above_the_block_is_the_description(pve: Double, provider: ProxmoxProvider) -> None:
    one = provider.create(wanted())
    guest(pve).config["description"] = f"{ABOVE}\n{guest(pve).config['description']}\n"
    (seen,) = provider.observe(LAB).instances
    assert seen.settings["description"] == ABOVE
    assert provider.update(replace(one, cpu=1)).settings["description"] == one.settings["description"]


def test_how_ansible_reaches_a_container(pve: Double, access: Access, tmp_path: Path) -> None:
    provider = driver(access, ssh="root@pve1", ssh_config=tmp_path / "config")
    provider.create(wanted())
    assert provider.connection_variables("one") == {
        "ansible_connection": "provision_proxmox",
        "provision_instance": "one",
        "provision_node": "pve1",
        "provision_vmid": str(guest(pve).vmid),
        "provision_ssh": "root@pve1",
        "provision_ssh_config": str(tmp_path / "config"),
    }
    assert driver(access).connection_variables("missing") == {
        "ansible_connection": "provision_proxmox",
        "provision_instance": "missing",
        "provision_node": "pve1",
    }


def test_ansible_is_led_to_the_node_for_each_item_of_a_loop() -> None:
    variables = {"inventory_hostname": "one", "provision_vmid": "105", "provision_ssh": "admin@pve1:2222"}
    context = PlayContext()
    connection_loader.add_directory(str(paths.plugins() / "connection"))
    connection = connection_loader.get("provision_proxmox", context)
    for _ in range(2):
        context.remote_user = None
        connection.set_options(var_options=variables)  # as Ansible does before each item
        connection._connect()
        assert (connection.get_option("host"), connection.get_option("port")) == ("admin@pve1", None)
        assert "-p 2222" in connection.get_option("ssh_args")
        assert context.remote_user == "root"


def test_a_number_is_forgotten_when_its_container_is_deleted(pve: Double, provider: ProxmoxProvider) -> None:
    provider.create(wanted())
    vmid = guest(pve).vmid
    provider.delete(wanted())
    pve.world.add_guest(vmid, "pve1", hostname="theirs")
    assert provider.find_vmid("one") is None
    provider.create(wanted())
    assert provider.find_vmid("one") == guest(pve).vmid != vmid


@pytest.mark.parametrize(
    "verb",
    [
        lambda one, _: one.execute("one", ["true"]),
        lambda one, _: one.push("one", b"", "/x"),
        lambda one, folder: one.pull("one", "/x", folder / "x"),
        lambda one, _: one.volumes.create("v", "d"),
        lambda one, _: one.volumes.mark_ready("v"),
        lambda one, _: one.volumes.delete("v"),
        lambda one, folder: one.volumes.export("v", folder / "x"),
        lambda one, _: one.volumes.import_from("v", "d", Path(__file__)),
        lambda one, _: one.attach("one", ["true"], stdin=0, stdout=1, stderr=2, terminal=False),
    ],
)
def test_without_ssh_what_is_done_inside_is_refused_with_what_to_write(
    provider: ProxmoxProvider, verb: Any, tmp_path: Path
) -> None:
    provider.create(wanted())
    with pytest.raises((PreflightError, ProviderError)) as caught:
        verb(provider, tmp_path)
    assert "needs ssh" in str(caught.value)
    assert "ssh: root@" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", [lambda one: one.execute("no", ["true"]), lambda one: one.push("no", b"", "/x")])
def test_nothing_is_done_in_a_container_that_is_not_there(access: Access, verb: Any) -> None:
    with pytest.raises(ProviderError, match="Unable to") as caught:
        verb(driver(access, ssh="root@pve1"))
    assert "There is no container no" in caught.value.details


def test_a_wrong_password_is_told_before_anything_is_touched(access: Access) -> None:
    wrong = dataclasses.replace(access, token_id=None, token_secret=None, password=Secret("password", "wrong"))
    with pytest.raises(UnavailableError, match="Unable to use Proxmox VE at"):
        driver(wrong).check_available()
    driver(access).check_available()


def test_errors_of_every_verb_are_ours(pve: Double, provider: ProxmoxProvider) -> None:
    one = provider.create(wanted())
    pve.take_down("pve1")
    for verb in (
        provider.create,
        provider.update,
        provider.start,
        provider.stop,
        provider.delete,
        provider.wait_until_ready,
        provider.snapshots.obstacle,
        provider.adopt,
        lambda one: provider.snapshots.take(one, "kept"),
        lambda one: provider.snapshots.delete(one, "kept"),
        lambda one: provider.snapshots.rollback(one, "kept"),
        lambda one: provider.clone(one, "two"),
        lambda one: provider.locks.create(one.name, {}),
        lambda one: provider.locks.delete(one.name),
        lambda one: provider.locks.renew(one.name, {}),
        lambda one: provider.locks.read(one.name),
        lambda one: provider.connection_variables("never seen" + one.name),
    ):
        with pytest.raises((ProviderError, UnavailableError), match="Unable to"):
            verb(one)
    with pytest.raises(UnavailableError):
        provider.observe(LAB)
    with pytest.raises(UnavailableError):
        provider.read("one")


def test_locks_are_those_of_the_cluster(provider: ProxmoxProvider) -> None:
    assert provider.locks.create("provisioner-lock-a-1", {"nonce": "a"})
    assert not provider.locks.create("provisioner-lock-a-1", {"nonce": "b"})
    assert provider.locks.renew("provisioner-lock-a-1", {"nonce": "a", "beat": "2"})
    assert provider.locks.read("provisioner-lock-a-") == {"provisioner-lock-a-1": {"nonce": "a", "beat": "2"}}
    provider.locks.delete("provisioner-lock-a-1")
    assert provider.locks.read("provisioner-lock-a-") == {}


def test_the_registry_makes_one(pve: Double, access: Access) -> None:
    provider = provider_for("box", "proxmox", access=access)
    assert isinstance(provider, ProxmoxProvider)
    assert not provider.can_publish
    assert provider.create(wanted()) == wanted()
    assert not running(pve)


def test_a_review_says_what_root_will_write(access: Access) -> None:
    one = wanted(settings={"devices": ({"path": "/dev/null", "mode": "0660", "uid": 0, "gid": 0},)})
    change = Change("create", "one", None, one, "in the file, not on the host")
    with pytest.raises(PreflightError):
        driver(access).review([change])
    notes = driver(access, password=Secret("password", "secret")).review([change])
    assert any("devices of one" in note for note in notes)
