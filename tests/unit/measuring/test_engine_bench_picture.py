"""The picture of what an engine computes: well-formed, bars as long as their figures say, nothing beside the page."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from provisioner.measuring.engine import LEFT, RIGHT, WIDTH, engine_bench_svg
from provisioner.measuring.history import Result, Series, Setting, Trial

SVG = "{http://www.w3.org/2000/svg}"
EVIL = "<script>{{x}} & \"'\u202e\x07" + "x" * 60


def result(values: Sequence[float], options: Mapping[str, str], name: str = "pp512", waited: float = 0.0) -> Result:
    """One of these trials."""
    setting = Setting(EVIL, EVIL, "", "", "", "", options)
    series = Series(name, "tokens/s", tuple(Trial(value, waited) for value in values))
    return Result("2026-11-28T01:00:00+00:00", "engine", EVIL, setting, (series,))


def drawn(*results: Result) -> ET.Element:
    """The picture, read again."""
    text = engine_bench_svg(results)
    assert text == engine_bench_svg(results)
    return ET.fromstring(text)  # noqa: S314  # our own text


def texts(picture: ET.Element) -> list[str]:
    """All words of it."""
    return ["".join(one.itertext()) for one in picture.iter(f"{SVG}text")]


def test_bars_are_as_long_as_their_medians_and_say_what_differs() -> None:
    picture = drawn(result([100, 100, 40], {"t": "1", "b": "512"}), result([200, 200, 200], {"t": "2", "b": "512"}))
    bars = [float(one.attrib["width"]) for one in picture.iter(f"{SVG}rect") if one.attrib.get("class") == "head"]
    assert bars == pytest.approx([(RIGHT - LEFT) / 2, RIGHT - LEFT])
    assert {"t=1", "t=2", "100.0 tokens/s", "200.0 tokens/s", "pp512"} <= {*texts(picture)}
    assert len([one for one in picture.iter(f"{SVG}circle") if one.attrib["class"] == "trial"]) == 6


def test_results_of_several_days_say_when() -> None:
    later = replace(result([2], {}), at="2026-12-28T01:00:00+00:00")
    assert {"2026-11-28T01:00", "2026-12-28T01:00"} <= {*texts(drawn(result([1], {}), later))}


def test_what_was_disturbed_says_so() -> None:
    assert "1.00 tokens/s, 2 of 2 disturbed" in texts(drawn(result([1, 1], {}, waited=0.5)))


@pytest.mark.parametrize("value", [0.001, 7.0, 123_456.0])
def test_nothing_stands_beside_the_page_whatever_was_measured(value: float) -> None:
    picture = drawn(
        result([value, value * 1.5], {EVIL: EVIL}, EVIL), result([value], {"t": "2"}, EVIL), result([1.0], {}, "tg128")
    )
    height = float(picture.attrib["height"])
    for one in picture.iter():
        for name in ("x", "cx"):
            assert 0 <= float(one.attrib.get(name, 0)) <= WIDTH
        for name in ("y", "cy"):
            assert 0 <= float(one.attrib.get(name, 0)) <= height
    assert not [one for one in picture.iter() if one.tag.endswith("script")]
