"""``verify`` of a service that computes for somebody: waited for, then not asked, and never accused of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from provisioner.reconcile import prove
from provisioner.reconcile.runner import TaskEvent
from tests.unit.cli.conftest import Answer, World

LATE = "Unable to use llama-server.service: http://127.0.0.1:8080/health did not answer 200 within 300 seconds"


@pytest.fixture
def busy(up: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A lab that is up, whose engine is busy."""
    up.healths["llama/llama_cpp"] = "busy"
    monkeypatch.setattr(prove, "PATIENCE_S", 0.3)
    monkeypatch.setattr(prove, "POLL_S", 0.05)
    return up


def checks(answer: Answer) -> dict[str, tuple[Any, Any]]:
    return {one["target"]: (one["ok"], one["not_asked"]) for one in answer.of("check")}


def test_what_stays_busy_is_not_asked_and_no_finding(busy: World) -> None:
    answer = busy.done("verify", "--json")
    assert checks(answer) == {"llama/llama_cpp": (None, True), "gateway/litellm": (None, True)}
    assert busy.played == [], "who asks a busy one is not asked either"
    assert busy.command("verify").ended(0) == busy.snapshot


def test_what_is_idle_again_in_time_is_proved(busy: World, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            busy.healths.clear()

    monkeypatch.setattr("provisioner.reconcile.prove.time.sleep", sleep)
    monkeypatch.setattr(prove, "PATIENCE_S", 60.0)
    answer = busy.done("verify", "--json")
    assert len(waits) == 3
    assert checks(answer) == {"llama/llama_cpp": (True, False), "gateway/litellm": (True, False)}


def test_what_else_is_wrong_is_found_all_the_same(busy: World) -> None:
    busy.units["gateway/litellm"] = "failed"
    answer = busy.command("verify", "--json")
    assert answer.code == 3
    assert checks(answer)["gateway/litellm"] == (False, False)
    assert checks(answer)["llama/llama_cpp"] == (None, True)


@pytest.mark.parametrize("health", ["timed out", "Connection refused", 503])
def test_what_hangs_or_is_dead_is_found_while_it_is_waited_for(
    busy: World, health: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sleep(_seconds: float) -> None:
        busy.healths["llama/llama_cpp"] = health

    monkeypatch.setattr("provisioner.reconcile.prove.time.sleep", sleep)
    answer = busy.command("verify", "--json")
    assert answer.code == 3
    assert checks(answer)["llama/llama_cpp"] == (False, False)


def test_what_becomes_busy_while_it_proves_itself_is_not_accused(busy: World) -> None:
    busy.healths.clear()
    failed = TaskEvent("failed", "llama", "llama_cpp", "llama_cpp : verify | Wait until the server is ready", LATE)
    busy.failures["verify.yml"] = (failed,)

    def then() -> None:
        busy.healths["llama/llama_cpp"] = "busy"
        busy.failures.clear()

    busy.then = then
    answer = busy.done("verify", "--json")
    assert checks(answer)["llama/llama_cpp"] == (None, True)


@pytest.mark.parametrize("role", ["llama_cpp", "litellm"])
def test_one_whose_slots_are_all_taken_is_not_accused_of_being_slow(busy: World, role: str) -> None:
    busy.healths.clear()
    busy.taken.add("llama/llama_cpp")
    host = {"llama_cpp": "llama", "litellm": "gateway"}[role]
    words = "Status code was -1 and not [200]: Request failed: <urlopen error timed out>"
    busy.failures["verify.yml"] = (TaskEvent("failed", host, role, f"{role} : verify | Ask", words),)
    busy.then = busy.failures.clear
    answer = busy.done("verify", "--json")
    assert checks(answer) == {"llama/llama_cpp": (None, True), "gateway/litellm": (None, True)}


@pytest.mark.parametrize("words", ["no answer", LATE])
def test_a_proof_that_fails_is_a_finding_where_nobody_is_busy(busy: World, words: str) -> None:
    busy.healths.clear()
    busy.failures["verify.yml"] = (TaskEvent("failed", "llama", "llama_cpp", "llama_cpp : verify | Ask", words),)
    assert busy.command("verify").code == 3


def test_up_after_a_change_ends_with_3_where_its_proof_could_not_be_had(busy: World, lab: Path) -> None:
    content = lab.read_text(encoding="utf-8")
    lab.write_text(content.replace("model: tiny", "model: tiny, context: 1024"), encoding="utf-8")
    failed = TaskEvent("failed", "llama", "llama_cpp", "llama_cpp : verify | Wait until the server is ready", LATE)
    busy.failures["site.yml"] = (failed,)
    before = busy.host.containers["llama"].files["stamp/llama_cpp"]
    assert busy.command("up", "--yes").ended(3) == busy.snapshot
    assert busy.host.containers["llama"].files["stamp/llama_cpp"] == before


@pytest.mark.usefixtures("lab")
def test_a_stamp_stays_and_none_is_written_without_a_proof(busy: World) -> None:
    files = dict(busy.host.containers["llama"].files)
    del busy.host.containers["gateway"].files["stamp/litellm"]
    assert busy.command("verify").code == 0
    assert busy.host.containers["llama"].files == files
    assert "stamp/litellm" not in busy.host.containers["gateway"].files
