"""Finds the page of a desktop's proof again in a picture, whatever its size there."""

from __future__ import annotations

from typing import Any

from tests.unit.desktop.programs import program

judge = program("judge")
INKED = 0.3
"""The share of a line of the picture that the page has at least."""


def inked(found: Any) -> tuple[int, ...]:
    """The fields of the proof's page in a picture, whatever its size there; none where it is not in it."""
    width, numbers = found.width, found.numbers()
    mask = [judge.is_ink(number) for number in numbers]
    lines = [y for y in range(found.height) if sum(mask[y * width : (y + 1) * width]) > INKED * width]
    if not lines:
        return ()
    top, height = lines[0], lines[-1] + 1 - lines[0]
    part = mask[top * width : (top + height) * width]
    columns = [x for x in range(width) if sum(part[x::width]) > height / 2]
    left, across = columns[0], columns[-1] + 1 - columns[0]
    places = [divmod(place, judge.COLUMNS) for place in range(judge.ROWS * judge.COLUMNS)]
    middles = [
        (top + height * (2 * row + 1) // (2 * judge.ROWS), left + across * (2 * column + 1) // (2 * judge.COLUMNS))
        for row, column in places
    ]
    return tuple(
        int(judge.differs_by(judge.colour_of(numbers[y * width + x]), judge.INK[1]) <= judge.NEAR) for y, x in middles
    )
