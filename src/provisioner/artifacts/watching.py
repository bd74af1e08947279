"""How far builds are: looks at the end of each one's log while Ansible works, and says what has changed.

Ansible tells of a task when it begins and when it has ended: of one that compiles for an hour, that is nothing. A role
whose build writes its steps to a file names it on its page (``artifact.log``).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from types import TracebackType
from typing import Self

from provisioner.providers.base import Provider
from provisioner.values.errors import ProviderError, ProvisionError
from provisioner.values.events import ApplyProgress, Diagnostic, Event
from provisioner.values.plain_data import Foreign
from provisioner.values.state import Artifact

PERIOD_S = 2.0
LONGEST_PAUSE_S = 30.0
REST = 10
"""How many times as long as a look took nobody looks again: on a slow host the build gets the processor, not we."""
LOOK_TIMEOUT_S = 10.0
PATIENCE = 3
"""So many looks in a row have to fail before that is told: a host that is busy for a moment is no news."""
END_BYTES = 4096
"""More than the warnings that a compiler usually writes between two steps."""
_MISSING = b"No such file or directory"
_STATUS = re.compile(rb"(?<=[\r\n])\[(\d{1,9})/(\d{1,9})\]")


@dataclass(frozen=True, slots=True)
class Count:
    """How many of all steps are done."""

    done: int
    total: int

    def __str__(self) -> str:
        return f"{self.done} of {self.total}"


def last_count(end: bytes) -> Count | None:
    """The newest ``[done/total]`` with which ninja begins a line (it ends them with CR or LF); None without one.

    ``end`` is the last ``END_BYTES`` of a log, or all of a shorter one: only then it begins with a whole line.
    """
    text = end if len(end) >= END_BYTES else b"\n" + end
    found = [Count(int(done), int(total)) for done, total in _STATUS.findall(text)]
    return next((one for one in reversed(found) if one.done <= one.total and one.total), None)


def pause_after(took_s: float) -> float:
    """How long nobody looks after a look that took ``took_s``."""
    return min(max(PERIOD_S, REST * took_s), LONGEST_PAUSE_S)


@dataclass
class _Step:
    """A task of a build; ``count`` is what its log said last, also what it said when the task began."""

    task: str
    count: Count | None = None
    is_known: bool = False


class _Watch:
    """One build, looked at until ``ended``."""

    def __init__(
        self, artifact: Artifact, provider: Provider, emit: Callable[[Event], None], ended: threading.Event
    ) -> None:
        self._artifact = artifact
        self._provider = provider
        self._emit = emit
        self._ended = ended
        self._lock = threading.Lock()
        self._step: _Step | None = None

    def go_on(self, task: str) -> None:
        """It does this now; what is read of the task before is not told any more when this has returned."""
        with self._lock:
            self._step = _Step(task) if task else None

    def run(self) -> None:
        """Look again and again; a host that cannot be asked fails no build, and is told of once."""
        failures, is_told, pause_s = 0, False, PERIOD_S
        while not self._ended.wait(pause_s):
            began = monotonic()
            try:
                self._look()
                failures = 0
            except ProvisionError as error:
                failures += 1
                if failures >= PATIENCE and not is_told:
                    is_told = self._complain(error)
            pause_s = pause_after(monotonic() - began)

    def _look(self) -> None:
        step = self._step
        if step is None:
            return
        count = self._read()
        with self._lock:
            if step is not self._step or self._ended.is_set():
                return
            # What stood there when the task began is the end of the one before.
            if step.is_known and count is not None and count != step.count:
                self._emit(ApplyProgress(self._artifact.name, f"{step.task}: {count}", goes_on=True))
            step.count, step.is_known = count or step.count, True

    def _read(self) -> Count | None:
        builder, log = self._artifact.builder, self._artifact.log
        command = ["tail", "-c", str(END_BYTES), "--", log]
        done = self._provider.execute(builder, command, environment={"LC_ALL": "C"}, timeout_s=LOOK_TIMEOUT_S)
        if done.returncode == 0:
            return last_count(done.stdout)
        if _MISSING in done.stderr:
            return None
        details = Foreign.of_output(done.stderr) or f"tail ended with {done.returncode}"
        raise ProviderError(f"Unable to read {log} in container {builder}", details=details)

    def _complain(self, error: ProvisionError) -> bool:
        with self._lock:
            if self._ended.is_set():  # its container goes away now
                return False
            warning = f"Unable to see how far the build of {self._artifact.name} is; it goes on"
            self._emit(Diagnostic("warning", warning, "\n".join(filter(None, (error.message, error.details)))))
            return True


class Watching:
    """A thread for each build that writes a log, while the context lasts; nothing is said after it."""

    def __init__(
        self, artifacts: Sequence[Artifact], providers: Mapping[str, Provider], emit: Callable[[Event], None]
    ) -> None:
        self._ended = threading.Event()
        self._watches = {
            one.builder: _Watch(one, providers[one.host], emit, self._ended) for one in artifacts if one.log
        }
        self._threads = [
            threading.Thread(target=watch.run, name=f"watch {builder}", daemon=True)
            for builder, watch in self._watches.items()
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def go_on(self, builder: str, task: str) -> None:
        """The build in container ``builder`` does ``task`` now; empty: it waits for its next one."""
        if builder in self._watches:
            self._watches[builder].go_on(task)
