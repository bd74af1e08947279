"""How far a build is: read from the end of its log while it goes on, told when it changes, and never after it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from provisioner.hosts.fake import Container, FakeProvider
from provisioner.reconcile import artifacts
from provisioner.reconcile.artifacts import (
    END_BYTES,
    LONGEST_PAUSE_S,
    Count,
    Watching,
    ensure_artifacts,
    last_count,
    pause_after,
)
from provisioner.reconcile.runner import PlaybookResult, TaskEvent
from provisioner.values.errors import ProviderError, UnavailableError
from provisioner.values.events import ApplyComplete, ApplyProgress, Diagnostic, Event
from provisioner.values.state import Artifact, Execution, Instance
from tests.waiting import PATIENCE_S, wait_until

LOG = "/var/log/build.log"
BUILT = Artifact(
    "llama_cpp", "box", "a" * 64, "llama_cpp", "/opt/llama_cpp", "debian/12", log=LOG, mounted_at="/opt/llama_cpp/aa"
)
OTHER = replace(BUILT, name="whisper", digest="b" * 64)
COMPILE = "build | Compile"
TIMEOUT_S = 20.0

ON_A_TERMINAL = (
    b"\r[0/3] Building a\x1b[K\r[1/3] Building a\x1b[K\r\nsaid\r\n\r[1/3] Building b\x1b[K\r[2/3] Building b\x1b[K"
)


@pytest.mark.parametrize(
    ("end", "count"),
    [
        (b"[1/4] Building a\n[2/4] Building b\n", Count(2, 4)),
        (ON_A_TERMINAL, Count(2, 3)),
        (b"[1/3] Building a\nsaid by a [9/9]\n", Count(1, 3)),
        (
            b"ninja: Entering directory `build'\n[120/222] Building CXX object x\nx.cpp:3:1: warning: \xff [-W]\n",
            Count(120, 222),
        ),
        (b"[0/1] Re-running CMake...\n", Count(0, 1)),
        (b"[1/2] Building a\n[2/", Count(1, 2)),
        (b"[2/4] Building a\n[5/3] [0/0] nonsense\n[0/0] none\n", Count(2, 4)),
        (b"ninja: no work to do.\n", None),
        (b"[ 12%] Building a\n", None),
        (b"", None),
    ],
)
def test_the_last_whole_status_counts(end: bytes, count: Count | None) -> None:
    assert last_count(end) == count


def test_a_line_whose_beginning_was_cut_off_is_none() -> None:
    cut = b"[7/9]" + b"x" * (END_BYTES - 5)
    assert last_count(cut) is None
    assert last_count(cut[:-1]) == Count(7, 9), "all of a log begins with a whole line"


def test_a_host_on_which_a_look_takes_long_is_asked_less_often() -> None:
    assert pause_after(0.0001) == artifacts.PERIOD_S
    assert pause_after(1.0) == 10.0
    assert pause_after(60.0) == LONGEST_PAUSE_S


class Box(FakeProvider):
    """A host that counts who looks, and fails them as ``errors`` says, one after another."""

    def __init__(self) -> None:
        super().__init__("box")
        self.errors: list[ProviderError | UnavailableError] = []
        self.looks = 0
        self.is_held = False
        self.stuck, self.released = threading.Event(), threading.Event()

    def execute(self, name: str, command: Sequence[str], **options: Any) -> Execution:
        """Count the look, wait while it is held, fail or answer."""
        self.looks += 1
        if self.is_held:
            self.stuck.set()
            assert self.released.wait(TIMEOUT_S)
        if self.errors:
            raise self.errors.pop(0)
        return super().execute(name, command, **options)

    def hold(self) -> None:
        """Let no look end any more."""
        self.is_held = True

    def release(self) -> None:
        """Let looks end again."""
        self.is_held = False
        self.released.set()

    def written(self, artifact: Artifact, text: str) -> None:
        """Have the log of a build end like this."""
        self.containers[artifact.builder].files[artifact.log] = text.encode()

    def looked(self, more: int = 2) -> None:
        """Return when as many looks have begun as this, so that all but the last of them have ended."""
        goal = self.looks + more
        wait_until(lambda: self.looks >= goal)


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "PERIOD_S", 0.01)


@pytest.fixture
def box() -> Iterator[Box]:
    made = Box()
    yield made
    assert not watchers(), "a watcher has outlived its build"


def watchers() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("watch ")]


@dataclass
class Build:
    """Stands for ansible-runner: does what a test says while the builders run."""

    script: Callable[[Build], None]
    events: list[Event] = field(default_factory=list)
    on_task: Callable[[TaskEvent], None] = lambda _event: None
    failures: tuple[TaskEvent, ...] = ()

    def __call__(
        self, playbook: str, inventory: str, *, on_task: Callable[[TaskEvent], None], secrets: Sequence[object] = ()
    ) -> PlaybookResult:
        """Run the script."""
        assert (playbook, secrets) == ("artifacts.yml", ())
        assert inventory
        self.on_task = on_task
        self.script(self)
        return PlaybookResult(2 if self.failures else 0, self.failures)

    def task(self, name: str, artifact: Artifact = BUILT, status: str = "start", message: str = "") -> None:
        """Ansible says this of a task."""
        self.on_task(TaskEvent(status, artifact.builder, "llama_cpp", name, message))

    def run(self, box: Box, cache: Path, *artifacts: Artifact) -> list[Event]:
        """All events of the build."""
        ensure_artifacts(
            artifacts or (BUILT,), {"box": box}, "lab", run_playbook=self, emit=self.events.append, cache=cache
        )
        return self.events

    def has_told(self, message: str) -> bool:
        """Whether this has been told."""
        return any(isinstance(one, ApplyProgress) and one.message == message for one in self.events)


def counts(events: Sequence[Event]) -> list[tuple[str, str]]:
    return [(one.target, one.message) for one in events if isinstance(one, ApplyProgress) and one.goes_on]


def warnings(events: Sequence[Event]) -> list[Diagnostic]:
    return [one for one in events if isinstance(one, Diagnostic)]


def test_each_new_count_is_told_once_with_its_task(box: Box, tmp_path: Path) -> None:
    def script(build: Build) -> None:
        build.task(COMPILE)
        box.looked()
        for done in (1, 120):
            box.written(BUILT, f"[{done}/222] Building CXX object x\n")
            wait_until(lambda: build.has_told(f"{COMPILE}: {done} of 222"))  # noqa: B023  # called before it changes
            box.looked(4)
        box.written(BUILT, "[120/222] Building CXX object x\n" + "a warning\n" * END_BYTES)
        box.looked(4)
        box.written(BUILT, "[120/222] Building CXX object x\n")
        box.looked(4)

    events = Build(script).run(box, tmp_path)
    assert counts(events) == [("llama_cpp", f"{COMPILE}: 1 of 222"), ("llama_cpp", f"{COMPILE}: 120 of 222")]
    assert warnings(events) == []
    assert isinstance(events[-1], ApplyComplete)


def test_what_the_task_before_has_written_is_not_this_ones(box: Box, tmp_path: Path) -> None:
    def script(build: Build) -> None:
        build.task(COMPILE)
        box.looked()
        box.written(BUILT, "[221/222] Building CXX object x\n")
        wait_until(lambda: build.has_told(f"{COMPILE}: 221 of 222"))
        box.written(BUILT, "[222/222] Linking\n")
        build.task(COMPILE, status="ok")
        build.task("build | Install")
        box.looked(4)

    told = counts(Build(script).run(box, tmp_path))
    assert set(told) <= {("llama_cpp", f"{COMPILE}: {done} of 222") for done in (221, 222)}


def test_a_look_that_a_new_task_overtakes_is_not_told(box: Box, tmp_path: Path) -> None:
    def script(build: Build) -> None:
        build.task(COMPILE)
        box.looked()
        box.written(BUILT, "[1/222] Building CXX object x\n")
        wait_until(lambda: build.has_told(f"{COMPILE}: 1 of 222"))
        box.hold()
        wait_until(box.stuck.is_set)
        box.written(BUILT, "[2/222] Building CXX object x\n")
        build.task("build | Install")
        box.release()
        box.looked(4)

    assert counts(Build(script).run(box, tmp_path)) == [("llama_cpp", f"{COMPILE}: 1 of 222")]


def test_nobody_looks_while_no_task_runs_or_where_no_log_is_named(box: Box, tmp_path: Path) -> None:
    silent = replace(OTHER, log="")

    def script(build: Build) -> None:
        assert watchers() == [f"watch {BUILT.builder}"]
        build.task(COMPILE, silent)
        time.sleep(0.1)

    Build(script).run(box, tmp_path, BUILT, silent)
    assert box.looks == 0


def test_two_builds_have_their_own_counts(box: Box, tmp_path: Path) -> None:
    def script(build: Build) -> None:
        for one in (BUILT, OTHER):
            build.task(COMPILE, one)
        box.looked(4)
        for done, one in ((3, BUILT), (5, OTHER)):
            box.written(one, f"[{done}/9] Building\n")
        wait_until(lambda: len(counts(build.events)) == 2)

    told = counts(Build(script).run(box, tmp_path, BUILT, OTHER))
    assert sorted(told) == [("llama_cpp", f"{COMPILE}: 3 of 9"), ("whisper", f"{COMPILE}: 5 of 9")]


def test_what_a_task_tells_itself_goes_on_and_a_try_that_failed_is_silent(box: Box, tmp_path: Path) -> None:
    def script(build: Build) -> None:
        build.task("Download")
        build.task("Download", status="retry")
        build.task("Download", status="retry", message="1 of 2 GB have come")
        build.task("Download", status="ok")

    told = [one for one in Build(script).run(box, tmp_path) if isinstance(one, ApplyProgress)]
    assert told[:3] == [
        ApplyProgress("llama_cpp", "Download"),
        ApplyProgress("llama_cpp", "1 of 2 GB have come", goes_on=True),
        ApplyProgress("llama_cpp", ""),
    ]


GONE = ProviderError("Unable to run tail in container x", details="It is not running.")
AWAY = UnavailableError("Unable to reach host box", details="Connection refused")


def test_a_host_that_fails_now_and_then_is_asked_again_in_silence(box: Box, tmp_path: Path) -> None:
    def script(build: Build) -> None:
        box.errors = [GONE, AWAY]
        build.task(COMPILE)
        wait_until(lambda: not box.errors)
        box.looked()
        box.errors = [GONE, AWAY]
        wait_until(lambda: not box.errors)
        box.written(BUILT, "[1/222] Building CXX object x\n")
        wait_until(lambda: build.has_told(f"{COMPILE}: 1 of 222"))

    assert warnings(Build(script).run(box, tmp_path)) == []


def test_a_host_that_goes_on_failing_is_told_of_once_and_asked_again(box: Box, tmp_path: Path) -> None:
    def script(build: Build) -> None:
        box.errors = [GONE] * 9
        build.task(COMPILE)
        wait_until(lambda: not box.errors)
        box.looked()
        box.written(BUILT, "[1/222] Building CXX object x\n")
        wait_until(lambda: build.has_told(f"{COMPILE}: 1 of 222"))

    events = Build(script).run(box, tmp_path)
    assert warnings(events) == [
        Diagnostic(
            "warning",
            "Unable to see how far the build of llama_cpp is; it goes on",
            "Unable to run tail in container x\nIt is not running.",
        )
    ]
    assert isinstance(events[-1], ApplyComplete)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Execution(1, b"", b"tail: error reading '/var/log/build.log': Is a directory\n"), "Is a directory"),
        (Execution(127, b"", b""), "tail ended with 127"),
    ],
)
def test_a_log_that_cannot_be_read_is_told(box: Box, tmp_path: Path, answer: Execution, told: str) -> None:
    def tail(_container: Container, _command: Sequence[str], _stdin: bytes, _env: Mapping[str, str]) -> Execution:
        return answer

    def script(build: Build) -> None:
        build.task(COMPILE)
        wait_until(lambda: bool(warnings(build.events)))

    box.programs["tail"] = tail
    (warning,) = warnings(Build(script).run(box, tmp_path))
    assert (
        warning.details
        == f"Unable to read {LOG} in container {BUILT.builder}\n{answer.stderr.decode().strip() or told}"
    )
    assert told in warning.details


def test_a_log_that_is_not_there_is_no_error(box: Box, tmp_path: Path) -> None:
    def script(build: Build) -> None:
        build.task(COMPILE)
        box.looked(2 * artifacts.PATIENCE)

    events = Build(script).run(box, tmp_path)
    assert (counts(events), warnings(events)) == ([], [])


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ProviderError("no room")])
def test_it_ends_with_a_build_that_breaks_off(box: Box, tmp_path: Path, error: BaseException) -> None:
    def script(build: Build) -> None:
        build.task(COMPILE)
        box.looked()
        raise error

    with pytest.raises(type(error)):
        Build(script).run(box, tmp_path)
    assert not watchers()


def test_it_is_waited_for_and_says_nothing_after_the_end(box: Box) -> None:
    one = Instance(BUILT.builder, "box", "lab", "debian/12")
    box.create(one)
    box.start(one)
    events: list[Event] = []
    with Watching([BUILT], {"box": box}, events.append) as looking:
        looking.go_on(BUILT.builder, COMPILE)
        box.looked()
        box.written(BUILT, "[1/222] Building CXX object x\n")
        wait_until(lambda: len(events) == 1)
        box.hold()
        wait_until(box.stuck.is_set)
        box.written(BUILT, "[2/222] Building CXX object x\n")
        release = threading.Timer(0.2, box.release)
        release.start()
    assert box.released.is_set(), "the context ended before the look had"
    assert not watchers()
    assert [one.message for one in events if isinstance(one, ApplyProgress)] == [f"{COMPILE}: 1 of 222"]
    release.join(PATIENCE_S)


def test_a_container_that_goes_away_with_the_end_is_no_warning(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "PATIENCE", 1)
    events: list[Event] = []
    box.hold()
    with Watching([BUILT], {"box": box}, events.append) as looking:
        looking.go_on(BUILT.builder, COMPILE)
        wait_until(box.stuck.is_set)
        release = threading.Timer(0.2, box.release)
        release.start()
    assert events == []
    release.join(PATIENCE_S)
