"""Gives a target inputs of one seed and notes what must not be: errors that are not ours, and too much time."""

from __future__ import annotations

import resource
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

from provisioner.values.errors import ProvisionError

BUDGET_S = 4.0
"""CPU seconds of one input; almost all need thousandths of one."""
MEMORY = 1 << 30
"""Bytes of address space beyond those of the begin."""
_SHOWN = 2000


class TimeBudgetError(BaseException):
    """The input took longer than it may; no ``except Exception`` on the way holds it up."""


@dataclass(frozen=True, slots=True)
class Target:
    """Something that reads what comes from outside.

    ``make`` gives one input and ``read`` reads it; ``weight`` is its part of all inputs. ``read`` may raise what
    belongs to ``errors``.
    """

    make: Callable[[Random], Any]
    read: Callable[[Any, Path], object]
    weight: int = 1
    errors: tuple[type[Exception], ...] = (ProvisionError,)


@dataclass(frozen=True, slots=True)
class Failure:
    """An input that broke its target; ``number`` and the seed give it again."""

    target: str
    number: int
    why: str
    given: str


def failures_of(
    name: str, target: Target, folder: Path, *, seed: int, count: int, budget_s: float = BUDGET_S
) -> Iterator[Failure]:
    """What broke of ``count`` inputs, which follow from the seed, the target's name and their number alone."""
    for number in range(count):
        given = target.make(Random(f"{seed} {name} {number}"))  # noqa: S311  # the same at each run
        why = _why(target, given, folder, budget_s)
        if why:
            yield Failure(name, number, why, repr(given)[:_SHOWN])


def _why(target: Target, given: Any, folder: Path, budget_s: float) -> str:
    began = time.process_time()
    try:
        with _limited(budget_s):
            target.read(given, folder)
    except target.errors as error:
        return "" if str(error) else "an error without words"
    except TimeBudgetError:
        return f"not done after {budget_s:g} s:\n{traceback.format_exc(limit=-6)}"
    except Exception:  # noqa: BLE001  # that is what is looked for
        return traceback.format_exc(limit=-6)
    spent = time.process_time() - began
    return f"it took {spent:.1f} s" if spent > budget_s else ""


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    def over(_number: int, _frame: FrameType | None) -> None:
        raise TimeBudgetError

    before = signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def limit_memory(more: int = MEMORY) -> None:
    """Let this process have so many bytes more than now, and no core file."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
