"""A plan as Markdown: read by GitHub's own parser, whatever names and reasons hold."""

from __future__ import annotations

import re
from dataclasses import replace

import cmarkgfm
import pytest
from cmarkgfm.cmark import Options
from syrupy.assertion import SnapshotAssertion

from provisioner.reconcile.text import LONGEST, plan_markdown
from provisioner.values.plan import Change, Plan
from provisioner.values.state import Artifact, Instance, Service, Status
from tests.case_files import read_cases

CASES = read_cases("report/plan_markdown")

GIB = 1024**3
LLAMA = Instance(name="llama", host="box", lab="homelab", image="debian/12", memory=2 * GIB)
CREATE = Change("create", "llama", None, LLAMA, "in the file, not on the host")
SMALLER = replace(LLAMA, memory=GIB, status=Status.RUNNING)
UPDATE = Change("update", "llama", SMALLER, LLAMA, "it differs from the file")
REPLACE = Change("replace", "llama", SMALLER, LLAMA, "asked for by --replace")
DELETE = Change("delete", "old", replace(SMALLER, name="old"), None, "no longer in the file")
HOSTILE = [*CASES["hostile"], f"{'`' * 90} @octocat", f"{'`' * 300} @octocat", f"{'x' * 5000} @octocat"]


def outside_of_code(words: str) -> str:
    """Return the page of a plan in which others chose ``words``, without what stands in code."""
    service = Service("llama_cpp", words, "engine", {}, port=8080)
    named = replace(LLAMA, name=words, host=words, image=words, services=(service,))
    built = Change(
        "build", words, None, Artifact(words, words, words, "llama_cpp", words, words, mounted_at=words), words
    )
    plan = Plan(
        (Change("create", words, None, named, words), built, replace(REPLACE, reason=words)), (named,), (words,)
    )
    html: str = cmarkgfm.github_flavored_markdown_to_html(plan_markdown(plan, words), Options.CMARK_OPT_UNSAFE)
    return re.sub(r"(<code[^>]*>).*?</code>", r"\1</code>", html, flags=re.DOTALL)


PLANS = {
    "creation and update": Plan((CREATE, UPDATE)),
    "what is lost": Plan((REPLACE, DELETE)),
    "without changes": Plan(orphans=(replace(LLAMA, name="other"),), leftovers=("llama/kokoro",)),
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_it_says_how_much_what_and_why_and_every_attribute(plan: Plan, snapshot: SnapshotAssertion) -> None:
    assert plan_markdown(plan, "homelab") == snapshot


@pytest.mark.parametrize("words", HOSTILE, ids=range(len(HOSTILE)))
def test_nothing_that_others_chose_is_more_than_code(words: str) -> None:
    assert outside_of_code(words) == outside_of_code("plain")


def test_others_cannot_fill_a_comment() -> None:
    said = tuple(Change("configure", f"llama/{number}", None, LLAMA, "x" * 5000) for number in range(200))
    leftovers = tuple(f"llama/{'x' * 250}{number}" for number in range(1000))
    text = plan_markdown(Plan(said, leftovers=leftovers), "homelab")
    assert len(text) < 65_536
    assert re.search(r"\| and \d+ more: run provision plan \|$", text, re.MULTILINE)
    assert text.endswith("</details>")


def test_a_plan_that_is_too_long_for_a_comment_is_cut_and_says_so() -> None:
    many = tuple(replace(CREATE, target=f"c{number}") for number in range(400))
    text = plan_markdown(Plan(many), "homelab")
    assert len(text) < 65_536
    assert re.search(r"and \d+ lines more: run provision plan\n```\n\n</details>$", text)
    assert LONGEST < 65_536
