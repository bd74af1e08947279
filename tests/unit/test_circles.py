"""The circles of tests: what belongs to which, what comes first, what is remembered and what is left out."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests import records
from tests.circles import Account, chosen_parts, commit_of, part_of, rank, scope
from tests.records import Run

ROOT = Path(__file__).resolve().parents[2]
PARTS = {
    "tests/integration/test_incus.py": "",
    "tests/integration/up/test_drift.py": "",
    "molecule/base/molecule.yml": "",
    "molecule/door/molecule.yml": "",
    "roles/door/tasks/main.yml": "",
}
RECENT = datetime.now(UTC).isoformat()
LONG_AGO = (datetime.now(UTC) - timedelta(days=15)).isoformat()


@pytest.mark.parametrize(
    ("nodeid", "part"),
    [
        ("tests/integration/up/test_drift.py::test_one[a::b]", "tests/integration/up/test_drift.py"),
        ("tests/molecule/test_scenarios.py::test_scenario[base]", "molecule/base"),
        ("tests/molecule/test_scenarios.py::test_what_failed", "tests/molecule"),
        ("tests/unit/cluster/deeper/test_facts.py::test_one", "tests/unit/cluster"),
        ("tests/unit/test_plan.py::test_one", "tests/unit"),
        ("tests/lint/test_linters.py::test_one", "tests/lint"),
    ],
)
def test_every_test_belongs_to_a_part(nodeid: str, part: str) -> None:
    assert part_of(nodeid) == part


@pytest.mark.parametrize(
    ("nodeid", "name"),
    [
        ("tests/integration/up/test_drift.py::test_one[a::b]", "artifacts"),
        ("tests/molecule/test_scenarios.py::test_scenario[base]", "artifacts"),
        ("tests/integration/cluster/test_cluster_check.py::test_one", "cluster"),
        ("tests/integration/test_incus.py::test_one[a::b]", "tests/integration/test_incus.py"),
    ],
)
def test_tests_that_use_something_in_turn_have_one_worker(nodeid: str, name: str) -> None:
    assert scope(nodeid) == name


def test_the_longest_come_first_where_there_are_two_workers() -> None:
    names = ["molecule/test_scenarios.py", "unit/test_plan.py", "integration/up/test_drift.py", "lint/test_linters.py"]

    def ordered(*, workers: bool) -> list[str]:
        return [name.split("/")[-2] for name in sorted(names, key=lambda name: rank(f"tests/{name}", workers=workers))]

    assert ordered(workers=True) == ["up", "lint", "unit", "molecule"]
    assert ordered(workers=False) == ["lint", "unit", "up", "molecule"]


def test_whole_labs_are_run_from_their_folder_alone() -> None:
    """They delete volumes of the lab's Incus that other tests of that folder may be about to use."""
    imported = "from tests.integration." + "up"
    files = [file for folder in ("unit", "integration") for file in (ROOT / "tests" / folder).rglob("*.py")]
    importing = [file for file in files if imported in file.read_text(encoding="utf-8")]
    assert importing
    assert [file.name for file in importing if file.parent.name != "up"] == []


