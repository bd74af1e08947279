"""The page of ``report``: each part of it, made of values that tests made."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from dataclasses import replace
from datetime import datetime

import pytest
from syrupy.assertion import SnapshotAssertion

from provisioner.loads.budgets import Budget
from provisioner.loads.engines import EngineLoads
from provisioner.loads.terms import MIB
from provisioner.page.content import Clients, LabContent
from provisioner.page.page import lab_page
from provisioner.page.sections import all_warnings
from provisioner.report.html import NO_TIME, Markup, moment, tag
from provisioner.report.style import markup_text
from provisioner.values.state import ContainerStatus, Secret
from tests import lab_pages
from tests.lab_pages import ENGINE, HOSTILE, OTHER, empty_lab, full_lab, load
from tests.unit.page.pages import Page

CANARY = 'sk-<canary>&"77'
FORBIDDEN = {"script", "link", "iframe", "object", "embed", "form", "base", "audio", "video"}
ENDS = {"th": " | ", "td": " | ", "dt": ": ", "span": " "} | dict.fromkeys(
    ("dd", "figcaption", "h1", "h2", "h3", "h4", "li", "p", "pre", "summary", "svg", "title", "tr"), "\n"
)
"""What stands behind an element where the page is read as text."""
PARTS = ["warnings", "topology", "services", "cards", "routes", "measurements", "changes", "clients"]


class Reader(Page):
    """A page of ``report``, whose sections are its parts."""

    def __init__(self, page: str) -> None:
        self.parts: dict[str, str] = {}
        self.part = ""
        super().__init__(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take an element; a section is a part of the page."""
        super().handle_starttag(tag, attrs)
        if tag == "section":
            self.part = self.tags[-1][1]["id"]

    def handle_endtag(self, tag: str) -> None:
        """End an element, and its line where it is a block."""
        super().handle_endtag(tag)
        self.handle_data(ENDS.get(tag, ""))

    def handle_data(self, data: str) -> None:
        """Take words by the part in which they stand."""
        if not self.open or self.open[-1] != "style":
            self.parts[self.part] = self.parts.get(self.part, "") + data


def read(content: LabContent) -> Reader:
    """The page of a lab, understood."""
    return Reader(lab_page(content))


@pytest.mark.parametrize("content", [full_lab(), full_lab(HOSTILE), empty_lab()], ids=["full", "hostile", "empty"])
def test_a_page_needs_nothing_else_and_runs_nothing_whatever_the_names_are(content: LabContent) -> None:
    page = lab_page(content)
    found = read(content)
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len({*ids})
    for name, attributes in found.tags:
        assert name not in FORBIDDEN
        assert not any(key.startswith("on") or key == "style" for key in attributes), attributes
        assert attributes.get("src", "data:image/png;base64,").startswith("data:image/png;base64,")
        assert attributes.get("href", "#warnings").removeprefix("#") in PARTS
    assert "<script" not in page
    assert [attributes["id"] for name, attributes in found.tags if name == "section"] == PARTS


def test_names_of_others_are_there_as_they_are() -> None:
    found = read(full_lab(HOSTILE))
    for name in ("warnings", "services", "cards", "routes", "measurements", "changes", "clients"):
        assert HOSTILE in found.parts[name] or HOSTILE in found.parts[name].replace('\\"', '"'), name


def test_nothing_may_be_used_but_the_sheet_and_the_pictures() -> None:
    page = lab_page(full_lab())
    (sheet,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(sheet.encode()).digest()).decode()
    (rule,) = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)"', page)
    rules = {words.split()[0]: words.split()[1:] for words in html.unescape(rule).split("; ")}
    assert rules["default-src"] == ["'none'"]
    assert rules["style-src"] == [f"'sha256-{digest}'"]
    assert rules["img-src"] == ["data:"]
    assert not re.search(r"url\(|@import|http|@font-face", sheet)


