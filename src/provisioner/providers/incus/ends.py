"""Our side of a command that is attached to: descriptors, and a terminal made raw and restored."""

from __future__ import annotations

import os
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass


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
