"""What the judge says of screens that were taken of real sessions, good and broken, and of its own page."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.case_files import read_cases
from tests.unit.desktop.programs import SHOTS, program

CASES = read_cases("desktop/judge")

judge, picture = program("judge"), program("picture")
KINDS = CASES["kinds"]
"""Pixels do not tell that the window manager is missing: the proof asks /proc as well."""


@cache
def shot(name: str) -> Any:
    return picture.read_png(SHOTS / f"{name}.png")


@pytest.mark.parametrize("name", KINDS)
def test_a_real_screen_is_known(name: str) -> None:
    assert judge.kind(shot(name)) == KINDS[name]


def test_every_stored_screen_is_judged_and_none_is_large() -> None:
    files = list(SHOTS.glob("*.png"))
    assert {file.stem for file in files} == set(KINDS)
    assert max(file.stat().st_size for file in files) < 70_000


def test_a_background_alone_is_no_desktop_even_if_a_strip_of_text_is_at_its_top() -> None:
    whole = shot("mate-debian12")
    line = whole.width * 4
    cut = picture.Picture(whole.width, whole.height, whole.pixels[: -30 * line] + bytes(30 * line))
    assert judge.kind(cut) == "background"


def drawn(fields: Any, width: int = 640, height: int = 480, *, inset: int = 40) -> Any:
    """A grey screen with the page of these fields in a window."""
    grey = judge.number_of((200, 200, 200)).to_bytes(4, "little")
    rows = []
    for y in range(height):
        row = bytearray(grey * width)
        if y >= inset:
            for x in range(width):
                place = (y - inset) * judge.ROWS // (height - inset) * judge.COLUMNS + x * judge.COLUMNS // width
                row[x * 4 : x * 4 + 4] = judge.number_of(judge.INK[fields[place]]).to_bytes(4, "little")
        rows.append(bytes(row))
    return picture.Picture(width, height, b"".join(rows))


def test_a_page_is_found_where_it_is_drawn_and_no_other_one() -> None:
    fields = judge.drawn_fields(7)
    screen = drawn(fields)
    assert judge.shows(screen, fields)
    other = list(fields)
    other[20] ^= 1
    assert not judge.shows(screen, other)
    assert not judge.shows(shot("firefox-debian13-nesting-true"), fields)
    assert not judge.shows(shot("mate-debian13"), fields)


def test_two_pages_differ_and_say_their_colours() -> None:
    one, other = judge.drawn_fields(1), judge.drawn_fields(2)
    assert one != other
    assert judge.page(one) != judge.page(other)
    assert judge.page(one).count("<i ") == judge.COLUMNS * judge.ROWS


@pytest.mark.parametrize("name", ["mate-debian12", "bad-no-xorgxrdp-debian12", "firefox-debian13-nesting-true"])
def test_a_picture_that_is_written_is_read_back(name: str, tmp_path: Path) -> None:
    before = shot(name)
    picture.write_png(before, tmp_path / "again.png")
    assert picture.read_png(tmp_path / "again.png") == before


def test_what_is_no_png_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(b"GIF89a")
    with pytest.raises(ValueError, match="no PNG"):
        picture.read_png(tmp_path / "x.png")


def test_a_framebuffer_is_read_without_what_fills_its_fourth_byte(tmp_path: Path) -> None:
    header = [0] * 25
    header[0], header[4], header[5], header[11], header[12], header[19] = 104, 2, 1, 32, 12, 1
    content = b"".join(word.to_bytes(4, "big") for word in header) + b"name" + bytes(12)
    (tmp_path / "screen").write_bytes(content + bytes([1, 2, 3, 255, 4, 5, 6, 77]) + bytes(4))
    found = picture.read_framebuffer(tmp_path / "screen")
    assert (found.width, found.height) == (2, 1)
    assert found.colours() == {(3, 2, 1): 1, (6, 5, 4): 1}
