"""Our side of a command that is attached to: descriptors, a terminal made raw and restored, signals as bytes."""

from __future__ import annotations

import os
import signal
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH)


@dataclass(frozen=True)
class Ends:
    """The descriptors of ours that a command's streams are joined to; ``terminal``: stdin and stdout are one."""

    stdin: int
    stdout: int
    stderr: int
    terminal: bool = False

    @property
    def size(self) -> dict[str, int]:
        """The terminal's size, as Incus wants it; nothing where there is no terminal."""
        if not self.terminal:
            return {}
        size = os.get_terminal_size(self.stdout)
        return {"width": size.columns, "height": size.lines}


@contextmanager
def heard_signals() -> Iterator[int | None]:
    """A descriptor on which the numbers of signals arrive instead of interrupting us; None outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield None
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = {one: signal.getsignal(one) for one in HEARD}
    heard = [one for one, handler in before.items() if handler is not signal.SIG_IGN]  # nohup means it
    former = signal.set_wakeup_fd(writing)
    try:
        for one in heard:
            signal.signal(one, lambda _number, _frame: None)
        yield reading
    finally:
        for one in heard:
            signal.signal(one, before[one])
        signal.set_wakeup_fd(former)
        os.close(reading)
        os.close(writing)


@contextmanager
def raw_terminal(ends: Ends) -> Iterator[None]:
    """Every key goes to the container, ctrl-c too; the terminal is as it was afterwards, whatever happens."""
    if not ends.terminal:
        yield
        return
    before = termios.tcgetattr(ends.stdin)
    try:
        tty.setraw(ends.stdin, termios.TCSADRAIN)  # what was typed ahead is kept
        yield
    finally:
        with suppress(termios.error):  # a terminal that is gone needs no restoring
            termios.tcsetattr(ends.stdin, termios.TCSADRAIN, before)
