"""The page of ``report`` in a real browser: it says nothing, asks for nothing, and breaks no rule of axe."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from provisioner.page.content import LabContent
from provisioner.page.page import lab_page
from tests.browser import Tab, opened, program
from tests.lab_pages import HOSTILE, empty_lab, full_lab

pytestmark = [pytest.mark.network, pytest.mark.slow]

AXE = "axe-core@4.14.1"
AXE_SHA512 = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
"""By npm's registry (``dist.integrity``)."""
RULES = """axe.run(document, {resultTypes: ["violations"]}).then(result => result.violations.map(
    rule => [rule.id, rule.nodes.map(node => node.html.slice(0, 200))]))"""
LABS = {"full": full_lab(), "hostile": full_lab(HOSTILE), "empty": empty_lab()}
WIDE, PHONE = 1280, 390


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The rules for accessible pages, as npm has them, with the hash that is written here."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("needs npm: it brings axe-core")
    folder = tmp_path_factory.mktemp("axe")
    subprocess.run([npm, "pack", "--silent", AXE], cwd=folder, check=True, timeout=120, stdout=subprocess.DEVNULL)
    (package,) = folder.glob("*.tgz")
    assert base64.b64encode(hashlib.sha512(package.read_bytes()).digest()).decode() == AXE_SHA512
    with tarfile.open(package) as archive:
        file = archive.extractfile("package/axe.min.js")
        assert file is not None
        return file.read().decode("utf-8")


@pytest.fixture
def tab(tmp_path: Path) -> Iterator[Tab]:
    """A browser without a window."""
    browser = program()
    if browser is None:
        pytest.skip("needs Chromium: apt install chromium")
    with opened(browser, tmp_path / "profile") as found:
        yield found


def written(content: LabContent, folder: Path) -> Path:
    """The page of a lab as a file."""
    file = folder / "lab.html"
    file.write_text(lab_page(content), encoding="utf-8")
    return file


@pytest.mark.parametrize("name", LABS)
def test_it_says_nothing_asks_for_nothing_and_fits_on_a_phone(name: str, tab: Tab, tmp_path: Path) -> None:
    page = written(LABS[name], tmp_path)
    tab.looks()
    tab.open(page)
    assert tab.said == []
    asked = [address for address in tab.requests if not address.startswith("data:image/png;base64,")]
    assert asked == [page.as_uri()]
    assert tab.value("document.querySelectorAll('script').length") == 0
    for width in (WIDE, PHONE):
        tab.looks(width=width)
        assert tab.value("document.documentElement.scrollWidth - innerWidth") <= 0
    assert tab.said == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", LABS)
def test_it_breaks_no_rule_for_accessible_pages(name: str, scheme: str, axe: str, tab: Tab, tmp_path: Path) -> None:
    tab.looks(scheme=scheme, width=PHONE if name == "empty" else WIDE)
    tab.open(written(LABS[name], tmp_path))
    tab.value("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert found_by(axe, tab) == []


def test_axe_finds_what_is_broken(axe: str, tab: Tab, tmp_path: Path) -> None:
    page = written(empty_lab(), tmp_path)
    page.write_text(page.read_text().replace("<h1>", '<img src="data:image/png;base64,"><h1>'))
    tab.open(page)
    assert "image-alt" in [rule for rule, _ in found_by(axe, tab)]


def test_a_browser_refuses_what_is_smuggled_in(tab: Tab, tmp_path: Path) -> None:
    page = written(empty_lab(), tmp_path)
    smuggled = '<script>document.title = "ran"</script><img src="http://127.0.0.1:9/x.png" alt=""><h1>'
    page.write_text(page.read_text().replace("<h1>", smuggled))
    tab.open(page)
    assert tab.value("document.title") == "Lab empty"
    assert "Content Security Policy" in " ".join(tab.said)


def found_by(axe: str, tab: Tab) -> list[Any]:
    """The rules that the page breaks, with the elements."""
    tab.value(f"{axe}; 0")
    found: list[Any] = tab.value(RULES)
    return found


def test_on_paper_it_is_white_and_nothing_is_folded(tab: Tab, tmp_path: Path) -> None:
    tab.looks(scheme="dark")
    tab.open(written(full_lab(), tmp_path))
    assert tab.value("getComputedStyle(document.body).backgroundColor") == "rgb(13, 17, 23)"
    closed = "[...document.querySelectorAll('details:not([open])')]"
    folded = f"{closed}.filter(one => !one.lastChild.checkVisibility()).length"
    assert tab.value(folded) > 5
    tab.looks(scheme="dark", width=794, media="print")
    assert tab.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.value(folded) == 0
    assert tab.value("getComputedStyle(document.querySelector('nav')).display") == "none"


def test_its_pictures_are_for_people_to_look_at(tab: Tab, tmp_path: Path) -> None:
    """PROVISION_TEST_PICTURES names the folder into which they go: light, dark, a phone, paper."""
    folder = Path(os.environ.get("PROVISION_TEST_PICTURES") or tmp_path)
    tab.looks()
    tab.open(written(full_lab(), tmp_path))
    tab.picture(folder / "report.png", height=1440)
    for scheme, width in (("light", WIDE), ("dark", WIDE), ("dark", PHONE)):
        tab.looks(scheme=scheme, width=width)
        tab.picture(folder / f"report-{scheme}-{width}.png")
    tab.paper(folder / "report.pdf")
    assert (folder / "report.png").stat().st_size > 10_000
    assert (folder / "report.pdf").read_bytes().startswith(b"%PDF")
