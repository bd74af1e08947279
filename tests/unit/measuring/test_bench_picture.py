"""The picture of when audio arrived: well-formed, everything where its time says, nothing beside the page."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest

from provisioner.measuring.speech import LEFT, RIGHT, WIDTH, Ask, Bench, Run, Series, bench_svg, place_of, verdict
from provisioner.report.svg import ticks

SVG = "{http://www.w3.org/2000/svg}"
EVIL = "<script>{{x}} & \"'\u202e\x07" + "x" * 60


def series(text: str, form: str, *chunks: float, voice: str = "af_sky") -> Series:
    """One answer whose pieces came at these times."""
    run = Run(chunks[0], chunks[-1], len(chunks), tuple((at, 100) for at in chunks))
    return Series(Ask(text, "x" * 89, form, voice), (run,))


CPU = Bench("slow", "cpu", (series("short", "pcm", 2.0, 6.0), series("short", "mp3", 1.0, 4.0, 4.001, 8.0)))
GPU = Bench("fast", "gpu", (series("short", "mp3", 0.5, 1.0), series("long", "mp3", 0.5, 30.0)))


def drawn(*benches: Bench) -> ET.Element:
    """The picture, read again."""
    text = bench_svg(benches)
    assert text == bench_svg(benches)
    return ET.fromstring(text)  # noqa: S314  # our own text


def words(root: ET.Element) -> list[str]:
    """All that is written."""
    return ["".join(one.itertext()) for one in root.iter(f"{SVG}text")]


def test_pieces_stand_where_their_times_say_on_the_scale_of_their_text() -> None:
    root = drawn(CPU, GPU)
    rows = list(root.iter(f"{SVG}g"))
    assert [one.attrib["class"] for one in rows] == ["c0", "c0", "c1", "c1"]
    width = RIGHT - LEFT
    dots = [[float(dot.attrib["cx"]) for dot in row.iter(f"{SVG}circle")] for row in rows]
    assert dots[0] == [LEFT + width * 2 / 8, LEFT + width * 6 / 8]
    assert dots[1] == [LEFT + width / 8, LEFT + width / 2, RIGHT]  # what came within a dot is one
    assert dots[2] == pytest.approx([LEFT + width * 0.5 / 8, LEFT + width / 8], abs=0.5)
    assert dots[3] == pytest.approx([LEFT + width * 0.5 / 30, RIGHT], abs=0.5)
    (bar,) = rows[1].iter(f"{SVG}rect")
    assert (float(bar.attrib["x"]), float(bar.attrib["width"])) == (dots[1][0], RIGHT - dots[1][0])
    (wait,) = rows[1].iter(f"{SVG}path")
    assert wait.attrib["d"].endswith(f"H{dots[1][0]:.1f}")


def test_rows_do_not_stand_on_each_other_and_say_what_they_are() -> None:
    root = drawn(CPU, GPU)
    heights = [float(next(row.iter(f"{SVG}text")).attrib["y"]) for row in root.iter(f"{SVG}g")]
    assert all(later - earlier >= 20 for earlier, later in pairwise(heights))
    said = words(root)
    assert said.count("slow, cpu") == 1
    assert said.count("fast, gpu") == 2
    assert "short text, 89 characters" in said
    assert "mp3, af_sky" in said
    assert "1.00 of 8.00 s, 0.12" in said
    assert said[-3:] == list(verdict([CPU, GPU]))[-3:]


def test_nothing_stands_beside_the_page() -> None:
    root = drawn(Bench(EVIL, "cpu", (series("short", "mp3", 1.0, 2.0, voice=EVIL),)), CPU)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert width == WIDTH
    for one in root.iter(f"{SVG}rect"):
        assert 0 <= float(one.get("x", 0)) <= float(one.get("x", 0)) + float(one.attrib["width"]) <= width
        assert 0 <= float(one.get("y", 0)) <= height
    assert all(0 < float(one.attrib["y"]) < height for one in root.iter(f"{SVG}text"))


def test_names_are_text_whatever_they_are() -> None:
    text = bench_svg([Bench(EVIL, "cpu", (series("short", "mp3", 1.0, 2.0, voice=EVIL),))])
    assert "<script>" not in text
    assert "url(" not in text
    assert "http" not in text.replace('xmlns="http://www.w3.org/2000/svg"', "")
    tags = {one.tag.removeprefix(SVG) for one in ET.fromstring(text).iter()}  # noqa: S314  # our own text
    assert tags <= {"svg", "title", "style", "rect", "text", "path", "g", "circle"}


@pytest.mark.parametrize(
    ("longest", "moments"),
    [
        (8.0, [0, 2, 4, 6, 8]),
        (1.5, [0, 0.5, 1, 1.5]),
        (0.07, [0, 0.02, 0.04, 0.06]),
        (1000.0, [0, 200, 400, 600, 800, 1000]),
    ],
)
def test_moments_on_the_axis_are_round(longest: float, moments: list[float]) -> None:
    assert list(ticks(longest)) == pytest.approx(moments)
    assert place_of(longest, longest) == RIGHT
