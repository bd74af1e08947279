"""What a picture of an RDP session shows; the rules were tried on screens of every state that they name.

``mate``: both panels are drawn. ``background``: a desktop without panels. ``log``: xrdp's own window that says why
there is no session. ``dialog``: a login window or a message box. ``blank``: one colour, and perhaps a pointer.
``other``: none of these.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from picture import Colour, Picture, colour_of, number_of

STRIP = 24
"""Rows at the top and at the bottom, where panels are."""
FLAT = (0.60, 0.97)
"""The share of a panel's one flat colour; the rest is text and icons, of more than so many colours:"""
DRAWN = 100
HALF = 0.5
SAME = 8
"""By how much two channels differ at most that are the same colour of one theme."""
LOG_COLOURS = 16
ALL = 0.999
"""The share of one colour where nothing is drawn but a pointer."""
DIALOG = 0.99
NEAR = 24
"""By how much a page's colour may differ in a picture that was compressed."""
INK: tuple[Colour, Colour] = ((224, 0, 224), (0, 192, 64))
"""The colours of the page's fields: no theme has them."""
COLUMNS, ROWS = 8, 5
SAMPLED = 61
"""Every so many pixels are looked at before all are."""
COVERED = 0.3
"""The share of the screen that the page has at least."""


@dataclass(frozen=True)
class Strip:
    """The most frequent colour of a part, its share, and how many colours there are."""

    colour: Colour
    share: float
    colours: int


def strip(part: Picture) -> Strip:
    """Count a part of a picture."""
    counted = part.colours()
    colour, count = counted.most_common(1)[0]
    return Strip(colour, count / (part.width * part.height), len(counted))


@lru_cache(maxsize=2)
def kind(picture: Picture) -> str:
    """What the picture shows, by the words of this module; one that is seen again is not counted again."""
    top, bottom, whole = strip(picture.rows(0, STRIP)), strip(picture.rows(-STRIP, 0)), strip(picture)
    if whole.share >= ALL:
        return "blank"
    is_one_theme = differs_by(top.colour, bottom.colour) <= SAME
    if FLAT[0] <= top.share <= FLAT[1] and top.colours > DRAWN and bottom.share >= HALF and is_one_theme:
        return "mate"
    if whole.colours <= LOG_COLOURS and is_empty_but_for_a_corner(picture, whole.colour):
        return "log"
    if top.colours == bottom.colours == 1 and top.colour == bottom.colour and whole.share < DIALOG:
        return "dialog"
    return "background" if whole.colours > DRAWN else "other"


def differs_by(one: Colour, other: Colour) -> int:
    """The largest difference of a channel."""
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


@lru_cache(maxsize=4096)
def is_ink(number: int) -> bool:
    """Whether a pixel has one of the page's colours."""
    return any(differs_by(colour_of(number), ink) <= NEAR for ink in INK)


def is_empty_but_for_a_corner(picture: Picture, colour: Colour) -> bool:
    """Whether everything outside of the upper left quarter (and a little more) has that colour."""
    height, width = picture.height * 55 // 100, picture.width * 45 // 100
    numbers, empty = picture.numbers(), number_of(colour)
    beside = Counter[int]()
    for row in range(height):
        beside.update(numbers[row * picture.width + width : (row + 1) * picture.width])
    beside.update(numbers[height * picture.width :])
    return set(beside) == {empty}


def drawn_fields(seed: int) -> tuple[int, ...]:
    """Which ink each field of a page has: another pattern for each seed."""
    chance = random.Random(seed)  # noqa: S311  # two pages are to differ, nobody is to guess
    fields = [chance.randrange(2) for _ in range(COLUMNS * ROWS - 2)]
    return (0, *fields, 1)


def page(fields: Sequence[int]) -> str:
    """A page that is these fields and nothing else."""
    inks = ["#{:02x}{:02x}{:02x}".format(*ink) for ink in INK]
    cells = "".join(f'<i style="background:{inks[field]}"></i>' for field in fields)
    style = (
        f"html,body{{margin:0;height:100%}}body{{display:grid;grid-template:repeat({ROWS},1fr)/repeat({COLUMNS},1fr)}}"
    )
    return f"<!doctype html><meta charset=utf-8><title>proof</title><style>{style}</style><body>{cells}</body>"


def shows(picture: Picture, fields: Sequence[int]) -> bool:
    """Whether the picture has the page of these fields, large enough and every field in its place."""
    few = picture.numbers().tolist()[::SAMPLED]
    if sum(is_ink(number) for number in few) < COVERED * len(few) / 2:
        return False
    inks = [{number for number in set(picture.numbers()) if differs_by(colour_of(number), ink) <= NEAR} for ink in INK]
    either = inks[0] | inks[1]
    mask = [number in either for number in picture.numbers()]
    if sum(mask) < COVERED * len(mask):
        return False
    width = picture.width
    lines = [row for row in range(picture.height) if sum(mask[row * width : (row + 1) * width]) > COVERED * width]
    columns = [column for column in range(width) if sum(mask[column::width]) > COVERED * picture.height]
    if not lines or not columns:
        return False
    top, left = lines[0], columns[0]
    height, across = lines[-1] + 1 - top, columns[-1] + 1 - left
    numbers = picture.numbers()
    for place, field in enumerate(fields):
        row, column = divmod(place, COLUMNS)
        y, x = top + height * (2 * row + 1) // (2 * ROWS), left + across * (2 * column + 1) // (2 * COLUMNS)
        if numbers[y * width + x] not in inks[field]:
            return False
    return True
