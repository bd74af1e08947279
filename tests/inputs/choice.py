"""The pytest plugin that leaves out what need not run again, remembers what passed, and says so in its last line.

``--changed-only`` leaves out the files of ``tests/unit`` and ``tests/integration`` whose inputs are those with which
they passed less than a day ago; where the environment has ``CI``, it leaves out nothing. ``--go-on`` leaves out what
passed with ``--all`` on its present inputs since the round began (see ``rounds``); ``--shard K/N`` takes the K-th of N
parts of all tests.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

import pytest

from provisioner.values import paths
from tests.inputs import recording, rounds
from tests.inputs.digests import Digests
from tests.inputs.parts import FOLLOWED, all_parts, part_of, scenario_of, shard_of
from tests.inputs.passing import Passing, when
from tests.inputs.records import Pass, read_record, write_pass

DAY_S = 24 * 3600.0
NARROWING = ("keyword", "markexpr", "deselect", "lf", "stepwise")
"""Options of pytest that take some tests of a file only: such a run proves nothing about the file."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """What a run leaves out."""
    group = parser.getgroup("provisioner")
    group.addoption("--changed-only", action="store_true", help="leave out what passed on the same inputs today")
    group.addoption("--go-on", action="store_true", help="with --all: leave out what has passed since the round began")
    group.addoption("--shard", metavar="K/N", type=rounds.shard, help="run the K-th of N parts of all tests")
    group.addoption("--record-inputs", metavar="FOLDER", type=Path, help="note which files of the checkout are read")


def leaves_out(config: pytest.Config) -> bool:
    """Whether the run leaves out what has passed on the same inputs today: nothing is where CI is set."""
    return bool(config.getoption("--changed-only")) and not os.environ.get("CI")


def records_folder() -> Path:
    """Where passes are remembered."""
    return paths.cache() / "passed"


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Decide what is left out, once for all workers."""
    if config.getoption("--record-inputs"):
        config.pluginmanager.register(recording.Recorder(config.rootpath, config.getoption("--record-inputs")))
    worker_input = getattr(config, "workerinput", None)
    if worker_input is not None:
        config.pluginmanager.register(LeavingOut(config.rootpath, worker_input.get("left_out", ())))
        return
    choice = Choice(config)
    config.pluginmanager.register(choice)
    config.pluginmanager.register(LeavingOut(config.rootpath, choice.left_out))


class LeavingOut:
    """Keeps parts out of the collection, in each process that collects."""

    def __init__(self, root: Path, left_out: Iterable[str]) -> None:
        self._left_out = frozenset(left_out)
        self._files = frozenset(root / part for part in self._left_out if not scenario_of(part))

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Do not even import them."""
        return True if collection_path in self._files else None

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Scenarios share a file with each other."""
        kept = [item for item in items if part_of(item.nodeid) not in self._left_out]
        left_out = [item for item in items if part_of(item.nodeid) in self._left_out]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = kept


class Choice:
    """What this run leaves out, and what of the rest passes; lives in the process that talks to the user."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._everything = bool(config.getoption("--all"))
        self._goes_on = bool(config.getoption("--go-on"))
        self._folder = records_folder()
        self._before: dict[str, str] = {}
        self._passing = Passing()
        self._unchanged: dict[str, Pass] = {}
        self._done: dict[str, Pass] = {}
        self._others: set[str] = set()
        if self._goes_on and not self._everything:
            raise pytest.UsageError("--go-on belongs to --all")
        if leaves_out(config):
            self._unchanged = self._passed_today()
        if config.getoption("--shard"):
            parts = self._parts()
            self._others = set(parts) - set(shard_of(parts, *config.getoption("--shard")))
        if self._goes_on:
            self._done = self._passed_since(rounds.began(self._folder))

    @cached_property
    def _digests(self) -> Digests:
        return Digests(self._config.rootpath, self._folder)

    @property
    def left_out(self) -> list[str]:
        """The parts that are not collected."""
        return sorted({*self._unchanged, *self._others, *self._done})

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: object) -> None:
        """Tell each worker: they have to collect the same."""
        node.workerinput["left_out"] = self.left_out  # type: ignore[attr-defined]  # xdist has no types

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Workers have collected."""
        self._collected(ids)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """This process has."""
        self._collected([item.nodeid for item in session.items])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count."""
        self._passing.report(report.nodeid, report.when, report.outcome)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Iterator[None]:
        """Remember what passed and say, below pytest's own last line, what did not run."""
        yield
        if hasattr(self._config, "workerinput"):
            return
        self._remember()
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        for line in self._closing_lines():
            if reporter is not None:
                reporter.write_line(line)

    def _collected(self, ids: list[str]) -> None:
        if any(self._config.getoption(name, None) for name in NARROWING):
            return
        narrowed = self._narrowed()
        self._passing.expect(ids)
        for part in self._passing.parts():
            is_followed = self._goes_on or part.startswith(FOLLOWED)
            if is_followed and part not in self._before and part not in narrowed:
                self._before[part] = self._digests.digest(part)

    def _narrowed(self) -> set[str]:
        """The test files of which single tests were asked for; a scenario is whole by itself."""
        folder, root = self._config.invocation_params.dir, self._config.rootpath.resolve()
        files = set()
        for argument in self._config.args:
            name, _, test = argument.partition("::")
            file = (folder / name).resolve()
            if test and not scenario_of(argument) and file.is_relative_to(root):
                files.add(file.relative_to(root).as_posix())
        return files

    def _remember(self) -> None:
        """Of what passed, if nobody changed its inputs meanwhile; tests may have left the environment changed."""
        now = Digests(self._config.rootpath, self._folder, self._digests.machine)
        for part, (tests, ran) in self._passing.passed().items():
            if part in self._before and now.digest(part) == self._before[part]:
                passed = Pass(self._before[part], time.time(), tests, ran)
                write_pass(self._folder, part, passed, everything=self._everything)
        if self._before:
            now.save()

    def _closing_lines(self) -> Iterator[str]:
        if self._unchanged:
            tests = sum(passed.tests for passed in self._unchanged.values())
            oldest = min(passed.at for passed in self._unchanged.values())
            files = "1 file" if len(self._unchanged) == 1 else f"{len(self._unchanged)} files"
            yield f"{tests} tests of {files} not run: inputs unchanged since {when(oldest)}"
        if self._goes_on:
            yield from rounds.closing_lines(self._folder, self._round_records())

    def _round_records(self) -> dict[str, rounds.Standing]:
        digests = Digests(self._config.rootpath, self._folder, self._digests.machine)
        began = rounds.began(self._folder)
        standings = {}
        for part in self._parts():
            everything = read_record(self._folder, part).everything
            passed = everything is not None and everything.at >= began and everything.digest == digests.digest(part)
            standings[part] = rounds.Standing(everything, passed=passed)
        return standings

    def _passed_today(self) -> dict[str, Pass]:
        found = {}
        for part in self._parts():
            latest = read_record(self._folder, part).latest if part.startswith(FOLLOWED) else None
            if latest is None or latest.at < time.time() - DAY_S or not latest.ran:
                continue
            if latest.digest == self._digests.digest(part):
                found[part] = latest
        self._digests.save()
        return found

    def _passed_since(self, began: float) -> dict[str, Pass]:
        found = {}
        for part in self._parts():
            everything = read_record(self._folder, part).everything
            if everything and everything.at >= began and everything.digest == self._digests.digest(part):
                found[part] = everything
        return found

    def _parts(self) -> list[str]:
        return all_parts(self._digests.tree.files)
