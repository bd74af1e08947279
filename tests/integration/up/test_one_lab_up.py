"""``docs/measuring.md`` on a real host: each of its commands is run, and asks and tells what the page says.

Figures differ from run to run, so what is compared is the head of each table, and that every command ends well. Fewer
trials are made than on the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import one_lab
from tests.documented import Command
from tests.lab.incus import Lab as Incus

pytestmark = [pytest.mark.incus, pytest.mark.network, pytest.mark.slow]

TEXT = one_lab.PAGE.read_text(encoding="utf-8")
COMMANDS = list(one_lab.commands_of(TEXT))
HEAD = re.compile(r"^[A-Z][A-Z /%0-9.]{5,}$", re.MULTILINE)
"""How the head of a table looks: words in capitals."""
FEWER = {"--trials 20": "--trials 10", "--kind quality": "--kind quality --chunks 4"}
FEWER["--gate"] = "--gate --threshold 50"  # two short runs on a machine with other work
LOAD = "--kind load"
"""It fetches 1.6 GB, which ``tests/integration/test_load_bench.py`` does."""


@pytest.fixture(scope="module")
def folder(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The lab of the page, of which nothing is made yet."""
    folder = tmp_path_factory.mktemp("measured")
    with pytest.MonkeyPatch.context() as patched:
        for name, value in incus_lab.environment.items():
            patched.setenv(name, value)
        one_lab.prepare(folder, TEXT)
        one_lab.destroy(folder)  # what an interrupted run has left
        yield folder
        one_lab.destroy(folder)


@pytest.mark.parametrize("command", COMMANDS, ids=[one.line for one in COMMANDS])
def test_the_page_says_what_is_asked_and_told(folder: Path, command: Command) -> None:
    if LOAD in command.line:
        pytest.skip("tests/integration/test_load_bench.py asks with many clients")
    line = command.line
    for words, fewer in FEWER.items():
        line = line.replace(words, fewer)
    printed = one_lab.ran(line, folder)
    heads = HEAD.findall(command.output)
    for head in heads:
        assert head.split() in [one.split() for one in printed.splitlines()], printed
    assert bool(printed.strip()) == bool(command.output.strip()), printed
