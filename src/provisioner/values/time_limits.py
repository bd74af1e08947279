"""An end for work that waits for others in steps of its own: a server that sends a byte a second keeps within each."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


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
