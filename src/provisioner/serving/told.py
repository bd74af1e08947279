"""The answer of an engine's own program, in the place of what was added up. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from provisioner.loads.engines import EngineLoads
from provisioner.loads.terms import Load, needed_bytes

LINE = re.compile(r"(?P<part>model|draft|projector)(?P<sizes>( [0-9]{1,15}){3})")
"""A line of the answer: bytes of weights, of what is kept of tokens, and of what it computes with."""


class OddAnswerError(ValueError):
    """The answer is none; the text says what came."""


def read_answer(text: str) -> dict[str, int]:
    """Return the bytes of each part that lies on the card; raises ``OddAnswerError`` for anything but an answer."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        told = LINE.fullmatch(line)
        if told is None or told["part"] in found:
            raise OddAnswerError(f"it answers {line[:80]!r}")
        sizes = list(map(int, told["sizes"].split()))
        if told["part"] == "model" and not sizes[0]:
            raise OddAnswerError("it has nothing of the model on the card")
        found[told["part"]] = sum(sizes)
    if "model" not in found:
        raise OddAnswerError("it answers nothing")
    return found


def with_answers(
    engine: EngineLoads, answers: Mapping[str, Mapping[str, int]], halves: Mapping[str, Mapping[str, int]]
) -> EngineLoads:
    """Return the engine with what its program has told of each of its loads, by their names.

    ``halves``: the answers for half of the context, where they are needed to know what a token takes. What nobody knew
    is known then, but for what the question leaves open, and what is guessed of images.
    """
    left = engine.question.open if engine.question else ""
    loads = tuple(_with_answer(load, answers[load.name], halves.get(load.name, {})) for load in engine.loads)
    of_models = tuple(f"{name}:" for name in answers)
    unread = tuple(word for word in engine.unread if not word.startswith(of_models))
    return replace(engine, loads=loads, unread=unread, unknown=left, question=None)


def _with_answer(load: Load, told: Mapping[str, int], half: Mapping[str, int]) -> Load:
    """Return the load with what it takes more, or less, than was added up.

    Images are added up of the largest that the engine takes, and the program tells of those for which it makes room at
    its start: whichever is more.
    """
    seeing = load.encoder + load.image_buffer
    more = told["model"] + told.get("draft", 0) - (needed_bytes(load) - seeing)
    each = -((sum(half.values()) - sum(told.values())) // (load.context - load.context // 2)) if half else 0
    return replace(load, told=more + max(told.get("projector", 0) - seeing, 0), told_each=max(each, 0))
