"""What a run leaves out, what it remembers, and what its last line says."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from tests.unit.inputs.conftest import Run

LEFT_OUT = re.compile(r"(\d+) tests of (\d+) files? not run: inputs unchanged since \d{4}-\d\d-\d\d \d\d:\d\d\n?$")


def left_out(said: str) -> tuple[str, str] | None:
    """How many tests and files the last line says did not run."""
    found = LEFT_OUT.search(said)
    return (found[1], found[2]) if found else None


@pytest.mark.parametrize("workers", [(), ("--numprocesses", "2")])
def test_what_passed_is_left_out_of_the_next_run_and_counted_in_the_last_line(
    run: Run, workers: tuple[str, ...]
) -> None:
    first = run("--changed-only", *workers)
    assert "4 passed" in first
    assert left_out(first) is None
    second = run("--changed-only", *workers)
    assert "1 passed" in second
    assert left_out(second) == ("3", "2")


@pytest.mark.parametrize(
    ("changed", "passed"),
    [
        ("tests/integration/test_one.py", "3 passed"),
        ("benchmarks/helper.py", "2 passed"),  # imported by a fixture that one of the two asks for
        ("tests/conftest.py", "4 passed"),
        ("roles/engine/tasks/main.yml", "1 passed"),  # nobody names it
    ],
)
def test_what_changed_runs(run: Run, checkout: Path, changed: str, passed: str) -> None:
    run("--changed-only")
    page = checkout / changed
    page.write_text(f"{page.read_text()}\n# changed\n")
    assert passed in run("--changed-only")


def test_nothing_is_left_out_where_ci_is_set_or_nobody_asks_for_it(run: Run) -> None:
    run("--changed-only")
    assert "4 passed" in run("--changed-only", CI="true")
    assert "4 passed" in run()


def test_what_failed_runs_again(run: Run, checkout: Path) -> None:
    page = checkout / "tests/integration/test_one.py"
    page.write_text("def test_a():\n    pass\ndef test_b():\n    assert False\n")
    assert "1 failed, 3 passed" in run("--changed-only")
    assert "1 failed, 2 passed" in run("--changed-only")


@pytest.mark.parametrize("narrow", [("-k", "test_a or test_c"), ("tests/integration/test_one.py::test_a",)])
def test_a_part_of_a_file_proves_nothing_about_it(run: Run, narrow: tuple[str, ...]) -> None:
    assert "passed" in run(*narrow)
    assert "4 passed" in run("--changed-only")


@pytest.mark.parametrize(
    "form", ["tests/integration/test_one.py::test_a", "{checkout}/tests/integration/test_one.py::test_a"]
)
def test_a_part_of_one_file_takes_nothing_from_others(run: Run, checkout: Path, form: str) -> None:
    assert "2 passed" in run(form.format(checkout=checkout), "tests/unit")
    said = run("--changed-only")
    assert "3 passed" in said
    assert left_out(said) == ("1", "1")


def test_what_passed_more_than_a_day_ago_runs(run: Run, tmp_path: Path) -> None:
    run("--changed-only")
    record = tmp_path / "cache/provisioner/passed/tests+integration+test_one.py.json"
    kept = json.loads(record.read_text())
    kept["latest"]["at"] = time.time() - 24 * 3600 - 1
    record.write_text(json.dumps(kept))
    said = run("--changed-only")
    assert "3 passed" in said
    assert left_out(said) == ("1", "1")


def test_what_was_skipped_as_a_whole_runs(run: Run, checkout: Path) -> None:
    page = checkout / "tests/integration/test_one.py"
    page.write_text("import pytest\ndef test_a():\n    pytest.skip('no card')\n")
    run("--changed-only")
    assert "1 skipped" in run("--changed-only")


def test_what_was_changed_while_it_ran_has_not_passed(run: Run, checkout: Path) -> None:
    page = checkout / "tests/integration/test_one.py"
    page.write_text("def test_a():\n    open(__file__, 'a').write('# changed\\n')\n")
    run("--changed-only")
    assert "2 passed" in run("--changed-only")


def test_an_environment_variable_that_a_test_names_is_an_input(run: Run, checkout: Path) -> None:
    page = checkout / "tests/integration/test_one.py"
    page.write_text("import os\ndef test_a():\n    os.environ.get('CARD_OF_TESTS')\n")
    run("--changed-only", CARD_OF_TESTS="one")
    assert left_out(run("--changed-only", CARD_OF_TESTS="one")) == ("2", "2")
    assert left_out(run("--changed-only", CARD_OF_TESTS="two")) == ("1", "1")


def test_a_broken_record_is_none(run: Run, tmp_path: Path) -> None:
    run("--changed-only")
    (tmp_path / "cache/provisioner/passed/tests+integration+test_one.py.json").write_text('{"latest": {"dig')
    assert left_out(run("--changed-only")) == ("1", "1")


def test_shards_are_the_whole_and_a_round_goes_on_until_it_is_over(run: Run) -> None:
    first = run("--all", "--go-on", "--shard", "1/2")
    assert "3 passed" in first
    assert first.endswith("1 of 3 parts not passed on these inputs: tests/lint/test_three.py (never passed here)\n"), (
        first
    )
    second = run("--all", "--go-on")
    assert "1 passed" in second
    assert "all 3 parts have passed on these inputs, the first at " in second
    assert second.endswith("the round is over\n")
    assert "4 passed" in run("--all", "--go-on"), "the next round begins"


def test_a_round_runs_what_failed_and_what_changed(run: Run, checkout: Path) -> None:
    page = checkout / "tests/integration/test_one.py"
    good = page.read_text()
    page.write_text(f"{good}def test_bad():\n    assert False\n")
    said = run("--all", "--go-on")
    assert said.endswith("1 of 3 parts not passed on these inputs: tests/integration/test_one.py (never passed here)\n")
    page.write_text(good)
    # what always runs depends on the whole checkout
    assert "3 passed" in run("--all", "--go-on")


def test_a_round_that_stands_still_for_more_than_its_names_counts_them(run: Run, checkout: Path) -> None:
    for number in range(25):
        (checkout / f"tests/integration/test_bad{number:02}.py").write_text("def test_x():\n    assert False\n")
    said = run("--all", "--go-on")
    assert said.endswith("and 5 more\n")
    assert "25 of 28 parts not passed" in said


@pytest.mark.parametrize("shard", ["0/2", "3/2", "2", "a/b"])
def test_a_shard_that_cannot_be_is_refused(run: Run, shard: str) -> None:
    assert "is not K/N with K from 1 to N" in run("--shard", shard)


def test_a_round_is_one_of_everything(run: Run) -> None:
    assert "--go-on belongs to --all" in run("--go-on")
