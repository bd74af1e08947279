"""The end of every wait for a host or a container, and the most that is taken from one."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")

OUTPUT_BYTES = 16 * 2**20
"""A command's output and its errors may each have so many bytes, unless the caller asks for more."""
TASK_OUTPUT_BYTES = 64 * 2**20
"""The same for a task of Ansible: a build that says much is no attack."""
FILE_BYTES = 2**40
"""The most that is taken of a file or of an artifact's content, which is streamed to a disk."""
COMMAND_S = 600.0
"""How long a command in a container may take, unless the caller says otherwise."""
LONGEST_S = 24 * 3600.0
"""What builds, copies or transfers has an end, too; nothing that we do takes so long."""
SILENCE_S = 300.0
"""How long a host may be silent while a file comes or goes."""
KILL_S = 10.0
"""How long it may take to kill what ran too long: a container may answer nothing at all."""


def killed_after(seconds: float) -> str:
    """What an error says of a command that took too long."""
    return f"It was killed after {seconds:.0f} s."


def cut_at(limit: int) -> str:
    """What an error says of a command that wrote too much."""
    return f"It wrote more than {limit / 2**20:g} MiB, which is all that is taken from it; it was killed."


def within(seconds: float, work: Callable[[], _T]) -> _T:
    """What ``work`` returns or raises; ``TimeoutError`` after so many seconds, and nobody waits for it any more.

    The work goes on in a thread of its own until its own limits end it; the end of the program does not wait for it.
    """
    ended: queue.SimpleQueue[tuple[_T | None, BaseException | None]] = queue.SimpleQueue()

    def worked() -> None:
        try:
            ended.put((work(), None))
        except BaseException as error:  # noqa: BLE001  # raised again where it is waited for
            ended.put((None, error))

    threading.Thread(target=worked, daemon=True).start()
    try:
        result, error = ended.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"it does not come within {seconds:g} seconds") from None
    if error is not None:
        raise error
    return result  # type: ignore[return-value]  # None only where that is what the work returns
