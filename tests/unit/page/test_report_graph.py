"""A lab drawn: what is connected, the text, and a picture in which nothing stands on anything else."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from provisioner.catalog import load_catalog
from provisioner.lab import resolve
from provisioner.labfile.spec import Spec
from provisioner.page.layout import BOX_HEAD, PADDING, arrange, card_height, route
from provisioner.page.picture import graph_svg
from provisioner.page.topology import (
    ASCII,
    UNICODE,
    Box,
    Edge,
    Graph,
    Host,
    Outside,
    Service,
    Signs,
    graph_text,
    topology,
)
from provisioner.report.svg import Rectangle
from provisioner.values.state import Secret

CATALOG = load_catalog(Path(__file__).parent.parent / "fixtures" / "catalog")
SVG = "{http://www.w3.org/2000/svg}"
EVIL = "<script>{{x}} & \"'\u202e\x07"


def graph(**written: Any) -> Graph:
    return topology(resolve(Spec.model_validate({"name": "homelab", **written}), CATALOG))


def service(role: str, expose: str = "host", **options: Any) -> dict[str, Any]:
    return {role: {"role": role, "options": options, "expose": expose}}


MODELS = {name: {"source": "builtin:tiny"} for name in ("qwen", "coder", "small")}
UPSTREAMS = {
    "cloud": {
        "model": "openrouter/vendor/a-model-with-a-name-that-goes-on-and-on-and-on",
        "api_key": Secret("cloud", "key"),
    }
}
GATEWAY = service(
    "litellm", "lan", aliases={"fast": ["qwen", "small"], "code": ["coder", "cloud"], "all": ["fast", "code"]}
)
TWO_HOSTS = graph(
    hosts={"box": {"incus": "local"}, "far": {"incus": "https://far:8443"}},
    models=MODELS,
    upstreams=UPSTREAMS,
    containers={
        "llama": {"host": "box", "gpu": "any", "services": service("llama_cpp", model="qwen")},
        "coding": {"host": "box", "gpu": {"vendor": "amd"}, "services": service("llama_cpp", model="coder")},
        "gateway": {"host": "box", "services": GATEWAY},
        "mini": {"host": "far", "services": service("llama_cpp", "lan", model="small")},
        "both": {
            "host": "far",
            "services": service("litellm", aliases={"me": ["small"]}) | service("llama_cpp", model="small", port=9000),
        },
        "desk": {"host": "far", "services": service("desktop", assistant="gateway/litellm")},
        "desk2": {"host": "box", "services": service("desktop", assistant="llama/llama_cpp")},
        "empty": {"host": "box"},
    },
)
BACKWARDS = Graph(
    "backwards",
    (Host("box", "Incus"),),
    (
        Box("a", "box", "", (Service("a/engine", "engine", "engine", 1),)),
        Box("b", "box", "", (Service("b/app", "app", "app", 2),)),
        Box("c", "box", "", (Service("c/gateway", "gateway", "gateway", 3),)),
    ),
    (),
    (Edge("a/engine", "b/app", "uses"), Edge("a/engine", "c/gateway", "uses"), Edge("b/app", "a/engine", "uses")),
)
EVIL_GRAPH = Graph(
    EVIL,
    (Host(EVIL, EVIL),),
    (Box(EVIL, EVIL, EVIL, (Service("s", EVIL, "gateway", 1, EVIL, on_lan=True, aliases=(EVIL,)),)),),
    (Outside("upstream:u", "upstream", EVIL, EVIL), Outside("model:m", "model", EVIL, EVIL)),
    (Edge("lan", "s", "exposed"), Edge("s", "upstream:u", "first", EVIL), Edge("s", "model:m", "fallback", EVIL, 2)),
)
MANY = graph(
    models={f"m{number}": {"source": "builtin:tiny"} for number in range(12)},
    containers={f"e{number}": {"services": service("llama_cpp", model=f"m{number}")} for number in range(12)}
    | {
        f"g{number}": {"services": service("litellm", aliases={f"a{n}": [f"m{n}", f"m{11 - n}"] for n in range(6)})}
        for number in range(3)
    },
)
GRAPHS = {
    "two hosts": TWO_HOSTS,
    "backwards": BACKWARDS,
    "evil names": EVIL_GRAPH,
    "many": MANY,
    "one": graph(models=MODELS, containers={"llama": {"services": service("llama_cpp", model="qwen")}}),
    "no service": graph(containers={"empty": {}}),
}


def test_edges_say_who_asks_whom_and_in_which_order() -> None:
    edges = [edge for edge in TWO_HOSTS.edges if edge.source == "gateway/litellm" and edge.alias == "all"]
    assert [(edge.target, edge.line, edge.rank) for edge in edges] == [
        ("llama/llama_cpp", "first", 1),
        ("mini/llama_cpp", "fallback", 2),
        ("both/llama_cpp", "fallback", 2),
        ("coding/llama_cpp", "fallback", 3),
        ("upstream:cloud", "fallback", 4),
    ]
    assert Edge("lan", "gateway/litellm", "exposed") in TWO_HOSTS.edges
    assert Edge("desk/desktop", "gateway/litellm", "uses") in TWO_HOSTS.edges
    assert Edge("both/llama_cpp", "model:small", "serves") in TWO_HOSTS.edges


@pytest.mark.parametrize("signs", [UNICODE, ASCII], ids=["unicode", "ascii"])
def test_the_text_is_a_tree_with_arrows(signs: Signs, snapshot: SnapshotAssertion) -> None:
    text = graph_text(TWO_HOSTS, signs=signs)
    assert text.isascii() == (signs is ASCII)
    assert text == snapshot


def test_no_name_steers_the_terminal() -> None:
    assert "\x07" not in graph_text(EVIL_GRAPH)
    assert "\u202e" not in graph_text(EVIL_GRAPH)


def test_an_alias_names_its_model_of_several() -> None:
    aliases = {"fast": ["qwen"], "any": ["coder", "qwen"]}
    containers = {
        "llama": {"services": service("llama_cpp", models=["qwen", "coder"])},
        "gateway": {"services": service("litellm", aliases=aliases)},
    }
    spec = Spec.model_validate({"name": "homelab", "models": MODELS, "containers": containers})
    made = topology(resolve(spec, load_catalog()))
    assert [one.target for one in made.edges if one.line == "serves"] == ["model:qwen", "model:coder"]
    lines = [line.lstrip("│├└─ ") for line in graph_text(made).splitlines()]
    assert "fast → llama/llama_cpp (qwen)" in lines
    assert "any  → llama/llama_cpp (coder), else llama/llama_cpp (qwen)" in lines
    assert graph_svg(made)


def test_an_alias_that_says_more_has_the_same_lines_and_those_to_whoever_reads_more() -> None:
    said = {"engines": ["qwen", "cloud"], "timeout": 3, "context_window_fallbacks": ["small", "cloud"]}
    containers = {
        "llama": {"services": service("llama_cpp", models=["qwen", "small"])},
        "gateway": {"services": service("litellm", aliases={"fast": said})},
    }
    written = {"name": "homelab", "models": MODELS, "upstreams": UPSTREAMS, "containers": containers}
    made = topology(resolve(Spec.model_validate(written), load_catalog()))
    edges = [(one.target, one.rank, one.model) for one in made.edges if one.alias == "fast"]
    assert edges == [("llama/llama_cpp", 1, "qwen"), ("upstream:cloud", 2, ""), ("llama/llama_cpp", 3, "small")]


@pytest.mark.parametrize("drawn", GRAPHS.values(), ids=GRAPHS)
def test_the_picture_is_well_formed_and_the_same_each_time(drawn: Graph) -> None:
    text = graph_svg(drawn)
    assert text == graph_svg(drawn)
    root = ET.fromstring(text)  # noqa: S314  # our own text
    assert {one.tag.removeprefix(SVG) for one in root.iter()} <= {
        "svg",
        "style",
        "title",
        "rect",
        "text",
        "tspan",
        "g",
        "path",
        "circle",
    }
    assert "http" not in text.replace('xmlns="http://www.w3.org/2000/svg"', "").replace("https://far:8443", "")
    assert "url(" not in text


def test_names_are_text_in_the_picture_whatever_they_are() -> None:
    text = graph_svg(EVIL_GRAPH)
    root = ET.fromstring(text)  # noqa: S314  # our own text
    assert "<script>" not in text
    shown = {"".join(one.itertext()) for one in root.iter(f"{SVG}text")}
    assert "<script>{{x}} & \"'\\u202e\\x07" in shown


@pytest.mark.parametrize("drawn", GRAPHS.values(), ids=GRAPHS)
def test_nothing_stands_on_anything_else(drawn: Graph) -> None:
    drawing = route(arrange(drawn))
    for (name, one), (other, two) in combinations(drawing.places.items(), 2):
        apart = one.right <= two.x or two.right <= one.x or one.bottom <= two.y or two.bottom <= one.y
        assert apart, f"{name} and {other}"


@pytest.mark.parametrize("drawn", GRAPHS.values(), ids=GRAPHS)
def test_lines_are_upright_meet_their_ends_and_cross_no_card(drawn: Graph) -> None:
    drawing = route(arrange(drawn))
    cards = _cards(drawn, drawing.places)
    for edge, points in drawing.lines:
        assert _touches(cards[edge.source], points[0]), edge
        assert _touches(cards[edge.target], points[-1]), edge
        for (x, y), (to_x, to_y) in pairwise(points):
            assert x == to_x or y == to_y, edge
            for name, card in cards.items():
                inside = (
                    min(x, to_x) < card.right - 1
                    and max(x, to_x) > card.x + 1
                    and min(y, to_y) < card.bottom - 1
                    and max(y, to_y) > card.y + 1
                )
                assert not inside, f"{edge} crosses {name}"


def _cards(drawn: Graph, places: Mapping[str, Rectangle]) -> dict[str, Rectangle]:
    cards = {name: place for name, place in places.items() if not name.startswith(("box:", "way:"))}
    for box in drawn.boxes:
        place = places[f"box:{box.name}"]
        y = place.y + BOX_HEAD
        for one in box.services:
            cards[one.id] = Rectangle(place.x + PADDING, y, place.width - 2 * PADDING, card_height(one))
            y += card_height(one) + PADDING
    return cards


def _touches(card: Rectangle, point: tuple[float, float]) -> bool:
    return point[0] in (card.x, card.right) and card.y <= point[1] <= card.bottom


@pytest.mark.parametrize("drawn", GRAPHS.values(), ids=GRAPHS)
def test_the_picture_is_as_large_as_its_content(drawn: Graph) -> None:
    root = ET.fromstring(graph_svg(drawn))  # noqa: S314  # our own text
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for one in root.iter(f"{SVG}rect"):
        assert float(one.get("x", 0)) >= 0
        assert float(one.get("x", 0)) + float(one.attrib["width"]) <= width
        assert float(one.get("y", 0)) + float(one.attrib["height"]) <= height
    for one in root.iter(f"{SVG}path"):
        numbers = re.findall(r"[-\d.]+", one.attrib["d"])
        assert all(float(number) <= max(width, height) for number in numbers)


def fallbacks(text: str) -> Sequence[str]:
    return re.findall(r'class="line fallback"', text)


def test_fallbacks_are_dashed_and_numbered_and_explained() -> None:
    text = graph_svg(TWO_HOSTS)
    assert len(fallbacks(text)) == sum(edge.line == "fallback" for edge in TWO_HOSTS.edges) + 1
    assert "fallbacks, in order" in text
    assert fallbacks(graph_svg(GRAPHS["one"])) == []
    assert "fallbacks, in order" not in graph_svg(GRAPHS["one"])