@pytest.mark.parametrize("canary", ["sk-canary-77f0", CANARY])
def test_no_secret_is_on_it_whoever_said_it(canary: str) -> None:
    secrets = [Secret("key", canary), Secret("unknown", None)]
    page = lab_page(full_lab(f" {canary}"), secrets)
    shown = lab_page(full_lab(f" {canary}"))
    assert markup_text(canary) in shown
    for form in (canary, markup_text(canary), html.escape(canary, quote=False), html.escape(json.dumps(canary)[1:-1])):
        assert form not in page
    assert page.count("********") > 10
    assert Reader(page).parts.keys() >= {*PARTS}


def test_every_part_has_its_times_and_all_of_them_are_times() -> None:
    page = lab_page(full_lab())
    times = re.findall(r'<time datetime="(.*?)">(.*?)</time>', page)
    for written, words in times:
        assert datetime.fromisoformat(written).strftime("%Y-%m-%d %H:%M UTC") == words
    for name in PARTS:
        (text,) = re.findall(rf'<section id="{name}".*?</section>', page, re.DOTALL)
        assert "<time " in text, name


@pytest.mark.parametrize("at", ["", "yesterday", "2026-99-99"])
def test_a_time_that_is_none_is_said(at: str) -> None:
    assert moment(at) == (at or NO_TIME)
    assert moment("<b>") == "&lt;b&gt;"


def test_another_zone_is_told_in_utc() -> None:
    assert (
        moment("2026-11-28T13:30:00+02:00") == '<time datetime="2026-11-28T11:30:00+00:00">2026-11-28 11:30 UTC</time>'
    )


def test_an_element_escapes_all_but_markup() -> None:
    assert tag("p", "<b>", Markup("<i></i>"), 7, title='"', hidden=True, id=None) == (
        '<p title="&quot;" hidden>&lt;b&gt;<i></i>7</p>'
    )
    assert tag("br") == "<br>"


def test_pictures_stand_with_what_they_show() -> None:
    found = read(full_lab())
    pictures = [attributes for name, attributes in found.tags if name == "img"]
    assert [base64.b64decode(one["src"].partition(",")[2]) for one in pictures] == [lab_pages.PNG, lab_pages.PNG]
    assert pictures[0]["alt"] == "Picture that the proof of desk/desktop took: browser, judged to show the page"
    assert not [name for name, _ in read(replace(full_lab(), pictures={})).tags if name == "img"]


def bars(content: LabContent) -> list[list[tuple[str, float]]]:
    """The parts of each bar: class and percent."""
    drawn = re.findall(r'<svg class="bars".*?</svg>', lab_page(content), re.DOTALL)
    return list(map(parts_of, drawn))


def parts_of(bar: str) -> list[tuple[str, float]]:
    """Class and percent of each part of one bar."""
    return [(kind, float(wide)) for wide, kind in re.findall(r'width="([\d.]+)%".*?class="(\w+)"', bar)]


def with_sizes(*sizes: int, **more: object) -> LabContent:
    """A lab whose card has engines of these MiB, each with a margin of half a GiB."""
    engines = []
    for address, size in zip((ENGINE, OTHER), sizes, strict=False):
        engines.append(EngineLoads(address, (load(str(address), size - 500),), host="box"))
    budget = lab_pages.budget()
    values = {"usable": budget.usable, "card": budget.card, **more}
    return replace(full_lab(), budgets=(Budget("a card", tuple(engines), **values),), measured={})  # type: ignore[arg-type]


