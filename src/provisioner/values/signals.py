"""Signals that arrive as bytes on a descriptor, for what has to wait for them and for other things at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH)


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
