"""``make_plan`` over data cases: a file in ``tests/cases/plan`` is one desired and one actual lab and what follows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.errors import PreflightError
from provisioner.plan import Inside, Plan, Wishes, make_destroy_plan, make_plan, make_stop_plan
from provisioner.state import Artifact, Device, Fleet, HostState, Instance, InstanceKind, Service, Status

CASES = sorted((Path(__file__).parents[1] / "cases" / "plan").glob("*.yml"))
IMAGES = frozenset({"debian/12", "debian/13"})


def _instance(written: dict[str, Any]) -> Instance:
    devices = tuple(Device(**device) for device in written.pop("devices", []))
    status = written.pop("status", None)
    roles = [Service(role, written["name"], "engine", {}) for role in written.pop("services", [])]
    kind = InstanceKind(written.pop("kind", "serving"))
    defaults = {"host": "box", "lab": "lab", "image": "debian/12"}
    return Instance(
        **(defaults | written),
        devices=devices,
        kind=kind,
        services=tuple(roles),
        status=Status(status) if status is not None else None,
    )


def _fleet(written: dict[str, Any]) -> Fleet:
    hosts = {
        name: HostState(
            name,
            strangers=frozenset(state.get("strangers", [])),
            moved=state.get("moved", {}),
            moved_hints={name: f"bring {name} back" for name in state.get("moved", {})},
            images=frozenset(state.get("images", IMAGES)),
            volumes=frozenset(state.get("volumes", [])),
            adoptable={one["name"]: _instance({"lab": "", "image": "", **one}) for one in state.get("adoptable", [])},
        )
        for name, state in written.get("hosts", {"box": {}}).items()
    }
    return Fleet(
        "lab",
        tuple(_instance(one) for one in written.get("instances", [])),
        tuple(Artifact(**one) for one in written.get("artifacts", [])),
        hosts,
    )


def _rows(plan: Plan) -> list[dict[str, Any]]:
    return [{"action": one.action, "target": one.target, "reason": one.reason} for one in plan.changes]


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_case(file: Path) -> None:
    case = yaml.safe_load(file.read_text(encoding="utf-8"))
    desired, actual = _fleet(case.get("desired", {})), _fleet(case.get("actual", {}))
    asked = case.get("wishes", {})
    wishes = Wishes(
        frozenset(case.get("targets", [])), frozenset(asked.get("replace", [])), prune=asked.get("prune", False)
    )
    found = case.get("inside", {})
    inside = Inside(
        {address: tuple(why) for address, why in found.get("reasons", {}).items()}, tuple(found.get("leftovers", []))
    )
    if "refused" in case:
        with pytest.raises(PreflightError) as caught:
            make_plan(desired, actual, inside=inside, wishes=wishes)
        for words in case["refused"]:
            assert words in str(caught.value)
        return
    plan = make_plan(desired, actual, inside=inside, wishes=wishes)
    assert _rows(plan) == case["changes"]
    assert [one.name for one in plan.orphans] == case.get("orphans", [])
    assert list(plan.leftovers) == case.get("leftovers", [])
    assert plan.is_empty is (not case["changes"])


def test_destroy_takes_what_bears_the_mark_and_only_the_targets() -> None:
    actual = _fleet({"instances": [{"name": "a", "status": "running"}, {"name": "b", "status": "stopped"}]})
    assert [one.target for one in make_destroy_plan(actual).changes] == ["a", "b"]
    assert [one.target for one in make_destroy_plan(actual, targets=["b"]).changes] == ["b"]


def test_stop_leaves_what_is_stopped() -> None:
    actual = _fleet({"instances": [{"name": "a", "status": "running"}, {"name": "b", "status": "stopped"}]})
    assert [one.target for one in make_stop_plan(actual).changes] == ["a"]