WHOLE = 12 * 1024
"""MiB of the card."""
FULL, EMPTY = full_lab(), empty_lab()
AWAY = ContainerStatus("llama", "box", elsewhere="not seen: its host does not answer")
UNKNOWN = Budget("a card", (EngineLoads(ENGINE, unknown="nobody tells"),), 1000 * MIB)
NO_CARD = tuple(replace(one, tried=replace(one.tried, card=-1)) for one in lab_pages.tries())
UNJUDGED = with_sizes(1500, usable=None, card=None)
WITHOUT_GPU = replace(FULL.graph, boxes=tuple(replace(box, gpu="") for box in FULL.graph.boxes))
FITTING = with_sizes(1500, 1000)
ON_ANOTHER = replace(FULL, measured={ENGINE: replace(lab_pages.measured(), card="GPU-2", at="")})
BLIND = replace(FULL, pending=None, pending_unknown="the host is away", containers=(), runs=())
READ: dict[str, tuple[LabContent, tuple[str, ...]]] = {
    "full": (FULL, ("", *PARTS)),
    "empty": (EMPTY, ("", *PARTS)),
    "container missing": (replace(FULL, containers=(ContainerStatus("llama", "box"),)), ("warnings", "services")),
    "container not seen": (replace(FULL, containers=(AWAY,)), ("warnings", "services")),
    "engines that fit": (FITTING, ("cards",)),
    "engines without a card in the file": (replace(UNJUDGED, graph=WITHOUT_GPU), ("cards",)),
    "a card whose memory is not known": (UNJUDGED, ("cards",)),
    "an engine of which nothing is known": (replace(FULL, budgets=(UNKNOWN,)), ("cards",)),
    "measured on another card": (ON_ANOTHER, ("cards",)),
    "tried on no card": (replace(FULL, tried={ENGINE: NO_CARD}, results={}), ("measurements",)),
    "nothing could be looked at": (BLIND, ("changes",)),
    "no gateway runs": (replace(FULL, clients=Clients(unknown="it does not run")), ("clients",)),
}


@pytest.mark.parametrize(("content", "parts"), READ.values(), ids=READ)
def test_what_is_read_in_each_part(
    content: LabContent, parts: tuple[str, ...], exact_snapshot: SnapshotAssertion
) -> None:
    found = read(content).parts
    lines = "\n".join(found[name] for name in parts).splitlines()
    assert "\n".join(line.rstrip() for line in lines if line.strip()) == exact_snapshot


def test_the_worst_is_warned_of_first_and_what_failed_is_open() -> None:
    assert [one.severity for one in all_warnings(FULL)].count("error") == 2
    words = read(FULL).parts["warnings"]
    assert words.rindex("error") < words.index("warning")
    opened = [attributes for name, attributes in read(FULL).tags if name == "details" and "open" in attributes]
    assert len(opened) == 2, "the proof that failed, and the first snippet"


MEASURED = [("e0", 6900), ("rest", WHOLE - 832 - 6900), ("reserved", 832)]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (FITTING, [[("e0", 1500), ("e1", 1000), ("free", WHOLE - 832 - 2500), ("reserved", 832)]]),
        # Where less is reserved, the bar is still as wide as the card.
        (
            with_sizes(1500, 1000, usable=(WHOLE - 480) * MIB, reserved=480 * MIB),
            [[("e0", 1500), ("e1", 1000), ("free", WHOLE - 480 - 2500), ("reserved", 480)]],
        ),
        # What was measured is a bar of its own, and what was not is not called free.
        (FULL, [[("e0", WHOLE * 7072 / 11560), ("e1", WHOLE * 4488 / 11560)], MEASURED]),
        # One part of an unknown whole is no bar.
        (replace(UNJUDGED, graph=WITHOUT_GPU), []),
    ],
    ids=["fits", "less reserved", "measured", "no card"],
)
def test_a_bar_is_as_wide_as_the_card(content: LabContent, expected: list[list[tuple[str, float]]]) -> None:
    drawn = bars(content)
    assert [[kind for kind, _ in bar] for bar in drawn] == [[kind for kind, _ in bar] for bar in expected]
    for bar, sizes in zip(drawn, expected, strict=True):
        assert [wide for _, wide in bar] == pytest.approx([100 * size / WHOLE for _, size in sizes], abs=0.02)


def test_a_benchmark_is_drawn_with_its_history_and_a_ring_where_something_else_changed() -> None:
    first, *_ = re.findall(r'<svg class="plot".*?</svg>', lab_page(FULL), re.DOTALL)
    assert re.findall(r'class="(point|other)"', first) == ["point", "point", "point", "other"]
    heights = [float(y) for y in re.findall(r'cy="([\d.]+)"', first)]
    assert heights[3] < min(heights[:3]), "more stands higher"
