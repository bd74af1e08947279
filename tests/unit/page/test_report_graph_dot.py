"""A lab in Graphviz' language, read again by the rules of that language: names stay names, whatever they are."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest

from provisioner.page.picture import graph_dot
from provisioner.page.topology import Box, Edge, Graph, Host, Outside, Service
from tests.case_files import read_cases
from tests.unit.page.test_report_graph import EVIL_GRAPH, GRAPHS, TWO_HOSTS

CASES = read_cases("report_graph_dot")

TOKEN = re.compile(r'\s*("(?:[^"\\]|\\["\\n])*"|->|[][{};,=]|[A-Za-z_]+)')
HOSTILE = CASES["hostile"]


@dataclass
class Read:
    """What a reader of DOT finds: labels of nodes by their ids, edges, labels of clusters from the outside in."""

    name: str = ""
    nodes: dict[str, str] = field(default_factory=dict)
    edges: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    clusters: list[tuple[str, ...]] = field(default_factory=list)


def tokens_of(text: str) -> list[str]:
    tokens, at = [], 0
    while text[at:].strip():
        found = TOKEN.match(text, at)
        assert found is not None, f"no DOT: {text[at : at + 60]!r}"
        tokens.append(found[1])
        at = found.end()
    return tokens


def text_of(token: str) -> str:
    """The characters that Graphviz shows for a quoted label, lines apart."""
    assert token[0] == token[-1] == '"'
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], token[1:-1])


def attributes_of(tokens: list[str]) -> dict[str, str]:
    """What stands in brackets, which are taken from the tokens together with the semicolon."""
    assert tokens.pop(0) == "["
    attributes = {}
    while tokens[0] != "]":
        key, equals, value = (tokens.pop(0) for _ in range(3))
        assert equals == "="
        attributes[key] = text_of(value) if value.startswith('"') else value
        if tokens[0] == ",":
            tokens.pop(0)
    assert [tokens.pop(0), tokens.pop(0)] == ["]", ";"]
    return attributes


def read(text: str) -> Read:
    tokens, result, inside = tokens_of(text), Read(), []
    assert tokens.pop(0) == "digraph"
    result.name = text_of(tokens.pop(0))
    assert tokens.pop(0) == "{"
    while tokens != ["}"]:
        first = tokens.pop(0)
        if first == "subgraph":
            assert text_of(tokens.pop(0)).startswith("cluster ")
            assert [tokens.pop(0) for _ in range(3)] == ["{", "label", "="]
            inside.append(text_of(tokens.pop(0)))
            result.clusters.append(tuple(inside))
            assert tokens.pop(0) == ";"
        elif first == "}":
            inside.pop()
        elif first in {"rankdir", "node"}:
            del tokens[: tokens.index(";") + 1]
        elif tokens[0] == "->":
            _, target = tokens.pop(0), tokens.pop(0)
            result.edges.append((text_of(first), text_of(target), attributes_of(tokens)))
        else:
            result.nodes[text_of(first)] = attributes_of(tokens)["label"]
    assert inside == []
    return result


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_every_service_edge_host_and_container_is_there_once(graph: Graph) -> None:
    found = read(graph_dot(graph))
    assert len(found.edges) == len(graph.edges)
    assert {edge[0] for edge in found.edges} | {edge[1] for edge in found.edges} <= set(found.nodes)
    assert set(graph.services) | {outside.id for outside in graph.outside} <= set(found.nodes)
    assert len(found.clusters) == len(graph.hosts) + len(graph.boxes)
    assert graph_dot(graph) == graph_dot(graph)


def test_clusters_labels_and_lines_say_what_the_file_says() -> None:
    found = read(graph_dot(TWO_HOSTS))
    assert found.name == "homelab"
    assert found.clusters[:2] == [("box\nIncus, this machine",), ("box\nIncus, this machine", "llama\ngpu")]
    assert found.nodes["llama/llama_cpp"] == "llama_cpp :8080\nqwen"
    aliases = [edge for edge in found.edges if edge[:2] == ("gateway/litellm", "llama/llama_cpp")]
    assert aliases[0][2] == {"style": "solid", "label": "fast"}
    assert ("gateway/litellm", "upstream:cloud", {"style": "dashed", "label": "code (2)"}) in found.edges
    assert ("lan", "gateway/litellm", {"style": "bold"}) in found.edges


def test_names_that_would_break_out_stay_names() -> None:
    assert "<script>{{x}} & \"'\\u202e\\x07" in read(graph_dot(EVIL_GRAPH)).name


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_shown_as_it_is(name: str) -> None:
    graph = Graph(
        name,
        (Host(name, name),),
        (Box(name, name, name, (Service(f"{name}/s", name, "gateway", None, name, aliases=(name,)),)),),
        (Outside(f"model:{name}", "model", name, name),),
        (Edge(f"{name}/s", f"model:{name}", "first", name),),
    )
    shown = name.replace("\n", "\\n")
    found = read(graph_dot(graph))
    assert found.name == shown
    assert found.clusters == [(f"{shown}\n{shown}",), (f"{shown}\n{shown}", f"{shown}\n{shown}")]
    assert found.nodes == {f"{shown}/s": f"{shown}\n{shown}", f"model:{shown}": f"{shown}\n{shown}"}
    assert found.edges == [(f"{shown}/s", f"model:{shown}", {"style": "solid", "label": shown})]
