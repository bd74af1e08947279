"""Why a role has to be run again."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from provisioner.reconcile.gather import MOST_NAMED, has_same_wishes, reasons_to_run, stamp_for
from provisioner.values.address import Address
from provisioner.values.facts import ContainerFact, Health, NoAgent, RoleStamp, UnitState
from provisioner.values.state import Instance, Managed, Secret, Service

SECRET = "canary-secret-71"
SERVICE = Service(
    "engine",
    "box",
    "engine",
    {"engine_port": 80, "engine_key": Secret("key", SECRET), "engine_list": [{"k": Secret("key", SECRET)}]},
    unit="engine.service",
    digest="role-1",
    managed=Managed(paths=("/etc/engine",)),
)
BASE = Service("base", "box", "base", {}, digest="base-1")


WITH_OTHER_VALUE = {
    "engine_port": 80,
    "engine_key": Secret("key", "other"),
    "engine_list": [{"k": Secret("key", "other")}],
}


def instance(service: Service = SERVICE) -> Instance:
    return Instance("box", "host", "lab", "debian/12", services=(service,), base=BASE)


ENGINE = Address("box/engine")


def stamp(
    service: Service, changed: list[tuple[str, str, str]] | None = None, inputs: dict[str, str] | None = None
) -> RoleStamp:
    """What the container's side says of a stamp that was written for ``service``."""
    written = stamp_for(service, "lab", "salt")
    known = {**written["inputs"], **(inputs or {})}
    return RoleStamp(service.address, "", known, written["secrets"], "salt", tuple(changed or ()))


def facts(changed: list[tuple[str, str, str]] | None = None, **more: Any) -> list[ContainerFact]:
    unit, health = UnitState(ENGINE, more.get("unit", "active")), Health(ENGINE, more.get("health", 200))
    return [stamp(BASE), stamp(SERVICE, changed), unit, health]


def why(service: Service = SERVICE, **more: Any) -> dict[str, tuple[str, ...]]:
    return {str(address): reasons for address, reasons in reasons_to_run(instance(service), facts(**more)).items()}


def changed(**attributes: Any) -> Service:
    values = {name: getattr(SERVICE, name) for name in Service.__dataclass_fields__}
    return Service(**(values | attributes))


def test_nothing_changed_is_no_reason() -> None:
    assert why() == {}


@pytest.mark.parametrize(
    ("service", "words"),
    [
        (changed(digest="role-2"), "the role has changed"),
        (changed(variables={**SERVICE.variables, "engine_port": 81}), "port changed in the file"),
        (changed(variables={**SERVICE.variables, "engine_new": 1}), "new changed in the file"),
        (changed(variables={"engine_port": 80, "engine_key": Secret("key", SECRET)}), "list changed in the file"),
        (changed(variables=WITH_OTHER_VALUE), "secret key changed"),
        (changed(unstampable="it writes to itself"), "it cannot be stamped: it writes to itself"),
    ],
)
def test_a_changed_input_is_named(service: Service, words: str) -> None:
    assert why(service) == {"box/engine": (words,)}


def test_another_secret_of_the_same_value_is_a_changed_variable() -> None:
    other = changed(variables={**SERVICE.variables, "engine_key": Secret("other", SECRET)})
    assert why(other)["box/engine"] == ("key changed in the file", "secret other changed")


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("small", "large", ("model changed in the file", "index again")),
        ("", "large", ("model changed in the file", "index again")),
        ("small", "", ("model changed in the file",)),
    ],
)
def test_what_a_changed_option_leaves_people_to_do_is_said(before: str, after: str, told: tuple[str, ...]) -> None:
    there = changed(variables={"engine_model": before}, after_change={"model": "index again"})
    wanted = replace(there, variables={"engine_model": after})
    found = [stamp(BASE), stamp(there), *facts()[2:]]
    assert reasons_to_run(instance(wanted), found) == {ENGINE: told}
    assert reasons_to_run(instance(there), found) == {}


