"""The blocks of code on the project's pages: what they are, and how each kind of them is tried."""

from __future__ import annotations

import hashlib
import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import yaml

from provisioner.cli.app import app

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
NOT_TRIED = ROOT / "tests/data/blocks_not_tried.yml"
"""The blocks that nothing tries, by page and number, each with the reason."""
LAB_KEYS = frozenset({"name", "hosts", "models", "upstreams", "containers", "snapshots", "fit_check"})
ANYTHING = "…"
"""Stands on a page for what differs from run to run: within a line for a part of it, alone for any number of lines."""
_BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One block of a page; ``number`` counts those of its page from 1."""

    page: str
    number: int
    language: str
    text: str

    @property
    def name(self) -> str:
        """By this it is listed."""
        return f"{self.page} {self.number}"

    @property
    def is_lab(self) -> bool:
        """Whether it is a lab's file, or a part of one that begins at its left edge."""
        keys = re.findall(r"^(\w+):", self.text, re.MULTILINE)
        return self.language == "yaml" and bool(keys) and LAB_KEYS.issuperset(keys)


@dataclass(frozen=True)
class Command:
    """A command of a ``console`` block, and what it prints."""

    line: str
    output: str


def blocks() -> Iterator[Block]:
    """All of them, page by page."""
    for page in PAGES:
        name = page.name if page.parent == ROOT / "docs" else "/README.md"
        for number, (language, text) in enumerate(_BLOCK.findall(page.read_text(encoding="utf-8")), 1):
            yield Block(name, number, language, textwrap.dedent(text))


def not_tried() -> dict[str, str]:
    """Why nothing tries these blocks."""
    read: dict[str, str] = yaml.safe_load(NOT_TRIED.read_text(encoding="utf-8"))
    return read


def commands(text: str) -> Iterator[Command]:
    """What a ``console`` block runs, line by line: a command begins with ``$``, its output follows."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        line, _, output = part.partition("\n")
        yield Command(line, output)


def without_progress(output: str) -> str:
    """What a program printed, without how far its steps were: it tells that only of those that take long."""
    steps = set(re.findall(r"^(\S+: .+) done after ", output, re.MULTILINE))
    targets = tuple(step.split(" ")[0] for step in steps)
    kept = []
    for line in output.splitlines(keepends=True):
        is_of_a_step = line.rstrip() in steps or " done after " in line
        if is_of_a_step or not line.startswith(targets):
            kept.append(line)
    return "".join(kept)


def prints(pattern: str, output: str) -> bool:
    """Whether a program's output is what the page says."""
    lines = []
    for line in pattern.strip().splitlines():
        if line.strip() == ANYTHING:
            lines.append(r"(?:.*\n)*?")
        else:
            lines.append(re.escape(line.rstrip()).replace(ANYTHING, ".+?") + r" *\n")
    return re.fullmatch("".join(lines), output.strip() + "\n" if output.strip() else "") is not None


def whole(text: str) -> str:
    """A lab's file of which the page shows a part: with a name, a container, and hashes in their full length."""
    keys = re.findall(r"^(\w+):", text, re.MULTILINE)
    before = "" if "name" in keys else "name: page\n"
    if "containers" not in keys:
        before += "containers: { page: {} }\n"
    if "models" not in keys and "model: coder" in text:
        before += 'models: { coder: { source: "builtin:tiny" } }\n'
    return before + re.sub(rf"\b(sha256|fingerprint): \"?[0-9a-f]*{ANYTHING}\"?", rf'\1: "{"5f" * 32}"', text)


def secrets_of(text: str) -> dict[str, str]:
    """A value for each secret that a lab's file names, in the variable that it is read from.

    A host whose services take turns names one without a word.
    """
    names = set(re.findall(r"!secret ([\w-]+)", text))
    names |= {f"share-{host}" for host in re.findall(r"^ +([\w-]+): \{.*\bshare: \[", text, re.MULTILINE)}
    return {
        f"PROVISION_SECRET_{name.upper().replace('-', '_')}": f"sk-{hashlib.sha256(name.encode()).hexdigest()}"
        for name in names
    }


def wrong_lines(text: str) -> Iterator[str]:
    """The lines of a block for a shell that cannot be right: unknown verbs, options, targets, files and modules."""
    for line in text.replace("\\\n", " ").splitlines():
        for call in _calls(line):
            try:
                _check(call)
            except (click.ClickException, LookupError) as error:
                yield f"{line}: {error.format_message() if isinstance(error, click.ClickException) else error}"


def _calls(line: str) -> Iterator[list[str]]:
    """The programs of a line with their arguments, without ``sudo`` and variables."""
    words = [*shlex.split(line, comments=True), "|"]
    call: list[str] = []
    for word in words:
        if word in {"|", ";", "&&"}:
            if call:
                yield call
            call = []
        elif call or not (word == "sudo" or re.match(r"[A-Z_]+=", word)):
            call.append(word)


def _check(call: list[str]) -> None:
    """``LookupError`` or ``ClickException`` when what is called is not there, or would not take these arguments."""
    program, arguments = call[0], call[1:]
    if program == "provision":
        _parse(app, "provision", arguments, None)
    elif program == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        if arguments[0] not in targets:
            raise LookupError(f"make has no target {arguments[0]}")
    elif program == ".venv/bin/pytest":
        if not (ROOT / arguments[0].partition("::")[0]).exists():
            raise LookupError(f"there is no {arguments[0]}")
    elif program == ".venv/bin/python" and arguments[0] == "-m":
        file = ROOT / arguments[1].replace(".", "/")
        if not (file.is_dir() or file.with_suffix(".py").exists()):
            raise LookupError(f"there is no module {arguments[1]}")
    else:
        raise LookupError(f"nobody knows what {program} takes: list the block in {NOT_TRIED.relative_to(ROOT)}")


def _parse(command: click.Command, name: str, arguments: list[str], parent: click.Context | None) -> None:
    """Have the program's own parser take the arguments, and run nothing; ``ClickException`` says what it refuses."""
    context = command.make_context(name, list(arguments), parent=parent)
    if isinstance(command, click.Group):
        words = [*context._protected_args, *context.args]  # click has no other word for them
        if not words:
            return
        verb, found, rest = command.resolve_command(context, words)
        if found is not None and verb is not None:
            _parse(found, verb, rest, context)
