"""The README is short, every link leads somewhere, every page is listed, and every verb is described."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.cli.app import VERBS

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = sorted((ROOT / "docs").rglob("*.md"))
MOST_LINES = 150
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def anchors_of(text: str) -> set[str]:
    """The names by which the headings of a page are led to, as GitHub makes them."""
    without_code = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    found = set()
    for heading in HEADING.findall(without_code):
        plain = re.sub(r"[^\w\- ]", "", heading.lower())
        found.add(plain.replace(" ", "-"))
    return found


def broken_links(page: Path) -> Iterator[str]:
    """The relative links of a page that lead nowhere."""
    text = CODE.sub("", page.read_text(encoding="utf-8"))
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        if not target.exists():
            yield f"{link}: there is no such file"
        elif anchor and anchor not in anchors_of(target.read_text(encoding="utf-8")):
            yield f"{link}: there is no such heading"


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


@pytest.mark.parametrize("page", [README, ROOT / "CHANGELOG.md", *PAGES], ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    assert list(broken_links(page)) == []


@pytest.mark.parametrize("link", ["none.md", "page.md#nowhere", "#nowhere"])
def test_a_link_that_leads_nowhere_is_found(tmp_path: Path, link: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# A page\n\n[it]({link}) and [itself](#a-page), `[code](none.md)`\n", encoding="utf-8")
    assert len(list(broken_links(page))) == 1


def test_every_page_is_listed() -> None:
    listed = set(LINK.findall((ROOT / "docs/README.md").read_text(encoding="utf-8")))
    pages = {str(page.relative_to(ROOT / "docs")) for page in PAGES}
    assert pages - {"README.md"} == {link for link in listed if link.endswith(".md")}


def test_every_verb_is_described() -> None:
    described = (ROOT / "docs/verbs.md").read_text(encoding="utf-8")
    first_cells = " ".join(line.split("|")[1] for line in described.splitlines() if line.startswith("| `"))
    words = set(re.findall(r"[a-z-]+", first_cells))
    missing = [name for name in VERBS if name not in words]
    assert missing == []
