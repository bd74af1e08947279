"""``plan --markdown``: what a comment on a merge request holds, and nothing else on standard output."""

from __future__ import annotations

from pathlib import Path

from tests.unit.cli.conftest import ENGINE_KEY, FILE, GATEWAY_KEY, World


def test_a_lab_that_is_not_there_yet_is_a_table_and_its_attributes(world: World) -> None:
    answer = world.command("plan", "--markdown", "--detailed-exitcode")
    assert answer.code == 2, answer.err
    assert answer.out.startswith("### Plan of `homelab`\n\nPlan: 2 to create, ")
    rows = [line for line in answer.out.splitlines() if line.startswith("| container ")]
    assert [row.split(" | ")[0] for row in rows] == ["| container `gateway`", "| container `llama`"]
    assert answer.out.endswith("\n</details>\n")
    assert not any(key in answer.out for key in (ENGINE_KEY, GATEWAY_KEY))


def test_warnings_do_not_get_into_the_markdown(world: World, lab: Path) -> None:
    lab.write_text(FILE.replace("!secret engine_key", "in-clear-0123456789"), encoding="utf-8")
    answer = world.command("plan", "--markdown")
    assert answer.code == 0
    assert answer.err.startswith("Warning: homelab.yml:9: ")
    assert answer.out.startswith("### Plan of `homelab`\n")
    assert "in-clear" not in answer.out + answer.err


def test_a_lab_that_is_as_its_file_says_has_no_table(world: World) -> None:
    assert world.command("up", "--yes").code == 0
    answer = world.command("plan", "--markdown", "--detailed-exitcode")
    assert answer.code == 0
    assert answer.out.startswith("### Plan of `homelab`\n\nNo changes: ")
    assert "|" not in answer.out


def test_what_is_replaced_is_said_to_be_lost(world: World) -> None:
    assert world.command("up", "--yes").code == 0
    answer = world.command("plan", "--markdown", "--replace", "llama")
    assert "\n> **What is in it is lost:** `llama`\n" in answer.out


def test_markdown_and_json_at_once_are_wrong_usage(world: World) -> None:
    answer = world.command("plan", "--markdown", "--json")
    assert answer.code == 64
    assert "Choose one of --markdown and --json." in answer.of("diagnostic")[0]["message"]
    assert "planned_change" not in answer.out
