"""``plan --markdown``: what a comment on a merge request holds, and nothing else on standard output."""

from __future__ import annotations

from pathlib import Path

from tests.unit.cli.conftest import ENGINE_KEY, FILE, GATEWAY_KEY, World


def test_a_lab_that_is_not_there_yet_is_a_table_and_its_attributes(world: World) -> None:
    answer = world.command("plan", "--markdown", "--detailed-exitcode")
    assert answer.code == 2, answer.err
    assert answer.printed == world.snapshot
    assert not any(key in answer.out for key in (ENGINE_KEY, GATEWAY_KEY))


def test_warnings_do_not_get_into_the_markdown(world: World, lab: Path) -> None:
    lab.write_text(FILE.replace("!secret engine_key", "in-clear-0123456789"), encoding="utf-8")
    assert world.command("plan", "--markdown").ended(0) == world.snapshot


def test_a_lab_that_is_as_its_file_says_has_no_table(up: World) -> None:
    assert up.command("plan", "--markdown", "--detailed-exitcode").ended(0) == up.snapshot


def test_what_is_replaced_is_said_to_be_lost(up: World) -> None:
    assert up.command("plan", "--markdown", "--replace", "llama").printed == up.snapshot


def test_markdown_and_json_at_once_are_wrong_usage(world: World) -> None:
    answer = world.command("plan", "--markdown", "--json")
    assert answer.code == 64
    assert "Choose one of --markdown and --json." in answer.of("diagnostic")[0]["message"]
    assert "planned_change" not in answer.out
