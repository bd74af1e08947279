"""The picture of contexts that were tried: well-formed, everything where its numbers say, nothing beside the page."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from types import SimpleNamespace
from typing import Any

import pytest

from provisioner.measuring.probe import Probed, Tried
from provisioner.measuring.probe_picture import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, probed_svg

SVG = "{http://www.w3.org/2000/svg}"
EVIL = "<script>{{x}} & \"'\u202e\x07" + "x" * 60
GIB = 2**30


def drawn(*tries: Tried, longest: int = 0, address: str = "llama/llama_cpp") -> ET.Element:
    """The picture, read again."""
    subject: Any = SimpleNamespace(service=SimpleNamespace(address=address))
    text = probed_svg(Probed(subject, tries, longest))
    assert text == probed_svg(Probed(subject, tries, longest))
    return ET.fromstring(text)  # noqa: S314  # our own text


def dots(picture: ET.Element) -> list[tuple[str, float, float]]:
    """Each try: its kind, and where it stands."""
    circles = [one for one in picture.iter(f"{SVG}circle") if one.find(f"{SVG}title") is not None]
    return [(one.attrib["class"], float(one.attrib["cx"]), float(one.attrib["cy"])) for one in circles]


def test_tries_stand_by_their_tokens_and_by_what_they_took() -> None:
    picture = drawn(
        Tried(8192, "no room", memory=-1),
        Tried(2048, "answered", memory=GIB),
        Tried(4096, "answered", memory=9, card=GIB * 2),
        longest=4096,
    )
    (one, first, second), (two, _, half), (three, _, none) = [*dots(picture)]
    assert (one, two, three) == ("dot", "dot", "not")
    assert BOTTOM - second == pytest.approx((BOTTOM - half) / 2, abs=0.2)
    assert none > second > half
    (line,) = picture.iter(f"{SVG}line")
    assert float(line.attrib["x1"]) == pytest.approx(LEFT + 2 * (first - LEFT), abs=0.2)


def test_what_did_not_answer_stands_at_what_it_took_where_somebody_told() -> None:
    told, kept = Tried(8192, "no room", memory=3 * GIB), Tried(4096, "not whole", memory=2, card=2 * GIB)
    (*_, answered), (kind, _, cut), (_, _, no_room) = dots(drawn(told, kept, Tried(2048, "answered", memory=GIB)))
    assert kind == "not"
    assert BOTTOM - cut == pytest.approx((BOTTOM - answered) * 2, abs=0.2)
    assert BOTTOM - no_room == pytest.approx((BOTTOM - answered) * 3, abs=0.2)


@pytest.mark.parametrize("tries", [(), (Tried(256, "crashed", EVIL),), (Tried(10**6, "answered", memory=0),)])
def test_nothing_stands_beside_the_page_whatever_was_tried(tries: tuple[Tried, ...]) -> None:
    picture = drawn(*tries, address=EVIL)
    assert all(LEFT <= x <= RIGHT and TOP <= y <= BOTTOM for _, x, y in dots(picture))
    for words in picture.iter(f"{SVG}text"):
        assert 0 <= float(words.attrib["x"]) <= WIDTH
        assert 0 <= float(words.attrib["y"]) <= HEIGHT
    assert not list(picture.iter(f"{SVG}script"))
