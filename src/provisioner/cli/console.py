"""The console of a command: text with or without colour and a live display, or the ``--json`` stream."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO

from provisioner.report.style import Style
from provisioner.values.errors import ExitCode, ProvisionError

if TYPE_CHECKING:  # most verbs show no progress, and help says no event
    from provisioner.cli.progress import Pace, Progress
    from provisioner.values.declared import Secret
    from provisioner.values.events import Event, Summary

YES = frozenset({"y", "yes"})
_FALSE = frozenset({"", "0", "false", "f", "no", "n", "off"})


class Console:
    """Prints events, texts and errors for one verb, counts what was done, says it last. Safe in threads."""

    def __init__(
        self, environment: Mapping[str, str] = os.environ, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.json = False
        self.verbose = False
        self.verb = ""
        self._no_color = bool(environment.get("NO_COLOR")) or environment.get("TERM") == "dumb"
        self._environment = environment
        self._clock = clock
        self._started = clock()
        self._lock = threading.RLock()
        self._progress: Progress | None = None
        self._counts: Counter[str] = Counter()
        self._planned: Counter[str] = Counter()
        self._stream_open = False
        self._closed = False
        self.has_begun = False
        """Whether a change of anything has begun."""
        self._hidden: tuple[str, ...] = ()

    @cached_property
    def _pace(self) -> Pace:
        from provisioner.cli.progress import Pace  # only the stream of lines is slowed down

        return Pace(self._clock)

    def expect(self, arguments: Sequence[str]) -> None:
        """Learn the form of the answer before the arguments are understood: a usage error is told in it, too."""
        self.json = "--json" in arguments or self._environment.get("PROVISION_JSON", "").lower() not in _FALSE

    def configure(self, *, verb: str, json: bool, no_color: bool, verbose: bool) -> None:
        """Take the verb's common options."""
        self.verb, self.json, self.verbose = verb, json, verbose
        self._no_color = self._no_color or no_color

    def hide(self, secrets: Iterable[Secret]) -> None:
        """Never print these values, nor those of before, whoever says them: the last line of defence, not the first."""
        from provisioner.values.declared import hidden_forms

        self._hidden = tuple(sorted({*self._hidden, *hidden_forms(secrets)}, key=len, reverse=True))

    @property
    def style(self) -> Style:
        """The colours of standard output."""
        return self._style(sys.stdout)

    def emit(self, event: Event) -> None:
        """Say one event in the form that was asked for."""
        from provisioner.report import messages
        from provisioner.values.events import (
            ApplyComplete,
            ApplyErrored,
            ApplyProgress,
            ApplyStart,
            Check,
            Diagnostic,
        )

        with self._lock:
            if self._closed:  # a host that goes on talking has nobody to talk to, and no display comes back for it
                return
            self.has_begun = self.has_begun or isinstance(event, ApplyStart)
            if isinstance(event, ApplyComplete):
                self._counts[event.action] += 1
            if self.json:
                if self._pace.is_due(event):
                    self._line_of(event)
            elif isinstance(event, ApplyStart | ApplyProgress | ApplyComplete | ApplyErrored):
                self._progress = self._progress or self._new_progress()
                self._progress.handle(event)
            elif isinstance(event, Check):
                self.stop_progress()  # proofs come when the work is done
                # What failed is told with its details by the finding or the error that follows.
                if event.ok or event.not_asked:
                    self.say(messages.check_text(event, self.style))
            elif isinstance(event, Diagnostic) and (self.verbose or event.severity != "detail"):
                self._write(messages.diagnostic_text(event, self._style(sys.stderr)), sys.stderr)

    def _line_of(self, event: Event) -> None:
        from provisioner.report import messages

        self._line(messages.event_line(event))

    def say(self, text: str) -> None:
        """Text for people; nothing with ``--json``, whose reader has the same as events."""
        if not self.json and text:
            self._write(text, sys.stdout)

    def result(self, text: str, **content: Any) -> None:
        """The answer of a verb that only answers: the text, or one ``result`` line with ``content``."""
        if self.json:
            from provisioner.report import messages

            self._line(messages.json_line("result", content))
        else:
            self.say(text)

    def line(self, kind: str, content: object) -> None:
        """One line of the stream that is no event (a mapping or a dataclass); nothing without ``--json``."""
        if self.json:
            from provisioner.report import messages

            self._line(messages.json_line(kind, messages.plain_value(content)))

    def count_planned(self, actions: Iterable[str]) -> None:
        """Have the stream's summary count what a verb only planned; people have read it in the plan itself."""
        self._planned.update(actions)

    @property
    def can_ask(self) -> bool:
        """Return whether standard input is a terminal, and the output is for people."""
        return sys.stdin.isatty() and not self.json

    def ask(self, question: str) -> str:
        """Ask, and return the line that was typed; an empty one when the input ends."""
        self._write(question, sys.stdout, end="")
        return sys.stdin.readline().strip()

    def agrees(self, question: str) -> bool:
        """Ask, and return whether the answer was yes."""
        return self.ask(question).lower() in YES

    def draw(self, text: str) -> None:
        """Text that steers the terminal, written at once and without the end of a line."""
        self._write(text, sys.stdout, end="", steers=True)

    def fail(self, error: ProvisionError, code: ExitCode | None = None) -> int:
        """Say the error and give its exit code."""
        from provisioner.report import messages

        self.stop_progress()
        self.emit(messages.error_diagnostic(error))
        return int(error.exit_code if code is None else code)

    def refuse_empty(self, help_text: str) -> int:
        """A command without a verb: its help, as a usage error."""
        if self.json:
            return self.fail(ProvisionError("No verb was given", resolution="Run: provision --help"), ExitCode.USAGE)
        self._write(help_text, sys.stderr)
        return int(ExitCode.USAGE)

    def stop_progress(self) -> None:
        """End the live display, so that what follows stands below it."""
        with self._lock:
            progress, self._progress = self._progress, None
        if progress is not None:
            progress.close()

    def close(self, code: int) -> int:
        """Say how it ended, once, and give ``code`` back; help and the version are no runs and have no last line."""
        if not self.verb and not code:
            return code
        self.stop_progress()
        self._closed = True
        if self.json:
            self._line_of(self._summary(code, self._counts + self._planned))
        elif self._counts:  # people are told nothing of a run that did nothing
            from provisioner.report import messages

            self.say(messages.summary_text(self._summary(code, self._counts), self.style))
        _flush_quietly(sys.stdout)
        _flush_quietly(sys.stderr)
        return code

    def _summary(self, code: int, counts: Mapping[str, int]) -> Summary:
        from provisioner.values.events import Summary

        return Summary(self.verb, code, dict(counts), round(self._clock() - self._started, 3))

    def _new_progress(self) -> Progress:
        if sys.stdout.isatty() and self._environment.get("TERM") != "dumb" and not self.verbose:
            from provisioner.cli.live import LiveProgress

            return LiveProgress(color=self.style.color, clock=self._clock)
        from provisioner.cli.progress import THRESHOLD_S, PlainProgress

        return PlainProgress(
            lambda text: self._write(text, sys.stdout),
            self.style,
            self._clock,
            threshold_s=0.0 if self.verbose else THRESHOLD_S,
            lock=self._lock,
        )

    def _style(self, stream: TextIO) -> Style:
        return Style(color=stream.isatty() and not self._no_color)

    def _line(self, text: str) -> None:
        from provisioner.report import messages

        if not self._stream_open:
            self._stream_open = True
            self._write(messages.version_line(), sys.stdout)
        self._write(text, sys.stdout)

    def _write(self, text: str, stream: TextIO, end: str = "\n", *, steers: bool = False) -> None:
        if self._hidden:
            from provisioner.values.declared import MASK

            for value in self._hidden:
                text = text.replace(value, MASK)
        if not steers:  # whatever others chose of it
            text = self._style(stream).harmless(text)
        with self._lock:
            if self._progress is not None and self._progress.print_above(text):
                return
            try:
                stream.write(_encodable(text, stream) + end)
                stream.flush()
            except BrokenPipeError:
                _give_up(stream)


def _encodable(text: str, stream: TextIO) -> str:
    """A terminal in the C locale gets escapes instead of an exception."""
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _give_up(stream: TextIO) -> None:
    """Nobody reads any more (``| head``): work goes on in silence, a change is never left half made for that."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _flush_quietly(stream: TextIO) -> None:
    try:
        stream.flush()
    except BrokenPipeError:
        _give_up(stream)
