"""One context of an engine tried: what its container is asked, and what came of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from provisioner.measuring.depth import PLACES, Heard, doubts, places_in
from provisioner.measuring.engines import WITHOUT, Engine
from provisioner.measuring.search import Contexts
from provisioner.services.base import CONTEXT, ResolvedService, Trial
from provisioner.trial_unit import ANSWERED, NO_ROOM, OUTCOMES

FILLED = 0.95
"""So much of what a request may hold a prompt takes."""
FIRST_TOKEN, LAST_TOKEN = 100, 340
"""Numbers of tokens of which prompts are made: every vocabulary has them, and they end no answer."""
LEAST_LEFT = 128 * 2**20
"""Bytes that its container has to have left beside it: what brings it up and proves it runs there, too."""
DOUBTFUL = "doubtful"
"""It answered, and not to all of its prompt."""
TRYING = "trying"
"""What a container is asked to do, beside a look, a stamp, and what is open."""


@dataclass(frozen=True, slots=True)
class Tried:
    """How one context went: ``answered``, or why not; ``words`` say more."""

    context: int
    outcome: str
    words: str = ""
    load_s: float = 0.0
    took_s: float = 0.0
    memory: int = -1
    """Bytes that its processes took once it had answered, and that its cards had in use; -1 where nobody tells."""
    card: int = -1

    @property
    def is_answered(self) -> bool:
        """Whether an answer came of all of a prompt."""
        return self.outcome == ANSWERED


@dataclass(frozen=True, slots=True)
class Subject(Engine):
    """An engine whose contexts are tried: how, and by which sum of its options results are kept.

    ``start_s``: how long the slowest of its last starts took, 0 where none was measured.
    """

    trial: Trial
    contexts: Contexts
    digest: str
    start_s: float = 0.0
    estimates: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Probed:
    """What was tried of an engine, in its order, and the longest context that answered; 0 where none did."""

    subject: Subject
    tries: tuple[Tried, ...]
    longest: int


def question(service: ResolvedService, trial: Trial, context: int, limits_s: tuple[float, float]) -> dict[str, Any]:
    """What the container is asked; ``limits_s``: seconds for loading, and for each answer."""
    load_s, answer_s = limits_s
    tokens = int(context // trial.requests * FILLED)
    at = "http://127.0.0.1:{port}"
    (model,) = service.model_names
    return {
        "do": TRYING,
        "unit": service.page.unit,
        "without": list(WITHOUT),
        "changes": [[pattern, other.replace(CONTEXT, str(context))] for pattern, other in trial.changes],
        "shows": [trial.word, str(context)],
        "health": f"{at}{service.health}",
        "load_s": load_s,
        "answer_s": answer_s,
        "no_room": list(trial.no_room),
        "placed": trial.placed,
        "ask": {
            "path": trial.path,
            "url": at,
            "key_file": trial.key_file,
            "key_name": trial.key_name,
            "encode": trial.encode,
            "model": model,
            "tokens": tokens,
            "first": FIRST_TOKEN,
            "last": LAST_TOKEN,
            "changed": [None, None, *places_in(tokens).values()],
        },
    }


def outcomes_of(asked: Mapping[str, Any]) -> dict[str, int]:
    """What an answer may say that became of it, and how many prompts were heard then."""
    return {outcome: len(asked["ask"]["changed"]) if outcome == ANSWERED else 0 for outcome in OUTCOMES}


def tried(context: int, asked: Mapping[str, Any], answer: Mapping[str, Any], took_s: float) -> Tried:
    """What came of it, by what the container answered."""
    outcome, words = answer["outcome"], answer["words"]
    if outcome == ANSWERED:
        plain, again, *others = (Heard(one["tokens"], one["following"]) for one in answer["heard"])
        changed = dict(zip(PLACES, others, strict=True))
        found = [*_misplaced(asked, answer["layers"]), *doubts(answer["sent"], plain, again, changed)]
        outcome, words = (DOUBTFUL, "; ".join(found)) if found else _by_what_is_left(answer["left"])
    return Tried(context, outcome, words, float(answer["load_s"]), took_s, answer["memory"], answer["card"])


def _by_what_is_left(left: int) -> tuple[str, str]:
    """Whether its container has room for what looks after it, and what is said where it has not."""
    if 0 <= left < LEAST_LEFT:
        mib = 2**20
        return NO_ROOM, f"it answered and left {left // mib} MiB of memory, where its proof needs {LEAST_LEFT // mib}"
    return ANSWERED, ""


def _misplaced(asked: Mapping[str, Any], layers: Sequence[int]) -> Iterator[str]:
    """What of its layers is not where it belongs: on the card, all of them, where the file asks for no number."""
    there, all_of_them = layers
    if asked["placed"] and (there < all_of_them or not all_of_them):
        yield f"it has {there} of {all_of_them} layers on the card" if all_of_them else "it says nothing of layers"


def foreseen_s(context: int, tries: Iterable[Tried]) -> float:
    """How many seconds a try of that context takes by the longest that answered; 0 where none has yet.

    Its start takes as long again, and its answers longer by what it holds more.
    """
    answered = [one for one in tries if one.is_answered]
    if not answered:
        return 0.0
    longest = max(answered, key=lambda one: one.context)
    asked_s = max(longest.took_s - longest.load_s, 0.0)
    return longest.load_s + asked_s * context / longest.context