class Checkout:
    """A small checkout in git."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "-q")
        for name, text in PARTS.items():
            self.write(name, text)

    def git(self, *words: str) -> str:
        """Return what git prints."""
        command = ("git", "-C", str(self.root), "-c", "user.name=a", "-c", "user.email=a@example", *words)
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()

    def write(self, name: str, text: str) -> str:
        """Commit a file; return the commit."""
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)
        self.git("add", ".")
        self.git("commit", "-qm", "Change", "--allow-empty")
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def chosen(checkout: Checkout, runs: dict[str, Run]) -> list[str]:
    return chosen_parts(checkout.root, runs)[0]


def test_without_history_representatives_come_before_the_rest_and_it_is_said(checkout: Checkout) -> None:
    order, why = chosen_parts(checkout.root, {})
    assert order[:3] == ["molecule/base", "tests/integration/test_incus.py", "tests/integration/up/test_drift.py"]
    assert "not known what changed" in why
    assert order[3:] == ["molecule/door"]
    unknown = dict.fromkeys(order, Run("0" * 40, RECENT, 1))
    assert chosen(checkout, unknown) == order[:3]


def test_what_changed_is_tried_and_what_is_new_here_comes_after_it(checkout: Checkout) -> None:
    before = checkout.git("rev-parse", "HEAD")
    runs = {part: Run(before, RECENT, 1) for part in ("molecule/base", "molecule/door")}
    assert chosen(checkout, runs) == ["tests/integration/test_incus.py", "tests/integration/up/test_drift.py"]
    after = checkout.write("roles/door/tasks/main.yml", "[]")
    assert chosen(checkout, runs)[0] == "molecule/door"
    assert "molecule/base" not in chosen(checkout, runs)
    runs["molecule/door"] = Run(after, RECENT, 1)
    assert "molecule/door" not in chosen(checkout, runs)


def test_a_change_that_is_not_committed_is_one(checkout: Checkout) -> None:
    commit = checkout.git("rev-parse", "HEAD")
    assert commit_of(checkout.root) == commit
    (checkout.root / "roles/door/tasks/main.yml").write_text("[]")
    assert commit_of(checkout.root) == f"{commit}+"
    assert "molecule/door" in chosen(checkout, {"molecule/door": Run(commit, RECENT, 1)})


def test_what_failed_is_run_again_and_what_ran_longest_ago_comes_first(checkout: Checkout) -> None:
    commit = checkout.git("rev-parse", "HEAD")
    runs = {
        "molecule/base": Run(commit, RECENT, 1, ("a test",)),
        "molecule/door": Run(commit, LONG_AGO, 1, ("a test",)),
        "tests/integration/test_incus.py": Run(commit, RECENT, 1),
        "tests/integration/up/test_drift.py": Run(commit, RECENT, 1),
    }
    assert chosen(checkout, runs) == ["molecule/door", "molecule/base"]


@pytest.mark.parametrize(
    ("days", "commits", "is_old"), [(1, 100, False), (15, 59, False), (15, 60, True), (15, None, True)]
)
def test_a_run_is_old_in_days_and_in_commits(days: int, commits: int | None, *, is_old: bool) -> None:
    at = (datetime.now(UTC) - timedelta(days=days)).isoformat()
    since = {} if commits is None else {"abc": commits}
    assert Run("abc", at, 1).is_old(datetime.now(UTC), since) is is_old


def reported(nodeid: str, outcome: Any = "passed") -> list[pytest.TestReport]:
    """Return the reports of the three phases of a test."""
    whens: list[Any] = ["setup", "call", "teardown"]
    return [
        pytest.TestReport(nodeid, ("", 0, ""), {}, outcome if when == "call" else "passed", None, when, duration=1.0)
        for when in whens
    ]


@pytest.mark.parametrize(
    ("asked", "recorded"),
    [([], ["tests/lint"]), (["tests/lint"], ["tests/lint"]), (["tests/lint/test_linters.py"], [])],
)
def test_a_file_of_a_folder_is_not_recorded_as_the_folder(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch, asked: list[str], recorded: list[str]
) -> None:
    monkeypatch.setattr(pytestconfig, "args", asked)
    assert list(account(pytestconfig, reported("tests/lint/test_linters.py::test_1")).runs("abc", {})) == recorded


def account(pytestconfig: pytest.Config, *reports: list[pytest.TestReport]) -> Account:
    account = Account(pytestconfig, {"why": ""})
    account._expect([reports_of[0].nodeid for reports_of in reports])
    for report in [report for reports_of in reports for report in reports_of]:
        account.pytest_runtest_logreport(report)
    return account


def test_a_part_is_recorded_when_all_of_it_ran(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pytestconfig, "args", [])
    first, second = "tests/integration/test_a.py::test_1", "tests/integration/test_a.py::test_2"
    assert account(pytestconfig, reported(first), reported(second)[:2]).runs("abc", {}) == {}
    assert account(pytestconfig, reported(first, "skipped")).runs("abc", {}) == {}
    runs = account(pytestconfig, reported(first), reported(second, "failed")).runs("abc", {})
    run = runs["tests/integration/test_a.py"]
    assert (run.commit, run.seconds, run.failed, run.unsteady) == ("abc", 6.0, (second,), False)


@pytest.mark.parametrize(
    ("before", "is_unsteady"),
    [
        (Run("abc", RECENT, 1, ("one",)), True),
        (Run("abc", RECENT, 1), False),
        (Run("abc", RECENT, 1, (), unsteady=True), True),
        (Run("abd", RECENT, 1, ("one",)), False),
    ],
    ids=["failed before", "passed before", "was unsteady", "another commit"],
)
def test_a_part_that_failed_and_passed_at_one_commit_is_unsteady(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch, before: Run, *, is_unsteady: bool
) -> None:
    monkeypatch.setattr(pytestconfig, "args", [])
    test = "tests/integration/test_a.py::test_1"
    runs = account(pytestconfig, reported(test)).runs("abc", {"tests/integration/test_a.py": before})
    assert runs["tests/integration/test_a.py"].unsteady is is_unsteady


@pytest.mark.parametrize("name", ["last_full.yml", "tests.json"])
def test_records_survive_beside_those_of_other_parts(tmp_path: Path, name: str) -> None:
    file = tmp_path / "new" / name
    assert records.read_runs(file) == {}
    one, other = Run("abc", RECENT, 1.5, ("a::b",)), Run("abd", RECENT, 2, unsteady=True)
    records.write_runs(file, {"one": one}, "abc")
    records.write_runs(file, {"other": other}, "abd")
    assert records.read_runs(file) == {"one": one, "other": other}


@pytest.mark.parametrize("content", ["", "[", "[]", "parts: []", "{", "parts: {a: 1}", "parts: {a: {}}"])
def test_a_damaged_file_of_records_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "last_full.yml").write_text(content)
    assert records.read_runs(tmp_path / "last_full.yml") == {}
