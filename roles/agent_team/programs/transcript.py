"""One line of JSON for each hand-over between members, secrets masked. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from wire import masked

LONGEST = 2000
"""Characters of a text that a line keeps: the journal takes 48 KiB, and a line is for people."""


@dataclass(frozen=True)
class HandOver:
    """Who gave what to whom; ``step`` counts within one question."""

    step: int
    giver: str
    taker: str
    text: str


def line(question: str, hand_over: HandOver, keys: Sequence[str]) -> str:
    """The line of a hand-over that belongs to the answer with the id ``question``."""
    told = asdict(hand_over)
    text = masked(told.pop("text"), keys)
    cut = len(text) > LONGEST
    told["text"] = text[:LONGEST] + ("…" if cut else "")
    return "transcript " + json.dumps({"question": question, **told}, ensure_ascii=False)


def thought(hand_over: HandOver) -> str:
    """What a client sees of it."""
    return f"{hand_over.giver} → {hand_over.taker}: {' '.join(hand_over.text.split())[:LONGEST]}\n"
