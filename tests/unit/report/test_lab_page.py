"""The page of ``report``: each part of it, made of values that tests made."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from dataclasses import replace
from datetime import datetime
from html.parser import HTMLParser

import pytest

from provisioner.loads.budgets import Budget
from provisioner.loads.engines import EngineLoads
from provisioner.loads.terms import MIB
from provisioner.report.lab_page import Clients, LabContent, lab_page
from provisioner.report.lab_page.elements import NO_TIME, Markup, moment, tag
from provisioner.report.lab_page.warnings import all_warnings
from provisioner.report.style import markup_text
from provisioner.values.state import ContainerStatus, Secret
from tests import lab_pages
from tests.lab_pages import ENGINE, HOSTILE, OTHER, empty_lab, full_lab, load

CANARY = 'sk-<canary>&"77'
VOID = {"meta", "img", "br"}
FORBIDDEN = {"script", "link", "iframe", "object", "embed", "form", "base", "audio", "video"}
PARTS = ["warnings", "topology", "services", "cards", "routes", "measurements", "changes", "clients"]


class Reader(HTMLParser):
    """Reads a page as strictly as XML: every element ends where it should."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.parts: dict[str, str] = {}
        self.words = ""
        self.part = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take an element; a section is a part of the page."""
        found = {name: value or "" for name, value in attrs}
        self.tags.append((tag, found))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "section":
            self.part = found["id"]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Pictures have elements that end where they begin."""
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        """It has to be the one that was opened last."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Words, by the part in which they stand."""
        if self.open and self.open[-1] == "style":
            return
        self.words += data
        self.parts[self.part] = self.parts.get(self.part, "") + data


def read(content: LabContent) -> Reader:
    """The page of a lab, understood."""
    return Reader(lab_page(content))


def part(content: LabContent, name: str) -> str:
    """The words of one part."""
    return read(content).parts[name]


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


def test_warnings_come_first_and_the_worst_of_them_before_the_others() -> None:
    words = part(full_lab(), "warnings")
    first, last = words.index("coder/vllm is unhealthy"), words.index("Container old does not answer")
    assert first < last
    for expected in (
        "coder/vllm: its last proof failed (verify)",
        "HTTP 503",
        "coder has drifted from the file",
        "old is an orphan",
        "104 MiB too much by the sums",
        "timed out",
    ):
        assert expected in words
    assert [one.severity for one in all_warnings(full_lab())].count("error") == 2


def test_a_lab_without_anything_to_warn_of_says_so() -> None:
    assert "Nothing to warn of, 2026-11-28 12:00 UTC" in part(empty_lab(), "warnings")
    assert "The lab has no containers" in part(empty_lab(), "services")
    assert "0to warn of0 of 0containers run" in read(empty_lab()).parts[""]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (ContainerStatus("llama", "box"), "llama is missing on host box"),
        (ContainerStatus("llama", "box", elsewhere="not seen: its host does not answer"), "its host does not answer"),
    ],
)
def test_a_container_that_is_not_there_is_warned_of(status: ContainerStatus, words: str) -> None:
    content = replace(full_lab(), containers=(status,))
    assert words in part(content, "warnings")
    services = part(content, "services")
    assert "not known: nobody could be asked" in services
    assert "not seen" in services or "missing" in services


def test_a_service_is_told_with_its_proof_and_what_was_asked() -> None:
    words = part(full_lab(), "services")
    assert "proved by provision up, 2026-11-28 11:59 UTC" in words
    assert "Evidence of the proof: 3 of 3 steps as they should be, 2026-11-28 11:59 UTC" in words
    assert "GET /health on port 8080" in words
    assert "HTTP 200" in words
    assert "Ask without the key· done0.1s" in words, "what is only asked is judged by a later step"
    assert "Check the answer✓ HTTP 200Hello!3.5s" in words
    assert "<br>Hello!" in lab_page(full_lab())
    assert "failed by provision verify, 2026-11-28 11:57 UTC" in words
    assert words.count("never proved from this machine") == 2
    opened = [attributes for name, attributes in read(full_lab()).tags if name == "details" and "open" in attributes]
    assert len(opened) == 2, "the proof that failed, and the first snippet"


