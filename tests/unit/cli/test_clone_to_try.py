"""``clone NAME COPY --set PATH=VALUE``: a copy with other options proves itself, and its original is left alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from provisioner.measuring import engine
from provisioner.reconcile.runner import TaskEvent
from provisioner.values.state import Instance, Status
from tests.case_files import read_cases
from tests.graphics_cards import RTX_3060
from tests.unit.cli.conftest import ENGINE_KEY, FILE, World

CASES = read_cases("cli/clone_to_try")

PARALLEL = "services.llama_cpp.parallel=2"
CLONE = ("clone", "llama", "trial", "--set", PARALLEL)
WITH_COPY = FILE.replace(
    "  gateway:\n",
    "  trial:\n    copy_of: llama\n    services:\n"
    "      llama_cpp: { parallel: 2, model: tiny, api_key: !secret engine_key }\n  gateway:\n",
)
PROOF = TaskEvent("failed", "trial", "llama_cpp", "llama_cpp : verify | Complete", "no answer")


def state_of(world: World, *names: str) -> dict[str, tuple[Any, ...]]:
    """All that a host knows of containers."""
    found = {}
    for name in names:
        one = world.host.containers[name]
        found[name] = copy.deepcopy((one.instance, one.instance.snapshots, one.instance.status, one.files, one.modes))
    return found


def test_the_copy_is_written_started_and_proved_and_nothing_else_is_touched(up: World, lab: Path) -> None:
    others = state_of(up, "llama", "gateway")
    answer = up.done(*CLONE, "--yes")
    assert lab.read_text() == WITH_COPY
    assert state_of(up, "llama", "gateway") == others
    assert up.host.containers["trial"].instance.status is Status.RUNNING
    assert up.played == [("site.yml", ["containers/trial", "service_llama_cpp/trial"])]
    assert "llama_cpp_parallel: 2" in up.inventories[0]
    assert answer.printed == up.snapshot
    assert up.command("plan", "--detailed-exitcode").code == 0, "the gateway knows nothing of it"
    assert up.scripts == [("trial", ["llama-server.service"])], "what it copied is ended before it computes"


def test_it_is_asked_first_and_a_dry_run_and_a_no_touch_nothing(up: World, lab: Path) -> None:
    for words, typed, code in (
        ((), None, 4),
        ((), "n\n", 4),
        (("--dry-run",), None, 0),
        (("--dry-run", "--yes"), "", 0),
    ):
        assert up.command(*CLONE, *words, typed=typed).ended(code) == up.snapshot
        assert lab.read_text() == FILE
        assert "trial" not in up.host.containers
    assert up.command(*CLONE, typed="y\n").code == 0
    assert "trial" in up.host.containers


def test_its_stream_has_the_plan_the_steps_and_one_summary(up: World) -> None:
    answer = up.done(*CLONE, "--yes", "--json")
    planned = [(one["target"], one["action"]) for one in answer.of("planned_change")]
    assert planned[0] == ("trial", "create")
    assert {one["target"].partition("/")[0] for one in answer.of("planned_change")} == {"trial"}
    (result,) = answer.of("result")
    assert (result["container"], result["copy_of"]) == ("trial", "llama")
    assert result["settings"] == {"services.llama_cpp.parallel": "2"}
    (summary,) = answer.of("summary")
    assert summary["exit_code"] == 0
    assert ENGINE_KEY not in answer.out


def test_destroying_it_takes_it_out_of_the_file_again(up: World, lab: Path) -> None:
    assert up.command(*CLONE, "--yes").code == 0
    up.command("destroy", "trial", "--yes", "--lab", "homelab")
    assert lab.read_text() == FILE
    assert {*up.host.containers} == {"llama", "gateway"}
    assert up.command("plan", "--detailed-exitcode").code == 0
    assert up.command("destroy", "gateway", "--yes", "--lab", "homelab").code == 0
    assert lab.read_text() == FILE, "what is no copy stays"


def test_a_copy_that_fails_its_proof_stays_and_how_to_take_it_away_is_said(up: World, lab: Path) -> None:
    others = state_of(up, "llama", "gateway")
    up.failures["site.yml"] = (PROOF,)
    assert up.command(*CLONE, "--yes").ended(3) == up.snapshot
    assert lab.read_text() == WITH_COPY
    assert state_of(up, "llama", "gateway") == others


@pytest.mark.parametrize(("code", "line"), CASES["what cannot be is refused and nothing touched"])
def test_what_cannot_be_is_refused_and_nothing_touched(up: World, lab: Path, code: int, line: str) -> None:
    up.host.create(Instance("theirs", "box", "", "debian/12"))
    up.host.create(Instance("orphan", "box", "homelab", "debian/12"))
    before = state_of(up, *up.host.containers)
    assert up.command("clone", *line.split(), "--yes").ended(code) == up.snapshot
    assert lab.read_text() == FILE
    assert state_of(up, *up.host.containers) == before


def test_a_container_that_is_not_there_yet_cannot_be_copied(world: World, lab: Path) -> None:
    assert world.command(*CLONE, "--yes").ended(4) == world.snapshot
    assert (lab.read_text(), world.host.containers) == (FILE, {})


def test_what_only_one_can_have_the_copy_gets_otherwise_and_that_is_said(up: World, lab: Path) -> None:
    lab.write_text(FILE.replace("model: tiny,", "expose: lan, model: tiny,"))
    assert up.command("up", "--yes").code == 0
    assert up.command(*CLONE, "--yes").ended(0) == up.snapshot
    kinds = {name: [one.kind for one in up.host.containers[name].instance.devices] for name in ("llama", "trial")}
    assert ("publish" in kinds["llama"], "publish" in kinds["trial"]) == (True, False)
    assert "parallel: 2, expose: host, model: tiny" in lab.read_text()


def test_a_service_that_takes_turns_is_not_copied(up: World, lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVISION_SECRET_SHARE_BOX", "a-key-of-all-members-0123456789")
    share = FILE.replace("incus: local", "incus: local, share: [[llama/llama_cpp, code/llama_cpp]]").replace(
        "  gateway:\n", "  code: { services: { llama_cpp: { model: tiny } } }\n  gateway:\n"
    )
    lab.write_text(share)
    assert up.command(*CLONE, "--yes").ended(4) == up.snapshot
    assert lab.read_text() == share


def test_a_card_is_given_to_the_copy_once_nothing_would_be_loaded_as_in_the_original(up: World, lab: Path) -> None:
    up.host.cards.there = (RTX_3060,)
    lab.write_text(FILE.replace("  llama:\n", "  llama:\n    gpu: any\n"))
    assert up.command("up", "--yes").code == 0
    had: list[bool] = []
    script = up.host.programs["sh"]

    def look(container: Any, *rest: Any) -> Any:
        had.append(any(device.kind == "gpu" for device in container.instance.devices))
        return script(container, *rest)

    up.host.programs["sh"] = look
    assert up.command(*CLONE, "--yes").code == 0
    assert had == [False]
    assert any(device.kind == "gpu" for device in up.host.containers["trial"].instance.devices)


def test_a_card_that_only_one_may_have_is_not_shared_with_a_copy(up: World, lab: Path) -> None:
    up.host.cards.there = (RTX_3060,)
    own = FILE.replace("  llama:\n", "  llama:\n    gpu: { vendor: nvidia, sharing: exclusive }\n")
    lab.write_text(own)
    assert up.command("up", "--yes").code == 0
    assert up.command(*CLONE, "--yes").ended(4) == up.snapshot
    assert (lab.read_text(), "trial" in up.host.containers) == (own, False)


def no_room(world: World) -> None:
    world.host.room = len(world.host.containers)


def no_snapshot(world: World) -> None:
    world.host.obstacles["llama"] = "/srv is mounted writable at /data and not in a snapshot"


def no_keys(world: World) -> None:
    world.shell_code = 1


@pytest.mark.parametrize(("spoil", "code"), [(no_room, 1), (no_snapshot, 4), (no_keys, 1)])
def test_where_a_host_cannot_nothing_of_the_copy_is_left(
    up: World, lab: Path, spoil: Callable[[World], None], code: int
) -> None:
    spoil(up)
    assert up.command(*CLONE, "--yes").ended(code) == up.snapshot
    assert "trial" not in up.host.containers
    assert lab.read_text() == FILE
    assert up.command("plan", "--detailed-exitcode").code == 0


def test_a_file_that_was_changed_meanwhile_is_not_written_over(up: World, lab: Path) -> None:
    script = up.host.programs["sh"]

    def edit(*rest: Any) -> Any:
        lab.write_text(FILE + "# mine\n")
        return script(*rest)

    up.host.programs["sh"] = edit
    assert up.command(*CLONE, "--yes").ended(64) == up.snapshot
    assert lab.read_text() == FILE + "# mine\n"
    assert "trial" not in up.host.containers


def test_what_was_measured_of_both_is_held_against_each_other_also_once_the_copy_is_gone(
    up: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "SPREAD_S", 0.0)
    assert up.command(*CLONE, "--yes").code == 0
    up.per_s = 100.0
    assert up.command("bench", "llama", "--kind", "engine", "--trials", "10", "--yes").code == 0
    up.per_s = 50.0
    assert up.command("bench", "trial", "--kind", "engine", "--trials", "10", "--yes").code == 0
    compared = up.done("bench", "--compare", "llama", "trial", "--json")
    (result,) = compared.of("result")
    assert {one["name"]: round(one["times"], 1) for one in result["compared"]} == {"pp512": 0.5, "tg128": 0.5}
    told = up.command("bench", "--compare", "llama", "trial").out
    assert told == up.snapshot
    assert up.command("destroy", "trial", "--yes", "--lab", "homelab").code == 0
    for words in (
        ("--compare", "llama", "trial"),
        ("llama", "--compare", "last", "trial/llama_cpp"),
        ("llama", "--compare", "1", "trial:1"),
        ("--compare", "llama:last", "trial:last"),
    ):
        assert up.command("bench", *words).out == told, words
    for word in ("nobody", "trial:2", "trial:accepted", "trial:", ":1", "1", "last"):
        refused = up.command("bench", "--compare", "llama", word)
        assert (refused.code, f"Unable to compare {word}" in refused.err) == (64, True), word
    assert up.command("bench", "--history").code == 64
