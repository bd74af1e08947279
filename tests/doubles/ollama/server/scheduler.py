"""Which models are loaded, and who waits for one."""

from __future__ import annotations

import contextlib
import math
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.doubles.ollama.server.errors import ClientGone, Refused
from tests.doubles.ollama.server.golang import now_text
from tests.doubles.ollama.server.models import Model
from tests.doubles.ollama.server.settings import FOREVER, Settings

LONGEST_WAIT = 900.0


class Waiting:
    """A request that waits: whether its client still does, and what is due when it ends."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._until = time.monotonic() + LONGEST_WAIT
        self.at_end: list[Callable[[], None]] = []

    def check(self) -> None:
        """Raise if the client is gone or if it has waited for longer than anything takes."""
        if time.monotonic() > self._until:
            raise ClientGone
        try:
            readable, _, _ = select.select([self._connection], [], [], 0)
            if readable and not self._connection.recv(1, socket.MSG_PEEK):
                raise ClientGone
        except (OSError, ValueError) as error:
            raise ClientGone from error

    def sleep(self, seconds: float) -> None:
        """Sleep, but no longer than the client waits."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.check()
            time.sleep(min(left, 0.1))

    def end(self) -> None:
        """Do what is due, last first."""
        while self.at_end:
            self.at_end.pop()()


@dataclass
class Runner:
    """A loaded model."""

    model: Model
    context: int
    explicit: bool
    slots: threading.BoundedSemaphore
    stays: float
    loading: bool = True
    users: int = 0
    expires: float = math.inf


class Scheduler:
    """Who is loaded, and who waits for being so (server/sched.go)."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._changed = threading.Condition()
        self._loaded: dict[str, Runner] = {}
        self._pending: deque[object] = deque()

    def runner(self, model: Model, asked_context: int | None, keep: float | None, waiting: Waiting) -> Runner:
        """The model, loaded; it stays so until ``waiting`` ends, and then for as long as it is to be kept."""
        key = model.gguf.path.name
        with self._changed:
            runner = self._ready(key, asked_context, waiting) or self._scheduled(key, model, asked_context, waiting)
            runner.users += 1
            runner.stays = runner.stays if keep is None else keep
            waiting.at_end.append(lambda: self._release(key, runner))
        if runner.loading and runner.users == 1:
            self._load(runner, waiting)
        return runner

    @contextlib.contextmanager
    def slot(self, runner: Runner, waiting: Waiting) -> Iterator[None]:
        """One of the model's turns to compute.

        llm/llama_server.go:1536: whoever waits here for a loaded model is counted by nothing: OLLAMA_MAX_QUEUE does
        not bound it, and no 503 comes.
        """
        while not runner.slots.acquire(timeout=0.05):
            waiting.check()
        try:
            yield
        finally:
            runner.slots.release()

    def expire(self, model: Model) -> None:
        """Unload as soon as nobody uses it."""
        with self._changed:
            runner = self._loaded.get(model.gguf.path.name)
            if runner:
                runner.stays, runner.expires = 0.0, 0.0
                self._purge()

    def loaded(self) -> list[dict[str, Any]]:
        """What ``/api/ps`` tells, the longest to stay first."""
        with self._changed:
            self._purge()
            runners = list(self._loaded.values())
        runners.sort(key=lambda runner: -_left(runner))
        return [_shown(runner, self._settings.vram_share) for runner in runners]

    def _ready(self, key: str, context: int | None, waiting: Waiting) -> Runner | None:
        """The loaded one; who comes while it loads waits for it here, counted by nothing either (sched.go:1381)."""
        self._purge()
        while (runner := self._loaded.get(key)) and runner.loading:
            self._wait(waiting)
        return runner if runner and not _outdated(runner, context) else None

    def _scheduled(self, key: str, model: Model, context: int | None, waiting: Waiting) -> Runner:
        # server/sched.go:204: one request is being scheduled, OLLAMA_MAX_QUEUE more wait, the next is told 503.
        if len(self._pending) > self._settings.most_waiting:
            raise Refused(503, "server busy, please try again.  maximum pending requests exceeded")
        ticket = object()
        self._pending.append(ticket)
        try:
            while self._pending[0] is not ticket:
                self._wait(waiting)
            return self._placed(key, model, context, waiting)
        finally:
            self._pending.remove(ticket)
            self._changed.notify_all()

    def _placed(self, key: str, model: Model, context: int | None, waiting: Waiting) -> Runner:
        while True:
            self._purge()
            runner = self._ready(key, context, waiting)
            if runner:
                return runner
            old = self._loaded.get(key)
            if not old and len(self._loaded) < self._settings.most_loaded:
                break
            # server/sched.go:1664: the idle one that is the first to go, else the first to go: its answers end before.
            old = old or min(self._loaded.values(), key=lambda one: (one.users > 0, one.stays))
            old.stays, old.expires = 0.0, 0.0
            self._purge()
            if old in self._loaded.values():
                self._wait(waiting)
        trained = int(model.gguf.own("context_length") or 0)
        size = max(context or self._settings.context, 4)
        places = self._settings.parallel if "completion" in model.capabilities() else 1
        slots = threading.BoundedSemaphore(places)
        effective = min(size, trained) if trained else size
        runner = Runner(model, effective, context is not None, slots, self._settings.keep_alive)
        self._loaded[key] = runner
        return runner

    def _load(self, runner: Runner, waiting: Waiting) -> None:
        try:
            waiting.sleep(self._settings.load_s)
        finally:
            with self._changed:
                runner.loading = False
                self._changed.notify_all()

    def _release(self, key: str, runner: Runner) -> None:
        with self._changed:
            runner.users -= 1
            if runner.users <= 0:
                runner.expires = time.monotonic() + runner.stays
            if self._loaded.get(key) is runner:
                self._purge()
            self._changed.notify_all()

    def _purge(self) -> None:
        now = time.monotonic()
        for key, runner in list(self._loaded.items()):
            if runner.users <= 0 and runner.expires <= now:
                del self._loaded[key]
                self._changed.notify_all()

    def _wait(self, waiting: Waiting) -> None:
        self._changed.wait(0.05)
        waiting.check()
        self._purge()


def _outdated(runner: Runner, context: int | None) -> bool:
    """Whether a request's options need it loaded anew (sched.go:1381, needsReload): another num_ctx does."""
    if context is None:
        return runner.explicit
    trained = int(runner.model.gguf.own("context_length") or 0)
    return runner.context != (min(context, trained) if trained else context)


def _left(runner: Runner) -> float:
    return runner.stays if runner.users else runner.expires - time.monotonic()


def _shown(runner: Runner, share: float) -> dict[str, Any]:
    model = runner.model
    return {
        "name": model.name.shortest,
        "model": model.name.shortest,
        "size": model.size,
        "digest": model.manifest.digest,
        "expires_at": now_text(min(_left(runner), FOREVER)),
        "size_vram": int(model.size * share),
        "context_length": runner.context,
    }
