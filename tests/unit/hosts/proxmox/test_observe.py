"""What a look at a node finds: ours by their marks, everybody else by name, and how many calls it takes."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import pytest

from provisioner.hosts.proxmox import ProxmoxProvider, marks
from provisioner.hosts.proxmox.access import Access
from provisioner.hosts.proxmox.marks import Mark
from provisioner.values.errors import ProviderError, UnavailableError
from provisioner.values.state import Fleet, Status
from tests.doubles.proxmox import Double
from tests.doubles.proxmox.world import Pool
from tests.unit.hosts.proxmox.box import LAB, Artifacts, driver, guest, wanted

NET = "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:01,ip=dhcp,type=veth"


def marked(pve: Double, vmid: int, name: str, lab: str = LAB, node: str = "pve1", **config: str) -> None:
    """A container that bears a lab's mark, as if it had always been there."""
    given = {"hostname": name, "tags": marks.with_tags([], lab), "net0": NET, **config}
    written = config.get("description") or marks.mark_text("", Mark(lab, vmid, "debian/12"))
    pve.world.add_guest(vmid, node, **{**given, "description": written})


def look(access: Access, **options: Any) -> Fleet:
    return driver(access).observe(LAB, **options)


def unmanaged(fleet: Fleet) -> frozenset[str]:
    return fleet.hosts["box"].unmanaged


def test_ours_are_those_with_our_mark(pve: Double, access: Access) -> None:
    marked(pve, 105, "b")
    marked(pve, 104, "a")
    pve.world.add_guest(107, "pve1", hostname="theirs")
    pve.world.pools["prod"] = Pool(vms={105})
    fleet = look(access)
    assert [one.name for one in fleet.instances] == ["a", "b"]
    assert [one.settings["pool"] for one in fleet.instances] == ["", "prod"]
    assert unmanaged(fleet) == {"theirs"}
    assert fleet.hosts["box"].architecture == "x86_64"
    assert fleet.hosts["box"].processor_flags == {"fpu", "sse4_2", "fma", "avx", "f16c", "bmi2", "avx2"}
    assert fleet.hosts["box"].images == {"debian/12", "debian/13"}
    assert "pveam update" in fleet.hosts["box"].image_hint


@pytest.mark.parametrize(
    ("lab", "config"),
    [
        ("other", {}),
        ("HOME", {}),  # the same tag: the block decides
        (LAB, {"description": "somebody's words"}),
        (LAB, {"description": marks.mark_text("", Mark(LAB, 999, "debian/12"))}),  # copied by hand
        (LAB, {"tags": "provisioner"}),
    ],
    ids=["other lab", "same tag", "no block", "copy", "tag removed"],
)
def test_whatever_else_is_a_stranger(pve: Double, access: Access, lab: str, config: dict[str, str]) -> None:
    marked(pve, 105, "one", lab, **config)
    fleet = look(access)
    assert fleet.instances == ()
    assert unmanaged(fleet) == {"one"}


def test_one_of_ours_that_has_moved_to_another_node_takes_its_name_along(pve: Double, access: Access) -> None:
    marked(pve, 105, "moved", node="pve2")
    pve.world.add_guest(106, "pve2", hostname="elsewhere")
    fleet = look(access)
    assert fleet.instances == ()
    assert unmanaged(fleet) == frozenset(), "a name on another node is free"
    state = fleet.hosts["box"]
    assert state.moved == {"moved": "on node pve2, as CT 105"}
    assert "pct migrate 105 pve1" in state.moved_hints["moved"]
    assert "node: pve2" in state.moved_hints["moved"]


def test_of_one_on_a_silent_node_it_is_said_that_this_has_to_be_started_first(pve: Double, access: Access) -> None:
    """A node that went down a moment ago is still listed with the names of its guests."""
    marked(pve, 105, "moved", node="pve2")
    pve.world.faults.give_up("GET", "/nodes/pve2/lxc/105/config", 595, times=100)
    hint = look(access).hosts["box"].moved_hints["moved"]
    assert hint.startswith("Node pve2 does not answer")


def test_of_two_labs_with_a_container_of_one_name_each_is_led_to_its_own(pve: Double, access: Access) -> None:
    """Whatever is listed last: the number by which a name is found is that of the lab that looked, or asked for it."""
    marked(pve, 105, "one")
    marked(pve, 106, "one", "other")
    marked(pve, 104, "one", "third")
    seeing, asking = driver(access), driver(access)
    seeing.observe(LAB)
    assert seeing.find_vmid("one") == 105
    assert asking.existing(wanted("one"), "look at").vmid == 105
    assert asking.find_vmid("one") == 105
    with pytest.raises(ProviderError, match="Unable to tell which container one is meant") as caught:
        driver(access).find_vmid("one")
    assert f"CT 105 of lab {LAB} and CT 106 of lab other" in caught.value.details


