"""Services that take turns on one card: their cards, who needs whose address, what another key changes."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.catalog import Upkeep, load_catalog
from provisioner.gpus.cards import Card
from provisioner.lab import Known, ModelFile, desired_fleet, problems, resolve
from provisioner.lab.cards import others_hold_s, place_in_share
from provisioner.lab.fleet import managed_by
from provisioner.lab.resolved import ResolvedLab
from provisioner.lab.rules import card_problems
from provisioner.lab.written import host_variables
from provisioner.reconcile.addresses import Addresses, users_of_addresses
from provisioner.values.address import Address
from provisioner.values.errors import PreflightError
from provisioner.values.plan import Change, Plan
from provisioner.values.state import Fleet, Secret, Service
from tests.lab_files import spec_of

CHAT, CODE, OTHER = Address("chat/llama_cpp"), Address("code/llama_cpp"), Address("other/llama_cpp")
PVE = {"proxmox": "https://192.168.1.10:8006", "user": "root@pam", "password": Secret("root", "password-value")}
FAR = {"incus": "https://far.example:8443"}
FIRST = Card("0000:01:00.0", "nvidia", "NVIDIA first")
SECOND = Card("0000:02:00.0", "nvidia", "NVIDIA second")
DIFFERENT = (
    "code/llama_cpp takes turns with chat/llama_cpp on one card, and gets NVIDIA second (0000:02:00.0) "
    "where that one gets NVIDIA first (0000:01:00.0)"
)


def lab(
    host: dict[str, Any] | None = None,
    containers: dict[str, Any] | None = None,
    *,
    key: str = "key-of-the-members",
    known: Known | None = None,
) -> ResolvedLab:
    """Three engines on one host, of which two take turns; ``containers`` says more of some."""
    share = {"share": [[CHAT, CODE]], "share_key": Secret("share-box", key)}
    more = containers or {}
    file = {
        "name": "lab",
        "hosts": {"box": {**(host or {"incus": "local"}), **share}},
        "models": {"m": {"source": "builtin:tiny"}},
        "containers": {
            name: {"services": {"llama_cpp": {"model": "m"}}, **more.get(name, {})}
            for name in ("chat", "code", "other")
        },
    }
    resolved = resolve(spec_of(file), load_catalog(), known or Known())
    assert problems(resolved) == []
    return resolved


def fleet(resolved: ResolvedLab) -> Fleet:
    return desired_fleet(resolved, {"m": ModelFile("/models/m.gguf", "m.gguf", "a" * 64)})


def services(resolved: ResolvedLab) -> dict[Address, Service]:
    return {service.address: service for instance in fleet(resolved).instances for service in instance.services}


def test_who_takes_turns_with_whom() -> None:
    found = lab(containers={"code": {"services": {"llama_cpp": {"model": "m", "hold": "90s"}}}})
    assert [found.services[address].share for address in (CHAT, CODE, OTHER)] == [(CHAT, CODE), (CHAT, CODE), ()]
    assert [others_hold_s(found, found.services[address]) for address in (CHAT, CODE, OTHER)] == [90, 60, 0]
    assert place_in_share(found, found.services[CODE]) == ("hosts", "box", "share", 0, 1)
    with pytest.raises(ValueError, match="other/llama_cpp takes no turns"):
        place_in_share(found, found.services[OTHER])


def test_another_key_changes_every_member_and_nobody_else() -> None:
    before, after = services(lab()), services(lab(key="another-key"))
    assert {address for address in before if before[address] != after[address]} == {CHAT, CODE}
    assert "key-of-the-members" not in repr(before)


@pytest.mark.parametrize(
    ("cards", "words"),
    [
        ({"chat": FIRST, "code": FIRST, "other": SECOND}, []),
        ({"code": SECOND}, []),  # the other one gets none, which is told by itself
        ({"chat": FIRST, "code": SECOND}, [DIFFERENT]),
    ],
)
def test_a_group_has_one_card(cards: dict[str, Card], words: list[str]) -> None:
    engine = {"gpu": "any", "services": {"llama_cpp": {"model": "m", "backend": "vulkan"}}}
    containers = dict.fromkeys(("chat", "code", "other"), engine)
    found = card_problems(lab(containers=containers, known=Known(cards=cards)))
    assert [(one.path, one.message) for one in found] == [(("containers", "code", "gpu"), each) for each in words]
    assert all('gpu: { pci: "0000:01:00.0" }' in one.hint for one in found)


def test_names_are_enough_on_one_incus_and_proxmox_tells_addresses() -> None:
    assert users_of_addresses(lab()) == users_of_addresses(lab(FAR)) == {}
    assert users_of_addresses(lab(PVE)) == {"chat": {CODE}, "code": {CHAT}}
    fixed = {"chat": {"proxmox": {"network": {"ip": "192.168.1.50/24"}}}}
    assert users_of_addresses(lab(PVE, fixed)) == {"code": {CHAT}}


def test_members_on_proxmox_are_told_what_their_host_tells() -> None:
    found = services(lab(PVE, known=Known(addresses={"chat": "192.168.1.60", "code": "192.168.1.61"})))
    urls = {address: [one["url"] for one in found[address].variables["llama_cpp_share"]] for address in (CHAT, CODE)}
    assert urls == {
        CHAT: ["http://127.0.0.1:8080", "http://192.168.1.61:8080"],
        CODE: ["http://192.168.1.60:8080", "http://127.0.0.1:8080"],
    }


def _plan(*changes: tuple[str, str]) -> Plan:
    made = [Change(action, target, None, None, "") for action, target in changes]  # type: ignore[arg-type]
    return Plan(tuple(made))


def test_two_that_need_each_others_address_learn_it_once_both_run() -> None:
    users = users_of_addresses(lab(PVE))
    addresses = Addresses(users, own=frozenset(users))
    both = _plan(("create", "chat"), ("create", "code"))
    assert set(addresses.unsettled(both)) == {CHAT, CODE}
    addresses.refuse_unknown(both)
    with pytest.raises(PreflightError, match="nobody knows the address of code") as caught:
        addresses.refuse_unknown(_plan(("create", "chat")))
    assert caught.value.resolution == "Bring it up, too: provision up code chat"
    one_runs = Addresses(users, {"chat": "192.168.1.60"}, frozenset(users))
    assert set(one_runs.unsettled(_plan(("create", "code")))) == {CHAT}
    one_runs.refuse_unknown(_plan(("create", "code")))


def test_a_member_is_never_changed_beside_itself() -> None:
    (configured,) = (Change("configure", CHAT, None, services(lab())[CHAT], "").meanwhile,)
    assert configured == "requests wait meanwhile, for up to 2m"
    alone = Change("configure", OTHER, None, services(lab())[OTHER], "").meanwhile
    assert alone.startswith("a changed one takes over beside it where that is possible")


def test_playbooks_that_make_containers_know_nothing_of_turns() -> None:
    assert host_variables(lab(FAR).hosts["box"]) == {"container_host": FAR}


UPKEEP = Upkeep("", {"paths": [{"name": "/keeper", "unless": {"idle": "0s", "share": []}}, "/always"]})


@pytest.mark.parametrize(
    ("idle", "share", "is_there"),
    [("0s", [], False), ("5m", [], True), ("0s", [{"name": "a/b"}], True), ("5m", [{"name": "a/b"}], True)],
)
def test_what_is_managed_is_left_out_where_all_values_are_those_of_unless(
    idle: str, share: list[Any], is_there: bool
) -> None:
    found = managed_by(UPKEEP, {"idle": idle, "share": share}).paths
    assert found == (("/keeper", "/always") if is_there else ("/always",))


def test_what_the_switch_of_a_member_manages() -> None:
    found = services(lab())
    turns = {
        "/etc/switch-llama-server.turns-key",
        "/etc/systemd/system/llama-server.service.d/turns.conf",
        "/etc/systemd/system/switch-llama-server-keeper.service",
        "/etc/systemd/system/switch-llama-server.service.d/turns.conf",
    }
    assert turns <= set(found[CHAT].managed.reloaded)
    assert turns.isdisjoint(found[OTHER].managed.reloaded)
    assert "/usr/local/lib/switch/turns.py" in found[OTHER].managed.reloaded
