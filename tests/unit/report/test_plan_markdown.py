"""A plan as Markdown: read by a real parser, whatever names and reasons hold."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt
from syrupy.assertion import SnapshotAssertion

from provisioner.plan import Change, Plan
from provisioner.report.plan_markdown import LONGEST, plan_markdown
from provisioner.values.state import Instance, Service, Status
from tests.case_files import read_cases

CASES = read_cases("report/plan_markdown")

GIB = 1024**3
LLAMA = Instance(name="llama", host="box", lab="homelab", image="debian/12", memory=2 * GIB)
CREATE = Change("create", "llama", None, LLAMA, "in the file, not on the host")
SMALLER = replace(LLAMA, memory=GIB, status=Status.RUNNING)
UPDATE = Change("update", "llama", SMALLER, LLAMA, "it differs from the file")
REPLACE = Change("replace", "llama", SMALLER, LLAMA, "asked for by --replace")
DELETE = Change("delete", "old", replace(SMALLER, name="old"), None, "no longer in the file")
HOSTILE = CASES["hostile"]

TAGS = "h3|p|blockquote|strong|table|thead|tbody|tr|th|td|code|pre|details|summary"
OURS = re.compile(rf'</?(?:{TAGS})(?: class="language-diff")?>')


def rendered(text: str) -> str:
    """What a reader's program makes of it."""
    html: str = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text)
    return html


def cells_of(html: str) -> list[list[str]]:
    """The cells of the table, row by row, as they are shown."""
    return [re.findall(r"<td>(.*?)</td>", row, re.DOTALL) for row in re.findall(r"<tr>(.*?)</tr>", html, re.DOTALL)]


PLANS = {
    "creation and update": Plan((CREATE, UPDATE)),
    "what is lost": Plan((REPLACE, DELETE)),
    "without changes": Plan(orphans=(replace(LLAMA, name="other"),), leftovers=("llama/kokoro",)),
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_it_says_how_much_what_and_why_and_every_attribute(plan: Plan, snapshot: SnapshotAssertion) -> None:
    assert plan_markdown(plan, "homelab") == snapshot


@pytest.mark.parametrize("words", HOSTILE)
def test_nothing_that_others_chose_is_more_than_text(words: str) -> None:
    service = Service("llama_cpp", words, "engine", {}, port=8080)
    named = replace(LLAMA, name=words, host=words, image=words, services=(service,))
    plan = Plan((Change("create", words, None, named, words), replace(REPLACE, reason=words)), (named,), (words,))
    html = rendered(plan_markdown(plan, words))
    assert re.findall(r"<[^>]+>", OURS.sub("", html)) == []
    assert [len(row) for row in cells_of(html)[1:]] == [4, 4]
    assert html.count("<details>") == html.count("</details>") == 1
    assert "<s>" not in html
    assert "<em>" not in html
    assert html.count("<strong>") == 1  # our own
    # Hosts of repositories make calls and links of these beyond Markdown: they are not written as such outside of code.
    outside = re.sub(r"<code.*?</code>", "", html, flags=re.DOTALL)
    source = re.sub(r"(?s)```+diff.*", "", plan_markdown(plan, words))
    assert "@everybody" not in re.sub(r"`+[^`]+`+", "", source)
    assert "\u202e" not in outside


def test_a_plan_that_is_too_long_for_a_comment_is_cut_and_says_so() -> None:
    many = tuple(replace(CREATE, target=f"c{number}") for number in range(400))
    text = plan_markdown(Plan(many), "homelab")
    assert len(text) < 65_536
    assert re.search(r"and \d+ lines more: run provision plan\n```\n\n</details>$", text)
    assert LONGEST < 65_536
