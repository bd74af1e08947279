"""The three circles of tests, as a pytest plugin: what a run takes, in which order, and what it says at its end.

``--core`` takes linters, unit tests, and of the rest what is marked ``core`` or ``guarantee``. ``--changed`` takes the
integration files and scenarios that ``changed.py`` names for what changed, then those that have not run for long, as
far as there is time. ``--all`` takes everything. A bare ``pytest`` takes everything that is not marked ``slow``.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests import records
from tests.changed import REPRESENTATIVES, NotCoveredError, changed_paths, parts_for
from tests.checkout import git

ROOT = Path(__file__).resolve().parents[1]
STARTED = float(os.environ.get("PROVISION_TEST_STARTED") or time.time())
"""The time (Unix) at which the whole run began: with ``make``, before it installed anything."""
SCENARIO = re.compile(r"tests/molecule/test_scenarios\.py::test_scenario\[(\w+)\]")
CORE_SCENARIOS = ("molecule/base",)
UNKNOWN_S = 1200.0
"""The time that a part is taken to last that never ran here: what a scenario may take at most, as a run has an end."""
SLOWEST = 20
UNIT_CPU_S = 5.0
"""A unit test that takes more processor time is named at the end of a run."""
NARROWING = ("keyword", "markexpr", "deselect", "lf", "stepwise")
"""Options of pytest that take some tests of a file only: such a run says nothing about the file."""

TOGETHER = {
    "tests/integration/up/": "artifacts",
    "tests/molecule/": "artifacts",
    "tests/integration/cluster/": "cluster",
}
"""Folders whose tests use something in turn, so that one worker has them all: volumes of the lab's Incus, where whole
runs and scenarios delete what nobody uses at that moment; the nodes of the cluster."""
ORDER = ("lint", "unit", "integration", "molecule")
"""The order of one worker: what fails quickly comes first."""


def part_of(nodeid: str) -> str:
    """Return the part to which a test belongs (see ``records``)."""
    if scenario := SCENARIO.fullmatch(nodeid):
        return f"molecule/{scenario[1]}"
    file = nodeid.partition("::")[0]
    if file.startswith("tests/integration/"):
        return file
    folders = file.split("/")[:-1]
    return "/".join(folders[:3])


def all_parts(root: Path) -> list[str]:
    """Return the integration files and scenarios of a checkout, in the order of their names."""
    files = [file.relative_to(root).as_posix() for file in (root / "tests/integration").rglob("test_*.py")]
    scenarios = [f"molecule/{page.parent.name}" for page in root.glob("molecule/*/molecule.yml")]
    return sorted(files + scenarios)


def is_core(item: pytest.Item) -> bool:
    """Return whether ``make test`` runs a test."""
    is_quick = item.nodeid.startswith(("tests/lint/", "tests/unit/"))
    is_marked = bool(item.get_closest_marker("core") or item.get_closest_marker("guarantee"))
    return is_quick or is_marked or part_of(item.nodeid) in CORE_SCENARIOS


def scope(nodeid: str) -> str:
    """Return the name of what one worker has to run as a whole, of which a test is a part."""
    return next((name for folder, name in TOGETHER.items() if nodeid.startswith(folder)), nodeid.partition("::")[0])


def rank(nodeid: str, *, workers: bool) -> int:
    """Return the place of a test in the order of a run: of two workers, one begins with what takes longest."""
    if workers and nodeid.startswith("tests/integration/up/"):
        return -1
    folder = nodeid.removeprefix("tests/").partition("/")[0]
    return ORDER.index(folder) if folder in ORDER else len(ORDER)


def chosen_parts(root: Path, known: Mapping[str, records.Run]) -> tuple[list[str], str]:
    """Return what ``--changed`` runs, what matters most first, and the sentence that says why.

    First come the parts that failed when they last ran, or for which a rule names something that changed since then,
    those that ran longest ago before others. Then come the parts that have not run for long. ``known`` has the last run
    of each part. Raises `NotCoveredError`.
    """
    parts = all_parts(root)
    chosen = {part for part in parts if part in known and known[part].failed}
    by_commit: dict[str, list[str]] = defaultdict(list)
    for part in parts:
        if part in known:
            by_commit[known[part].commit.removesuffix("+")].append(part)
    is_known = False
    for commit, ran in by_commit.items():
        changed = changed_paths(root, commit)
        if changed is not None:
            is_known = True
            chosen.update(parts_for(changed, ran))
    why = "what changed since each part last ran chooses"
    if not is_known:
        chosen.update(part for part in REPRESENTATIVES if part in parts)
        why = f"it is not known what changed since everything ran ({records.LAST_FULL}); representatives are"
    since = {run.commit: _commits_since(root, run.commit) for run in known.values()}
    moment = datetime.now(UTC)
    old = {part for part in parts if part not in known or known[part].is_old(moment, since)} - chosen

    def age(part: str) -> tuple[str, str]:
        return known[part].at if part in known else "", part

    ordered = [*sorted(chosen, key=age), *sorted(old, key=age)]
    return ordered, f"{why} {len(chosen)} parts; {len(old)} more have not run for long"


def _commits_since(root: Path, commit: str) -> int:
    try:
        return int(git(root, "rev-list", "--count", f"{commit.removesuffix('+')}..HEAD"))
    except subprocess.CalledProcessError:
        return records.OLD_COMMITS


def commit_of(root: Path) -> str:
    """Return the commit of the checkout, with ``+`` where something differs from it; nothing without git."""
    try:
        changes = git(root, "status", "--porcelain", "--", ".", f":!{records.LAST_FULL}")
        return git(root, "rev-parse", "HEAD").strip() + ("+" if changes else "")
    except subprocess.CalledProcessError:
        return ""


def shard(text: str) -> tuple[int, int]:
    """Return ``2/6`` as two numbers; raises an option's error for anything else."""
    number, slash, count = text.partition("/")
    if not slash or not number.isdecimal() or not count.isdecimal() or not 1 <= int(number) <= int(count):
        raise argparse.ArgumentTypeError(f"{text!r} is not K/N with K from 1 to N, such as 2/6")
    return int(number), int(count)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what selects a circle."""
    group = parser.getgroup("provisioner")
    group.addoption("--core", action="store_true", help="what a user runs to know that it works here (make test)")
    group.addoption(
        "--changed", action="store_true", help="what tries the change, outside of --core (make test-changed)"
    )
    group.addoption("--all", action="store_true", help="everything, slow tests included (make test-all)")
    group.addoption("--go-on", action="store_true", help="with --all: leave out what passed at this very commit")
    group.addoption("--shard", metavar="K/N", type=shard, help="the K-th of N shares of all parts")
    group.addoption(
        "--until-minutes",
        type=float,
        metavar="N",
        help="begin no part that would end later than N minutes after the start",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Decide once for all workers which parts are taken."""
    worker_input: dict[str, Any] | None = getattr(config, "workerinput", None)
    plan = worker_input["circle"] if worker_input is not None else _plan(config)
    config.pluginmanager.register(Selection(config, plan), "circle-selection")
    if worker_input is None:
        config.pluginmanager.register(Account(config, plan), "circle-account")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Have the garbage collector look past all tests, which are there until the end."""
    gc.collect()
    gc.freeze()


def _plan(config: pytest.Config) -> dict[str, Any]:
    full, known = records.read_runs(ROOT / records.LAST_FULL), records.latest_runs(ROOT)
    plan: dict[str, Any] = {"order": None, "why": "", "passed": []}
    plan["seconds"] = {part: run.seconds for part, run in known.items()}
    if config.getoption("--changed"):
        try:
            # A clean clone is tried as it would be on any machine: what this one has run before does not count.
            plan["order"], plan["why"] = chosen_parts(ROOT, full if os.environ.get("CI") else known)
        except NotCoveredError as error:
            raise pytest.UsageError(str(error)) from error
    commit = commit_of(ROOT)
    if config.getoption("--go-on") and not commit.endswith("+"):
        plan["passed"] = [part for part, run in full.items() if run.commit == commit and not run.failed]
    return plan


class Selection:
    """Takes tests and puts them into order, in each process that collects them."""

    def __init__(self, config: pytest.Config, plan: Mapping[str, Any]) -> None:
        self._config = config
        self._plan = plan
        self._begun: dict[str, bool] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Deselect what is not in the circle."""
        taken = [item for item in items if self._is_taken(item)]
        left = set(items) - set(taken)
        order = self._plan["order"]
        if order is not None:
            places = {part: place for place, part in enumerate(order)}
            taken.sort(key=lambda item: places[part_of(item.nodeid)])
        else:
            workers = hasattr(self._config, "workerinput")
            taken.sort(key=lambda item: rank(item.nodeid, workers=workers))
        if self._config.getoption("--shard"):
            number, count = self._config.getoption("--shard")
            share = set(sorted({part_of(item.nodeid) for item in taken})[number - 1 :: count])
            left |= {item for item in taken if part_of(item.nodeid) not in share}
            taken = [item for item in taken if part_of(item.nodeid) in share]
        self._config.hook.pytest_deselected(items=list(left))
        items[:] = taken
        if not self._config.getoption("--all"):
            for item in items:
                if item.get_closest_marker("slow"):
                    item.add_marker(pytest.mark.skip(reason="slow: runs with --all (make test-all)"))

    def _is_taken(self, item: pytest.Item) -> bool:
        part = part_of(item.nodeid)
        if self._config.getoption("--core"):
            return is_core(item)
        if self._config.getoption("--changed"):
            return part in self._plan["order"] and not is_core(item)
        return part not in self._plan["passed"]

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Begin no part that would end too late."""
        minutes: float | None = self._config.getoption("--until-minutes")
        if minutes is None:
            return
        part = part_of(item.nodeid)
        if part not in self._begun:
            usual_s = self._plan["seconds"].get(part, UNKNOWN_S)
            self._begun[part] = time.time() - STARTED + usual_s <= minutes * 60
        if not self._begun[part]:
            pytest.skip(f"left for another run: {part} would end after {minutes:g} minutes")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        """Note the processor time of each phase, of this process and of the programs that it has waited for."""
        report = yield
        spent = os.times()
        total = spent.user + spent.system + spent.children_user + spent.children_system
        report.cpu_s = total - getattr(self, "_total", total)  # type: ignore[attr-defined]  # read by Account
        self._total = total
        return report


class Account:
    """Counts what became of each part, in the process that talks to the user."""

    def __init__(self, config: pytest.Config, plan: Mapping[str, Any]) -> None:
        self._config = config
        self._plan = plan
        self._expected: dict[str, set[str]] = defaultdict(set)
        self._ended: set[str] = set()
        self._failed: set[str] = set()
        self._skipped: set[str] = set()
        self._left: Counter[str] = Counter()
        self._cpu: defaultdict[str, float] = defaultdict(float)
        self._wall: defaultdict[str, float] = defaultdict(float)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell each worker what is taken."""
        node.workerinput["circle"] = dict(self._plan)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Note what workers have collected."""
        self._expect(ids)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note what this process has collected."""
        self._expect(item.nodeid for item in session.items)

    def _expect(self, nodeids: Iterable[str]) -> None:
        for nodeid in nodeids:
            self._expected[part_of(nodeid)].add(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up a phase of a test."""
        self._cpu[report.nodeid] += getattr(report, "cpu_s", 0.0)
        self._wall[part_of(report.nodeid)] += report.duration
        if report.outcome == "failed":
            self._failed.add(report.nodeid)
        if report.outcome == "skipped":
            self._skipped.add(report.nodeid)
            if "left for another run" in str(report.longrepr):
                self._left[part_of(report.nodeid)] += 1
        if report.when == "teardown":
            self._ended.add(report.nodeid)

    def runs(self, commit: str, before: Mapping[str, records.Run]) -> dict[str, records.Run]:
        """Return a record of each part that was run as a whole."""
        runs = {}
        files = {argument for argument in self._config.args if argument.endswith(".py")}
        for part, expected in self._expected.items():
            is_narrow = bool(files) and part not in files  # single files of a folder are not the folder
            if is_narrow or not expected <= self._ended or expected <= self._skipped:
                continue
            failed = tuple(sorted(expected & self._failed))
            run = records.Run(commit, records.now(), round(self._wall[part], 1), failed)
            earlier = before.get(part)
            if earlier and earlier.commit == commit:
                run = replace(run, unsteady=earlier.unsteady or bool(earlier.failed) != bool(failed))
            runs[part] = run
        return runs

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        """Remember what ran, and say what was slow and what was left out."""
        if self._config.getoption("--changed") and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.OK  # nothing changed, and all has run lately
        yield
        is_narrow = any(self._config.getoption(name, None) for name in NARROWING) or any(
            "::" in argument for argument in self._config.args
        )
        if hasattr(self._config, "workerinput") or is_narrow or self._config.option.collectonly:
            return
        commit = commit_of(ROOT)
        file = ROOT / records.LAST_FULL
        runs: dict[str, records.Run] = {}
        if self._config.getoption("--all"):
            runs = self.runs(commit, records.read_runs(file))
            records.write_runs(file, runs, commit)
        elif not self._config.getoption("--core"):
            runs = self.runs(commit, records.read_runs(records.cache_file()))
            records.write_runs(records.cache_file(), runs, commit)
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        for line in self._closing_lines(runs):
            if reporter is not None:
                reporter.write_line(line)

    def _closing_lines(self, runs: Mapping[str, records.Run]) -> Iterator[str]:
        by_time = sorted(self._cpu.items(), key=lambda item: -item[1])
        slowest = [(nodeid, cpu) for nodeid, cpu in by_time[:SLOWEST] if cpu >= 1]
        if slowest:
            yield f"the {len(slowest)} tests that took most processor time (seconds, programs included):"
        for nodeid, cpu in slowest:
            is_heavy = nodeid.startswith("tests/unit/") and cpu > UNIT_CPU_S
            yield f"{cpu:8.1f}  {nodeid}{'  more than a unit test may take' if is_heavy else ''}"
        if self._config.getoption("--all"):
            yield from _table(runs)
        if self._plan["why"]:
            yield self._plan["why"]
        if self._left:
            yield f"left out for time: {', '.join(sorted(self._left))}"


def _table(runs: Mapping[str, records.Run]) -> Iterator[str]:
    """Return a line for each part that ran: when, how long, how it ended."""
    for part, run in sorted(runs.items()):
        ended = f"{len(run.failed)} failed" if run.failed else "passed"
        yield f"{run.at}  {run.seconds:7.0f} s  {ended}{', unsteady' if run.unsteady else ''}  {part}"


class ByScope(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives each worker a scope at a time, in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByScope:
    """Share the tests out by what they have in common, in their order."""
    config.option.loadscopereorder = False
    return ByScope(config, log)
