"""Every block of the README and of docs is run or validated, or listed with the reason why not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from provisioner.cli.app import VERBS, run
from tests import documented
from tests.case_files import read_cases
from tests.documented import Block
from tests.signed_pairs import signed

CASES = read_cases("documented_blocks")

TOUR, MEASURING = "tour.md", "measuring.md"
BLOCKS = list(documented.blocks())
LISTED = documented.not_tried()
SHELL = [block for block in BLOCKS if block.language == "sh" and block.name not in LISTED]
LABS = [block for block in BLOCKS if block.is_lab and block.name not in LISTED]
RUN = [block for block in BLOCKS if block.language == "console" and block.page in (TOUR, MEASURING)]
"""Each line of them is run on a real host: by tests/integration/up/test_tour.py and test_one_lab_up.py."""


def named(block: Block) -> str:
    return block.name.replace(" ", "-")


def valid(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether ``validate`` takes the lab's file, whose secrets have values."""
    for name, value in documented.secrets_of(text).items():
        monkeypatch.setenv(name, value)
    for name, value in given_certificate(text, folder).items():
        monkeypatch.setenv(name, value)
    file = folder / "homelab.yml"
    file.write_text(documented.whole(text), encoding="utf-8")
    return run(["validate", str(file)]) == 0


def given_certificate(text: str, folder: Path) -> dict[str, str]:
    """Write the file of the certificate that a lab's file names, for its sites; its key, by the variable."""
    place = re.search(r"\bcertificate: (\S+\.pem)", text)
    secret = re.search(r"\bcertificate_key: !secret (\w+)", text)
    if place is None or secret is None:
        return {}
    sites = re.findall(r"([\w-]+(?:\.[\w-]+)+): \w+/\w+", text)
    pair = signed("page", None, *sites)
    file = folder / place[1]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(pair.own, encoding="ascii")
    return {f"PROVISION_SECRET_{secret[1].upper()}": pair.key}


def test_no_block_is_forgotten() -> None:
    tried = {block.name for block in (*SHELL, *LABS, *RUN)}
    assert [block.name for block in BLOCKS if block.name not in tried and block.name not in LISTED] == []


def test_no_block_is_listed_that_is_not_there() -> None:
    assert [name for name in LISTED if name not in {block.name for block in BLOCKS}] == []
    assert all(LISTED.values())


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.name in LISTED], ids=named)
def test_no_block_is_listed_that_could_be_tried(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert block.language != "console"
    assert block.language != "sh" or list(documented.wrong_lines(block.text))
    assert not block.is_lab or not valid(block.text, tmp_path, monkeypatch)


@pytest.mark.parametrize("block", SHELL, ids=named)
def test_the_program_takes_each_line_for_a_shell(block: Block) -> None:
    assert list(documented.wrong_lines(block.text)) == []


@pytest.mark.parametrize("line", CASES["a line that cannot be right is found"])
def test_a_line_that_cannot_be_right_is_found(line: str) -> None:
    assert list(documented.wrong_lines(f"provision plan  # fine\n{line}"))


@pytest.mark.parametrize("block", LABS, ids=named)
def test_each_file_is_valid(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert valid(block.text, tmp_path, monkeypatch)


@pytest.mark.parametrize(
    "text", ["containers: { one: { cpus: 2 } }", "name: page\nmodels: { m: { sauce: x } }", "fit_check: perhaps"]
)
def test_a_file_that_says_what_nobody_knows_is_found(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not valid(text, tmp_path, monkeypatch)


def test_every_verb_is_run_on_the_tour() -> None:
    lines = [command.line for block in RUN if block.page == TOUR for command in documented.commands(block.text)]
    verbs = {line.split()[1] for line in lines if line.startswith("provision ")}
    assert sorted(set(VERBS) - verbs) == []


def test_how_far_a_step_is_does_not_count() -> None:
    told = "web: creating\nweb: wait until it is ready\nweb: creating done after 4.2s\nweb | a line\ndb: no step\n"
    assert documented.without_progress(told) == told.replace("web: wait until it is ready\n", "")
    assert documented.without_progress("web: a line of a page\n") == "web: a line of a page\n"


@pytest.mark.parametrize(
    ("pattern", "output"),
    [
        ("", "one\n"),
        ("one", ""),
        ("one", "one\ntwo\n"),
        ("done after …s", "done after s"),
        ("…\nlast", "first\nlast\nmore\n"),
        ("a.c", "abc"),
    ],
)
def test_what_differs_from_the_page_is_found(pattern: str, output: str) -> None:
    assert not documented.prints(pattern, output)