def test_a_copy_on_another_node_that_bears_our_tags_is_not_ours(pve: Double, access: Access) -> None:
    marked(pve, 105, "copy", node="pve2")
    pve.world.guests[106] = dataclasses.replace(pve.world.guests.pop(105), vmid=106)
    pve.world.tell()
    assert look(access).hosts["box"].moved == {}


def test_one_that_has_moved_is_said_by_whatever_needs_it(pve: Double, access: Access) -> None:
    marked(pve, 105, "one", node="pve2")
    provider = driver(access)
    for verb in (lambda: provider.execute("one", ["true"]), lambda: provider.start(wanted())):
        with pytest.raises(ProviderError) as caught:
            verb()
        assert caught.value.details == "It is on node pve2, as CT 105 now."
        assert "pct migrate 105 pve1" in caught.value.resolution
    with pytest.raises(ProviderError) as caught:
        provider.execute("two", ["true"])
    assert caught.value.details == "There is no container two on node pve1."


def test_details_are_addresses_and_snapshots(pve: Double, access: Access) -> None:
    marked(pve, 105, "one")
    pve.world.containers.start(105, {})
    pve.world.containers.boxes[105].started -= 10  # type: ignore[attr-defined]
    guest(pve).remember("by-hand", "")
    (one,) = look(access).instances
    assert (one.status, one.address) == (Status.RUNNING, "10.0.0.107")
    assert [kept.name for kept in one.snapshots] == ["by-hand"]
    (plain,) = look(access, detailed=False).instances
    assert (plain.status, plain.address, plain.snapshots) == (Status.RUNNING, None, ())


def test_one_that_is_only_being_made_does_not_count_as_stopped(pve: Double, access: Access) -> None:
    marked(pve, 105, "one", lock="create")
    assert [one.status for one in look(access).instances] == [Status.ERROR]


def test_what_is_to_be_adopted_is_told_of_when_it_is_nobodys(pve: Double, access: Access) -> None:
    pve.world.add_guest(105, "pve1", hostname="old", cores="2", tags="mine")
    marked(pve, 106, "theirs", "other")
    fleet = look(access, adopt=("old", "theirs", "missing"))
    found = fleet.hosts["box"].adoptable
    assert list(found) == ["old"]
    assert (found["old"].lab, found["old"].image, found["old"].cpu) == ("", "", 2)
    assert found["old"].settings["tags"] == ("mine",)
    assert unmanaged(fleet) == {"old", "theirs"}
    assert look(access).hosts["box"].adoptable == {}


def test_ready_volumes_are_told_where_ssh_is_there_to_ask(
    pve: Double, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    del pve
    Artifacts(monkeypatch).sizes["v-1"] = 1
    assert driver(access, ssh="root@pve1").observe(LAB).hosts["box"].volumes == {"v-1"}
    assert driver(access).observe(LAB).hosts["box"].volumes == frozenset()
    quick = driver(access, ssh="root@pve1").observe(LAB, detailed=False)
    assert quick.hosts["box"].volumes == frozenset(), "the command that looks into containers tells them"


def counted(provider: ProxmoxProvider, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each kind of thing is asked for."""
    calls: Counter[str] = Counter()
    asked = provider.client._call

    def count(verb: str, path: Any, given: Any, **options: Any) -> Any:
        calls[f"{verb} {'/'.join('N' if str(part).isdecimal() else str(part) for part in path)}"] += 1
        return asked(verb, path, given, **options)

    monkeypatch.setattr(provider.client, "_call", count)
    return calls


def test_strangers_cost_nothing_and_ours_one_call_each(
    pve: Double, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        marked(pve, 100 + number, f"c{number}")
        pve.world.containers.start(100 + number, {})

    def calls(*, detailed: bool) -> Counter[str]:
        provider = driver(access)
        found = counted(provider, monkeypatch)
        provider.observe(LAB, detailed=detailed)
        return found

    alone = calls(detailed=False)
    assert alone.pop("GET nodes/pve1/lxc/N/config") == 5
    assert set(alone.values()) == {1}
    for number in range(7):
        pve.world.add_guest(200 + number, "pve1", tags="provisioner")
    assert sum(calls(detailed=False).values()) == sum(alone.values()) + 5
    assert sum(calls(detailed=True).values()) == sum(alone.values()) + 15


def test_a_host_that_is_down_is_unavailable(pve: Double, access: Access) -> None:
    pve.take_down("pve1")
    with pytest.raises(UnavailableError, match="Unable to look at"):
        look(access)


def test_an_unknown_node_is_unavailable(access: Access) -> None:
    for verb in (ProxmoxProvider.check_available, lambda one: one.observe(LAB)):
        with pytest.raises(UnavailableError, match="nosuch"):
            verb(driver(access, node="nosuch"))


def test_two_of_ours_with_one_name_are_not_touched(pve: Double, access: Access) -> None:
    marked(pve, 105, "one")
    marked(pve, 106, "one")
    with pytest.raises(Exception, match="there are 2 of that name"):
        driver(access).delete(wanted())
    assert {105, 106} <= pve.world.guests.keys()