def test_what_a_role_beside_the_services_asked_is_told_of_the_last_run_alone() -> None:
    words = part(full_lab(), "services")
    assert "gpu_userspaceEvidence of the proof: 1 of 1 step as they should be" in words
    assert "Check that it answers✓ RTX 30600.3s" in words
    assert "kokoro" not in words, "it is not in the file any more"


def test_pictures_stand_with_what_they_show_and_when_they_were_taken() -> None:
    found = read(full_lab())
    pictures = [attributes for name, attributes in found.tags if name == "img"]
    assert [base64.b64decode(one["src"].partition(",")[2]) for one in pictures] == [lab_pages.PNG, lab_pages.PNG]
    assert pictures[0]["alt"] == "Picture that the proof of desk/desktop took: browser, judged to show the page"
    assert "browser, judged to show the page, taken 2026-11-28 11:58 UTC" in found.parts["services"]
    assert f"desktop, judged to show a desktop, taken {NO_TIME}" in found.parts["services"]
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


def test_a_bar_is_as_wide_as_the_card_and_its_parts_are_what_lies_there() -> None:
    ((*parts,),) = bars(with_sizes(1500, 1000))
    assert [kind for kind, _ in parts] == ["e0", "e1", "free", "reserved"]
    whole = 12 * 1024
    expected = [1500 / whole, 1000 / whole, (whole - 832 - 2500) / whole, 832 / whole]
    assert [wide for _, wide in parts] == pytest.approx([100 * one for one in expected], abs=0.02)
    words = part(with_sizes(1500, 1000), "cards")
    assert "Estimated: 2,500 MiB of 11,456 MiB usable, 2026-11-28 12:00 UTC" in words
    assert "Measured: · never measured" in words
    assert "it fits by the sums" in words


def test_where_less_is_reserved_the_bar_is_still_as_wide_as_the_card() -> None:
    whole = 12 * 1024
    content = with_sizes(1500, 1000, usable=(whole - 480) * MIB, reserved=480 * MIB)
    ((*parts,),) = bars(content)
    expected = [1500 / whole, 1000 / whole, (whole - 480 - 2500) / whole, 480 / whole]
    assert [wide for _, wide in parts] == pytest.approx([100 * one for one in expected], abs=0.02)
    assert "480 MiB" in part(content, "cards")


def test_what_was_measured_is_a_bar_of_its_own_and_what_was_not_is_not_called_free() -> None:
    _, measured = bars(full_lab())
    assert [kind for kind, _ in measured] == ["e0", "rest", "reserved"]
    words = part(full_lab(), "cards")
    assert "Measured: 6,900 MiB of 1 of 2 services; what the others take of the rest is not known" in words
    assert "6,900 MiB, 172 MiB less than the sum of then" in words
    assert "2026-11-27 20:00 UTC" in words
    assert "never measured" in words
    assert "not known: not all were measured" in words


def test_where_it_is_too_much_there_is_no_room_and_a_line_where_the_memory_ends() -> None:
    estimated, _ = bars(full_lab())
    assert [kind for kind, _ in estimated] == ["e0", "e1"]
    assert 'class="over"' in lab_page(full_lab())
    assert "too much, beyond the line104 MiB" in part(full_lab(), "cards")


def test_what_the_file_gives_no_card_is_told_so_and_not_judged() -> None:
    content = with_sizes(1500, usable=None, card=None)
    boxes = tuple(replace(box, gpu="") for box in content.graph.boxes)
    content = replace(content, graph=replace(content.graph, boxes=boxes))
    words = part(content, "cards")
    assert "not checked on a card: the file gives them none; this is what they would take." in words
    assert "fits" not in words
    assert bars(content) == [], "one part of an unknown whole"


