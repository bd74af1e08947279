"""What many clients of a service see at once: how long each waits, how much all of them get, and what of it is good.

Pure. Of all that is got in a second there are as many trials as the time has parts: one number alone tells nobody how
sure it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean

from provisioner.measuring.guidellm import Level, Objective, Request
from provisioner.measuring.history import Result
from provisioner.measuring.history import Setting as Where
from provisioner.measuring.series import SECONDS, Series, Trial

KIND = "load"
PER_S = "tokens/s"
PARTS = 10
"""Of the time of one level: as many trials of what all clients get together."""
LEAST_S = 10.0
"""So long each number of clients asks at least."""


class NoAnswerError(Exception):
    """A level in which nobody was answered; the text says why."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One number of clients, what each of them saw, and how much of it was good."""

    level: Level
    objective: Objective
    waited: float
    """The part of the time in which something of the host waited for a processor, -1 where nobody tells."""

    def __post_init__(self) -> None:
        """Refuse a level in which nobody was answered."""
        if not self.level.requests:
            raise NoAnswerError(f"none of {self.level.clients} clients was answered: {self.level.error or 'in time'}")

    @property
    def good(self) -> int:
        """How many answers came as they should."""
        return sum(one.is_good(self.objective) for one in self.level.requests)

    @property
    def seconds(self) -> float:
        """How long they asked."""
        return self.level.ended_s - self.level.began_s

    @property
    def good_per_s(self) -> float:
        """Answers in a second that came as they should (goodput)."""
        return self.good / self.seconds

    @property
    def until_s(self) -> float:
        """Until when all tokens are known: answers that were not whole at the end are told by nobody."""
        longest = max(one.whole_s for one in self.level.requests)
        return self.level.ended_s - longest if longest < self.seconds / 2 else self.level.ended_s

    @property
    def in_parts(self) -> tuple[float, ...]:
        """Tokens in a second of all clients in each part of the time, as if each answer's came evenly."""
        part_s = (self.until_s - self.level.began_s) / PARTS
        found = []
        for number in range(PARTS):
            low = self.level.began_s + number * part_s
            tokens = 0.0
            for one in self.level.requests:
                tokens += tokens_between(one, low, low + part_s)
            found.append(tokens / part_s)
        return tuple(found)

    def series(self) -> Iterator[Series]:
        """Its figures: of each answer, and of all of them in each part of the time."""
        requests, behind = self.level.requests, f" @ c{self.level.clients}"
        yield Series(f"first token{behind}", SECONDS, self._trials(one.first_s for one in requests))
        streamed = [one for one in requests if one.each_s > 0]
        if streamed:
            yield Series(f"each{behind}", PER_S, self._trials(1 / one.each_s for one in streamed))
        yield Series(f"all{behind}", PER_S, self._trials(self.in_parts))

    def _trials(self, values: Iterable[float]) -> tuple[Trial, ...]:
        return tuple(Trial(value, self.waited) for value in values)

    def result(self, at: str, service: str, where: Where) -> Result:
        """What is kept of it."""
        return Result(at, KIND, service, where, tuple(self.series()))


def options_of(model: str, tokens: tuple[int, int], clients: int) -> dict[str, str]:
    """What decides about figures of so many clients besides the service; ``tokens``: read and written."""
    read, written = tokens
    return {"model": model, "p": str(read), "n": str(written), "c": str(clients)}


def tokens_between(request: Request, low: float, high: float) -> float:
    """How many of its tokens came between two moments, the first one at once and the others evenly."""
    first, last = request.began_s + request.first_s, request.began_s + request.whole_s
    found = 1.0 if low <= first < high else 0.0
    if request.tokens > 1 and last > first:
        share = max(min(last, high) - max(first, low), 0.0) / (last - first)
        found += (request.tokens - 1) * share
    elif low <= first < high:
        found = float(request.tokens)
    return found


def seconds_each(budget_s: float, levels: int) -> float:
    """How long each number of clients asks."""
    return max(budget_s / levels, LEAST_S)


def percentile(values: list[float], part: float) -> float:
    """The value below which that part of them lies, the nearest one that was measured."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]


def figures(judged: Judged) -> Mapping[str, float]:
    """What a table shows of it."""
    requests = judged.level.requests
    firsts = [one.first_s for one in requests]
    return {
        "clients": judged.level.clients,
        "answers": len(requests),
        "failed": judged.level.failed,
        "first": percentile(firsts, 0.5),
        "first_of_most": percentile(firsts, 0.95),
        "each": 1 / percentile([one.each_s for one in requests], 0.5) if any(one.each_s for one in requests) else 0.0,
        "all": fmean(judged.in_parts),
        "good_per_s": judged.good_per_s,
        "good": judged.good / len(requests),
    }