def test_another_processor_of_the_host_is_told_and_is_no_change_of_the_file() -> None:
    there = changed(variables={"engine_processor_flags": ["avx", "avx512f"]})
    wanted = replace(there, variables={"engine_processor_flags": ["avx"]})
    found = [stamp(BASE), stamp(there), *facts()[2:]]
    assert reasons_to_run(instance(wanted), found) == {ENGINE: ("the host's processor is another one",)}
    assert reasons_to_run(instance(there), found) == {}


@pytest.mark.parametrize("version", ["2.19.4", "2.20.0"])
def test_a_stamp_of_the_version_before_which_names_its_ansible_stays_valid(version: str) -> None:
    of_version = {"ansible-core": version}
    older = [stamp(BASE, inputs=of_version), stamp(SERVICE, inputs=of_version), *facts()[2:]]
    assert reasons_to_run(instance(), older) == {}
    assert all(has_same_wishes(service, older) for service in (BASE, SERVICE))


def test_who_has_run_it_is_no_input() -> None:
    """Two people with different versions of Ansible share a lab."""
    assert set(stamp_for(SERVICE, "lab", "salt")["inputs"]) == {"role", "variables"}


def test_what_changed_in_the_container_is_named() -> None:
    drift = [["paths", "/etc/engine", "edited"], ["packages", "x", "is gone"], ["units", "e", "state is failed"]]
    assert why(changed=drift)["box/engine"] == ("/etc/engine: edited", "package x: is gone", "unit e: state is failed")


def test_of_many_changes_the_first_are_named_and_the_others_counted() -> None:
    many = [("paths", f"/etc/{number}", "edited") for number in range(MOST_NAMED + 3)]
    assert why(changed=many)["box/engine"][-2:] == (f"/etc/{MOST_NAMED - 1}: edited", "and 3 more")
    assert why(changed=many[:MOST_NAMED])["box/engine"][-1] == f"/etc/{MOST_NAMED - 1}: edited"


def test_a_service_that_does_not_work_has_to_be_run() -> None:
    assert why(unit="failed")["box/engine"] == ("unit engine.service is failed",)
    assert why(unit="asleep") == {}
    assert why(health=503)["box/engine"] == ("its health page answers 503",)


def test_what_was_not_looked_at_has_to_be_run() -> None:
    assert reasons_to_run(instance(), []) == {"box/base": ("nobody has looked",), "box/engine": ("nobody has looked",)}


def test_a_container_that_cannot_be_looked_into_has_to_be_run() -> None:
    found = reasons_to_run(instance(), [NoAgent(Address("box"), "python3 is missing")])
    assert set(found.values()) == {("python3 is missing",)}


def test_a_stamp_that_does_not_count_is_a_reason() -> None:
    seen = [RoleStamp(ENGINE, "its stamp is damaged"), *facts()[:1]]
    assert reasons_to_run(instance(), seen) == {"box/engine": ("its stamp is damaged",)}


def test_a_stamp_holds_no_secret_and_depends_on_its_salt() -> None:
    one, other = (stamp_for(SERVICE, "lab", salt) for salt in ("a", "b"))
    assert SECRET not in json.dumps(one)
    assert one["secrets"] != other["secrets"]
    assert one["inputs"] == other["inputs"]


KEPT_IN = Service(
    "oci", "box", "app", {"oci_port": 80, "oci_reaches": []}, digest="role-2", needs=(Address("llama/llama_cpp"),)
)


@pytest.mark.parametrize("reaches", [[], ["internet"], ["llama.incus:8080"]])
def test_what_is_cut_off_is_said_once_of_a_service_that_was_not_kept_in(
    reaches: list[str], snapshot: SnapshotAssertion
) -> None:
    after = replace(KEPT_IN, variables={**KEPT_IN.variables, "oci_reaches": reaches})
    before = replace(KEPT_IN, variables={"oci_port": 80}, digest="role-1")
    box = replace(instance(), services=(after,), base=None)
    assert reasons_to_run(box, [stamp(before)])[after.address] == snapshot
    assert reasons_to_run(box, [stamp(after)]) == {}