def test_what_nobody_knows_is_not_a_number() -> None:
    words = part(with_sizes(1500, usable=None, card=None), "cards")
    assert "not checked on a card" in words
    assert "how much memory the card has is not known" in words
    assert "whether it fits is not known" in words
    unknown = Budget("a card", (EngineLoads(ENGINE, unknown="nobody tells"),), 1000 * MIB)
    words = part(replace(full_lab(), budgets=(unknown,)), "cards")
    assert "not known ! nobody tells" in words
    assert "Nothing can be added up" in words
    assert "No engine of the file computes on a card." in part(empty_lab(), "cards")


def test_what_was_measured_on_another_card_is_told() -> None:
    record = replace(lab_pages.measured(), card="GPU-2", at="")
    words = part(replace(full_lab(), measured={ENGINE: record}), "cards")
    assert "on another card" in words
    assert NO_TIME in words


def test_each_alias_is_told_with_who_answers_and_who_stands_in() -> None:
    words = part(full_lab(), "routes")
    assert "fastgateway/litellmllama/llama_cpp (qwen) ✓ healthycloud (elsewhere: not asked)" in words
    assert "biggateway/litellmcoder/vllm (coder-7b) ✗ unhealthy· nobody" in words
    assert "No service of the file offers aliases." in part(empty_lab(), "routes")


def test_probes_are_told_with_all_tries_and_with_those_of_before() -> None:
    words = part(full_lab(), "measurements")
    assert "16,384 tokens at most were answered, tried last 2026-11-26 10:00 UTC" in words
    assert "32,768! no room out of memorynot known" in words
    assert f"{NO_TIME}4,0961 try" in words
    assert "Never probed, and no benchmark is kept: coder/vllm, desk/desktop" in words


def test_tries_on_no_card_are_called_so() -> None:
    kept = tuple(replace(one, tried=replace(one.tried, card=-1)) for one in lab_pages.tries())
    assert "not checked on a card" in part(replace(full_lab(), tried={ENGINE: kept}, results={}), "measurements")


def test_a_benchmark_is_drawn_with_its_history_and_a_ring_where_something_else_changed() -> None:
    page = lab_page(full_lab())
    first, *_ = re.findall(r'<svg class="plot".*?</svg>', page, re.DOTALL)
    assert re.findall(r'class="(point|other)"', first) == ["point", "point", "point", "other"]
    heights = [float(y) for y in re.findall(r'cy="([\d.]+)"', first)]
    assert heights[3] < min(heights[:3]), "more stands higher"
    words = part(full_lab(), "measurements")
    assert "pp512: from 1,000 to 1,190 tokens/s in 4 measurements" in words
    assert "pp512: 1,190 tokens/s, with 95 % certainty" in words
    assert "driver: 580.95 and 590.12" in words
    assert "first token: 0.40 s, measured once" in words
    assert "Measured last on box, EPYC, not checked on a card." in words


def test_drift_the_plan_and_the_runs_are_told() -> None:
    words = part(full_lab(), "changes")
    assert "codervllm: changed" in words
    assert "configurecoder/vllmits stamp says so" in words
    assert "down2026-11-27 22:00 UTC✗ never✗ did not come to its end" in words
    assert "✗ VerificationError1 done, 1 failedcreate desk✗ configure coder: HTTP 503" in words
    unknown = replace(full_lab(), pending=None, pending_unknown="the host is away", containers=(), runs=())
    words = part(unknown, "changes")
    assert "the host is away" in words
    assert "not known: nothing could be looked at" in words
    assert "No run from this machine is known." in words
    assert "Nothing: all is as the file says" in part(empty_lab(), "changes")


def test_clients_are_told_where_the_lab_answers_and_which_variable_has_the_key() -> None:
    words = part(full_lab(), "clients")
    assert "The lab answers at https://api.home.example/v1, as seen 2026-11-28 12:00 UTC." in words
    assert '"apiKey": "{env:LITELLM_KEY}"' in words
    assert "provision show --ca" in words
    assert "it does not run" in part(replace(full_lab(), clients=Clients(unknown="it does not run")), "clients")
    assert "No service of the file speaks to clients." in part(empty_lab(), "clients")
