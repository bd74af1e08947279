"""The web pages of a check and of a repair: complete, self-contained, and what a node said stays text."""

from __future__ import annotations

import re
from dataclasses import replace

from provisioner.cluster.facts import (
    ClusterFacts,
    Condition,
    CorosyncConf,
    Diagnosis,
    Link,
    Member,
    NodeFacts,
    Quorum,
    Silent,
)
from provisioner.cluster.page import check_html, link_states, record_html
from provisioner.cluster.record import CommandRecord, Record, StepRecord, StepStatus
from tests.unit.page.pages import Page

EVIL = "<script>alert(1)</script>\"' onload=x & \x1b[31m"


def cluster(text: str = "") -> ClusterFacts:
    """Three nodes, one of them silent, a link down; ``text`` is appended to every string that comes from outside."""
    names = [f"pve{number}{text}" for number in (1, 2, 3)]
    members = tuple(
        Member(name, number, 3 if number == 1 else 1, ("10.0.0.1",)) for number, name in enumerate(names, 1)
    )
    conf = CorosyncConf(f"home{text}", 7, members)
    quorum = Quorum(is_quorate=True, expected=5, total=4, needed=3, present={1: 3, 2: 1})
    nodes = tuple(
        NodeFacts(
            name,
            f"10.0.0.{number}{text}",
            version=f"9.1{text}",
            pve_conf=conf,
            local_conf=replace(conf, version=6),
            running_version=7,
            quorum=quorum,
            links=tuple(Link(other, 0, is_connected=other != 3) for other in (1, 2, 3) if other != number),
        )
        for number, name in enumerate(names[:2], 1)
    )
    return ClusterFacts(f"root@pve1{text}", nodes, (Silent(names[2], f"10.0.0.3{text}", f"timed out{text}"),))


def findings(text: str = "") -> tuple[Diagnosis, ...]:
    """One of each mood."""
    return tuple(
        Diagnosis(
            one, f"pve3{text}", f"it is so{text}", (f"line one{text}", f"line two{text}"), f"ghost{text}", f"do{text}"
        )
        for one in (Condition.HEALTHY, Condition.OFFLINE, Condition.GHOST)
    )


def record(text: str = "") -> Record:
    """A repair with a step of each status."""
    command = CommandRecord(f"pve1{text}", ("pvecm", f"delnode{text}"), 255, f"not known\n{text}", 1.25)
    steps = tuple(
        StepRecord(f"step{text}", f"Does it{text}", status, (command,), f"because{text}") for status in StepStatus
    )
    return Record(
        f"ghost-node{text}", f"home{text}", f"pve3{text}", f"pve1{text}", "2026-11-21T08:00:00Z",
        ended=f"2026-11-21T08:01:00Z{text}", before=findings(text), after=findings(text), steps=steps,
        backup=f"/somewhere{text}", error=f"it broke{text}",
    )  # fmt: skip


def test_nothing_that_was_said_becomes_a_tag_an_attribute_or_a_control_character() -> None:
    for evil, plain in (
        (check_html(cluster(EVIL), findings(EVIL), f"now{EVIL}"), check_html(cluster(), findings(), "now")),
        (record_html(record(EVIL)), record_html(record())),
    ):
        read, harmless = Page(evil), Page(plain)
        assert [(name, [*attributes]) for name, attributes in read.tags] == [
            (name, [*attributes]) for name, attributes in harmless.tags
        ]
        assert "script" not in {name for name, _ in read.tags}
        assert "\x1b" not in evil
        assert read.text.count("<script>alert(1)</script>") > 20


def test_a_page_loads_nothing() -> None:
    for page in (check_html(cluster(), findings(), "now"), record_html(record())):
        assert re.findall(r"(?:src|href)=|url\(|@import|https?:", page) == []
        assert "prefers-color-scheme: dark" in page


def test_a_check_shows_every_node_with_its_votes_versions_and_links() -> None:
    page = check_html(cluster(), findings(), "2026-11-21T08:00:00Z")
    text = Page(page).text
    assert "Cluster home" in text
    assert "silent: timed out" in text
    rows = re.findall(r"<tr><td>(.*?)</tr>", page)
    assert [row.replace("</td>", "").split("<td>") for row in rows] == [
        ["pve1", "quorate", "10.0.0.1", "9.1", "3", "7", "6", "7"],
        ["pve2", "quorate", "10.0.0.2", "9.1", "1", "7", "6", "7"],
        ["pve3", "silent: timed out", "10.0.0.3", "-", "1", "-", "-", "-"],
    ]
    assert page.count('<line class="up"') == 1
    assert page.count('<line class="down"') == 2


def test_a_link_is_down_when_either_end_says_so() -> None:
    facts = cluster()
    one, two = facts.nodes
    broken = replace(facts, nodes=(one, replace(two, links=(Link(1, 0, is_connected=False),))))
    for seen in (broken, replace(broken, nodes=broken.nodes[::-1])):
        assert link_states(seen)[frozenset(("pve1", "pve2"))] == "down"
    assert link_states(facts)[frozenset(("pve1", "pve2"))] == "up"


def test_a_record_shows_each_command_with_its_code_and_time_and_how_it_ended() -> None:
    text = Page(record_html(record())).text
    assert "pve1$ pvecm delnode\nnot known\nexit code 255, 1.2s" in text
    assert "It did not come to its end." in text
    assert "not reached" in text
    assert "Done." in Page(record_html(replace(record(), error=""))).text
    assert "It has no end: the run was cut off." in Page(record_html(replace(record(), error="", ended=""))).text


def test_a_node_alone_and_a_cluster_that_nobody_knows_have_a_page() -> None:
    page = Page(check_html(ClusterFacts("root@x", (NodeFacts("x", "10.0.0.9"),)), (), "now"))
    assert "alone" in page.text
    unknown = Page(check_html(ClusterFacts("root@x", ()), (), "now"))
    assert [name for name, _ in unknown.tags].count("svg") == 1
