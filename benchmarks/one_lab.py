"""What ``docs/measuring.md`` shows: its commands are run in their order in one lab, and what they print written there.

The page is the list of commands; its picture is taken where this machine has a browser.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

from benchmarks.labs import Labs
from benchmarks.measuring import BIN, ROOT, Row, say
from benchmarks.small_models import write_models
from provisioner.measuring.endpoints import WORDS
from provisioner.values.regular_files import text_of
from tests import browser, documented

PAGE = ROOT / "docs/measuring.md"
PICTURE = PAGE.with_suffix(".png")
MOST_LINES, LAST_LINES = 40, 4
"""Of a longer output only its end is shown."""
WORDS_OF_TEXT, SEED = 24_000, 24
"""Of the text that the quants are asked to read."""
LAB_PAGE = "lab.html"
PICTURE_HEIGHT = 1500
"""Pixels of the page that are shown."""
SHOWN_FOLDER = "/home/penny/lab"
"""Stands on the page for the folder in which the commands were run."""
BLOCK = re.compile(r"(?P<fence>^```console\n)(?P<text>.*?)(?P<end>^```$)", re.MULTILINE | re.DOTALL)
LAB = re.compile(r"^```yaml\n(?P<text>name: .*?)^```$", re.MULTILINE | re.DOTALL)
STILL = re.compile(r"^\S+: still .+ \([\dm s]+\)\n", re.MULTILINE)
"""How a program says that it is at the same step as before."""
MEASUREMENTS = "[...document.querySelectorAll('h2')].find(one => one.textContent.startsWith('Probes'))"
TIMEOUT_S = 3600


class CommandFailedError(Exception):
    """A command of the page ended otherwise than well; the page is as it was."""


def rows(_labs: Labs, _rounds: int) -> list[Row]:
    """How long each command of the page took, in seconds; then the page holds what they printed.

    Raises ``CommandFailedError`` where one fails; the page is as it was then.
    """
    took: list[Row] = []

    def run(command: str, folder: Path) -> str:
        say(f"one lab: {command}")
        began = monotonic()
        printed = ran(command, folder)
        took.append(Row(f"one lab: {command}", [monotonic() - began], "s"))
        return printed

    with tempfile.TemporaryDirectory(prefix="bench-one-lab-") as place:
        folder = Path(place)
        page = text_of(PAGE)
        prepare(folder, page)
        try:
            written = rewritten(page, lambda command: run(command, folder)).replace(str(folder), SHOWN_FOLDER)
        finally:
            destroy(folder)
        PAGE.write_text(written, encoding="utf-8")
        _take_picture(folder)
    return took


def prepare(folder: Path, page: str) -> None:
    """Lay the page's file, its secrets, its models and a text into a folder."""
    write_models(folder / "models")
    (folder / "homelab.yml").write_text(lab_of(page), encoding="utf-8")
    chance = random.Random(SEED)  # noqa: S311  # the same each time
    (folder / "text.txt").write_text(" ".join(chance.choices(WORDS, k=WORDS_OF_TEXT)), encoding="utf-8")
    ran("provision init --secrets", folder)


def destroy(folder: Path) -> None:
    """Delete the lab and all that it has left."""
    name = re.search(r"^name: (\S+)$", text_of(folder / "homelab.yml"), re.MULTILINE)
    if name is not None:
        ran(f"provision destroy --prune --yes --lab {name[1]}", folder)


def lab_of(page: str) -> str:
    """The lab's file that stands on the page; raises ``LookupError`` where none does."""
    found = LAB.search(page)
    if found is None:
        raise LookupError(f"{PAGE.name} holds no lab")
    return found["text"]


def commands_of(page: str) -> Iterator[documented.Command]:
    """Each command of the page with what it prints, in their order."""
    for block in BLOCK.finditer(page):
        yield from documented.commands(block["text"])


def rewritten(page: str, run: Callable[[str], str]) -> str:
    """The page with what ``run`` gives under each of its commands; all else of it stays."""

    def anew(block: re.Match[str]) -> str:
        parts = []
        for command in documented.commands(block["text"]):
            printed = shortened(run(command.line))
            ended = "" if not printed or printed.endswith("\n") else "\n"
            parts.append(f"$ {command.line}\n{printed}{ended}")
        return f"{block['fence']}{''.join(parts)}{block['end']}"

    return BLOCK.sub(anew, page)


def shortened(printed: str) -> str:
    """What a page shows of an output: all of it, or of a long one its end."""
    lines = printed.splitlines(keepends=True)
    if len(lines) <= MOST_LINES:
        return printed
    return "".join([f"{documented.ANYTHING}\n", *lines[-LAST_LINES:]])


def ran(command: str, folder: Path, timeout_s: float = TIMEOUT_S) -> str:
    """What a command that must succeed printed, without its progress; raises ``CommandFailedError`` with its words."""
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "120"}
    environment["XDG_STATE_HOME"] = str(folder / "state")
    done = subprocess.run(
        ["/bin/sh", "-c", command],  # a line of the page, as its reader types it
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode:
        raise CommandFailedError(f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
    return STILL.sub("", documented.without_progress(done.stdout))


def _take_picture(folder: Path) -> None:
    """What a reader of the lab's page sees of its measurements."""
    program = browser.program()
    if program is None:
        say("one lab: no picture is taken, as there is no browser")
        return
    shown = folder / f"shown-{LAB_PAGE}"
    shown.write_text(text_of(folder / LAB_PAGE).replace(str(folder), SHOWN_FOLDER), encoding="utf-8")
    with browser.opened(program, folder / "browser") as tab:
        tab.open(shown)
        tab.looks()
        above = round(tab.value(f"{MEASUREMENTS}.getBoundingClientRect().top"))
        tab.picture(PICTURE, PICTURE_HEIGHT, above)
