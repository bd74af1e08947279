"""``make_plan`` over data cases: a file in ``tests/cases/plan`` is one desired and one actual lab and what follows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.reconcile.plan import make_destroy_plan, make_plan, make_stop_plan
from provisioner.values.errors import PreflightError
from provisioner.values.plan import Action, Change, Inside, Plan, Wishes
from provisioner.values.state import Artifact, Device, Fleet, HostState, Instance, InstanceKind, Service, Status

CASES = sorted((Path(__file__).parents[2] / "cases" / "plan").glob("*.yml"))
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
            unmanaged=frozenset(state.get("unmanaged", [])),
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


def test_the_plan_says_who_is_kept_out_of_a_container_that_may_go_back() -> None:
    """Its snapshot is the whole container's, so what is written into one service is lost with the change of another."""
    engine, chat = (
        Service("engine", "a", "engine", {}),
        Service("chat", "a", "app", {}, health="/ready", behind="switch"),
    )
    fleet = _fleet({"instances": [{"name": "a", "status": "running"}]})
    (there,) = fleet.instances
    desired = replace(fleet, instances=(replace(there, memory=1, services=(engine, chat)),))
    reasons = {engine.address: ("why",), chat.address: ("why",)}
    inside = Inside(reasons, closable=frozenset({chat.address}))
    update, first, second = make_plan(desired, fleet, inside=inside).changes
    shown = "a/chat shows people a page until it is proved, as its container may go back"
    assert (update.action, update.meanwhile, first.meanwhile) == ("update", shown, shown)
    assert second.meanwhile == "a page says meanwhile that it is not there"
    assert not any(change.kept_out for change in make_plan(desired, fleet, inside=Inside(reasons)).changes)


def test_destroy_takes_what_the_file_names_and_lists_the_rest() -> None:
    there = ("a", "b", "other")
    actual = _fleet({"instances": [{"name": name, "status": "running"} for name in there]})
    named = frozenset({"a", "b", "not-there"})

    def plan(**asked: Any) -> tuple[list[str], list[str]]:
        made = make_destroy_plan(actual, named, **asked)
        return [one.target for one in made.changes], [one.name for one in made.orphans]

    assert plan() == (["a", "b"], ["other"])
    assert plan(targets=["b"]) == (["b"], ["other"])
    assert plan(targets=["other"]) == (["other"], [])
    assert plan(prune=True) == (["a", "b", "other"], [])


def test_destroy_takes_builders_along() -> None:
    actual = _fleet({"instances": [{"name": "a"}, {"name": "x", "kind": "builder"}]})
    assert [one.target for one in make_destroy_plan(actual, ["a"]).changes] == ["a", "x"]
    assert [one.target for one in make_destroy_plan(actual, ["a"], targets=["a"]).changes] == ["a"]


def test_stop_leaves_what_is_stopped_and_what_the_file_does_not_name() -> None:
    states = {"a": "running", "b": "stopped", "other": "running"}
    actual = _fleet({"instances": [{"name": name, "status": state} for name, state in states.items()]})
    made = make_stop_plan(actual, ["a", "b"])
    assert [one.target for one in made.changes] == ["a"]
    assert [one.name for one in made.orphans] == ["other"]
    assert [one.target for one in make_stop_plan(actual, ["a", "b"], targets=["other"]).changes] == ["other"]


def test_what_was_moved_out_of_reach_is_not_made_a_second_time() -> None:
    desired = _fleet({"instances": [{"name": "a"}]})
    actual = _fleet({"instances": []})
    host = replace(actual.hosts["box"], moved={"a": "in project attic"}, moved_hints={"a": "move it"})
    with pytest.raises(PreflightError) as caught:
        make_plan(desired, replace(actual, hosts={"box": host}))
    assert "a is in project attic now" in caught.value.details
    assert caught.value.resolution == "move it"


WAITING = Service("engine", "a", "engine", {"engine_queue": "2m"}, port=8080, health="/health", behind="switch")
REFUSING = Service("voice", "a", "engine", {}, port=8880, health="/health")
WHERE_POSSIBLE = "a changed one takes over beside it where that is possible"
UNASKED = Service("desktop", "a", "desktop", {}, port=3389)


@pytest.mark.parametrize(
    ("service", "told"),
    [
        (WAITING, "requests wait meanwhile, for up to 2m"),
        (replace(WAITING, beside=True), "nobody waits: a changed one is started beside it and takes over"),
        (replace(WAITING, beside=None), f"{WHERE_POSSIBLE}; if not, requests wait meanwhile, for up to 2m"),
        (REFUSING, "requests are refused meanwhile"),
        (replace(WAITING, variables={}), "a page says meanwhile that it is not there"),
        (UNASKED, ""),
    ],
)
def test_the_plan_says_what_requests_meet_while_a_service_is_configured(service: Service, told: str) -> None:
    assert Change("configure", "a/x", None, service, "why").meanwhile == told


@pytest.mark.parametrize(
    ("start_s", "told"),
    [
        (0.0, "for up to 2m"),
        (0.2, "about 1 s by its last starts, and up to 2m"),
        (41.6, "about 42 s by its last starts, and up to 2m"),
    ],
)
def test_the_plan_says_how_long_requests_are_likely_to_wait(start_s: float, told: str) -> None:
    inside = Inside({WAITING.address: ("why",)}, starts={WAITING.address: start_s})
    fleet = _fleet({"instances": [{"name": "a", "status": "running"}]})
    desired = replace(fleet, instances=tuple(replace(one, services=(WAITING,)) for one in fleet.instances))
    (change,) = make_plan(desired, fleet, inside=inside).of("configure")
    assert change.meanwhile == f"requests wait meanwhile, {told}"


STOPPED_TOO = "requests are refused meanwhile: the switch stops with its container"


@pytest.mark.parametrize(
    ("action", "before", "services", "told"),
    [
        ("replace", {"image": "old"}, [WAITING, UNASKED], STOPPED_TOO),
        ("replace", {"image": "old"}, [REFUSING], "requests are refused meanwhile"),
        ("replace", {"image": "old"}, [UNASKED], ""),
        ("replace", {"image": "old", "status": Status.STOPPED}, [WAITING], ""),
        ("update", {"nesting": True}, [WAITING], STOPPED_TOO),
        ("update", {"memory": 1}, [WAITING], ""),
        ("create", None, [WAITING], ""),
        ("start", {"status": Status.STOPPED}, [WAITING], ""),
    ],
)
def test_the_plan_says_what_requests_meet_while_a_container_is_changed(
    action: Action, before: dict[str, Any] | None, services: list[Service], told: str
) -> None:
    after = Instance("a", "box", "lab", "new", services=tuple(services))
    there = None if before is None else replace(after, **{"status": Status.RUNNING, **before})
    assert Change(action, "a", there, after, "why").meanwhile == told
