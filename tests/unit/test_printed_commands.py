"""Every command that is printed as what to type exists: our verbs by click's own parser, others by the real program."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from provisioner.cli import app
from tests.doubles.proxmox.schema import methods

REPOSITORY = Path(__file__).resolve().parents[2]
FILLED = "x0"
"""Stands for what a message fills in."""
BEGINNING = r"(?:^\$ |^|`|[:;] |&& |\|\| |\brun |\bRun |\bto )"
END = r"(?=[`\n;()\"]|\.(?:\s|$)|, |: | && | \|\| | \| |$)"
OURS = re.compile(rf"{BEGINNING}provision ([a-z][^`\n]*?){END}", re.MULTILINE)
OTHERS = re.compile(rf"{BEGINNING}((?:incus|systemctl|apt-get|apt) [a-z][^`\n]*?){END}", re.MULTILINE)
PROSE = frozenset({"did", "never", "on", "ended", "is", "has", "reads", "repository", "mend", FILLED})
"""Words behind a program's name in sentences about it, and a verb that somebody has typed in vain."""
PLACEHOLDER = re.compile(r"<[a-z ]+>|(?<![\w$./=-])[A-Z][A-Z_]{2,}(?![\w=])")
NO_PLACEHOLDERS = frozenset({"HAX", "NVIDIA", "API", "LXC"})
NODE_PROGRAMS = re.compile(rf"{BEGINNING}((?:pct|pvesm|pveum|pvesh|pvecm|ha-manager) [a-z][^`\n]*?){END}", re.MULTILINE)
LEFT = {
    "ha-manager migrate x0 NODE",
    "pct set <its number> --protection 0",
    "pct set VMID --hostname NAME",
    "pct unlock <its number>",
    "pvesm set NAME --content rootdir,images",
}
"""What is printed with a word that somebody has to replace, because the number or name is not known there."""


@cache
def messages() -> tuple[tuple[str, str], ...]:
    """All texts of the product that are no docstrings, with where they stand; filled places say ``FILLED``."""
    found = []
    for path in sorted((REPOSITORY / "src/provisioner").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        skipped = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr):
                skipped.add(id(node.value))
            if isinstance(node, ast.JoinedStr):
                skipped.update(id(part) for part in node.values)
        for node in ast.walk(tree):
            text = text_of(node)
            if text and id(node) not in skipped:
                found.append((f"{path.relative_to(REPOSITORY)}:{getattr(node, 'lineno', 0)}", text))
    return tuple(found)


def text_of(node: ast.AST) -> str:
    """The text that an expression gives, "" where it gives none."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"(?<!\{)\{\w+\}", FILLED, node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) if isinstance(part, ast.Constant) else FILLED for part in node.values)
    return ""


def rendered() -> Iterator[tuple[str, str]]:
    """What tests have seen printed, and what pages say."""
    for pattern in ("tests/**/__snapshots__/**/*.txt", "docs/*.md", "README.md"):
        for path in sorted(REPOSITORY.glob(pattern)):
            yield str(path.relative_to(REPOSITORY)), path.read_text(encoding="utf-8")


def fault_of(line: str) -> str:
    """What click says of our command ``line``; "" where its verb and options exist."""
    command: click.Command = app.app
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return ""  # cut by a message's own quotes
    words = words[: words.index("--")] if "--" in words else words
    context = click.Context(command, info_name="provision")
    while isinstance(command, click.Group) and words:
        if words[0].startswith("-"):
            return ""  # an option of all verbs
        found = command.get_command(context, words[0])
        if found is None:
            return "" if words[0] in PROSE else f"no verb {words[0]}"
        command, words = found, words[1:]
        context = click.Context(command, parent=context, info_name=command.name)
    try:
        command.make_parser(context).parse_args(args=[word for word in words if word != "…"])
    except click.NoSuchOption as error:
        return error.format_message()
    except click.UsageError:
        return ""  # cut before the argument of its last option
    return ""


@pytest.mark.parametrize("origin", ["messages", "rendered"])
def test_our_own_verbs_and_options_exist(origin: str) -> None:
    texts = list(messages() if origin == "messages" else rendered())
    found = [(where, match[1]) for where, text in texts for match in OURS.finditer(text)]
    assert len(found) > 50
    wrong = [f"{where}: provision {line}: {fault}" for where, line in found if (fault := fault_of(line))]
    assert wrong == []


def test_a_verb_or_an_option_that_is_none_is_seen() -> None:
    assert fault_of("host prepare homelab.yml pve1 --print") == ""
    assert fault_of("upp homelab.yml") == "no verb upp"
    assert "No such option" in fault_of("host prepare --prnt")
    assert "No such option" in fault_of("exec web --shell")


@cache
def help_of(*words: str) -> str:
    done = subprocess.run([*words, "--help"], capture_output=True, text=True, check=False, timeout=60)
    return done.stdout + done.stderr


def test_commands_of_other_programs_exist_in_the_real_ones() -> None:
    wrong = []
    for where, text in [*messages(), *rendered()]:
        for match in OTHERS.finditer(text):
            program, verb, *_ = match[1].replace("'", "").split()
            if verb in PROSE or shutil.which(program) is None:
                continue
            if re.search(rf"^\s+{re.escape(verb)}\b", help_of(program), re.MULTILINE) is None:
                wrong.append(f"{where}: {match[1]}")
    assert wrong == []


def test_what_pvesh_is_told_to_ask_is_in_the_schema_of_the_api() -> None:
    verbs = {"get": "GET", "create": "POST", "set": "PUT", "delete": "DELETE"}
    known = {re.sub(r"\{\w+\}", "{}", method) for method in methods()}
    wrong = []
    for where, text in messages():
        for verb, path in re.findall(r"\bpvesh (get|create|set|delete) (/[\w/-]*)", text):
            shape = f"{verbs[verb]} {re.sub(rf'/{FILLED}', '/{}', path)}"
            if shape not in known and not path.startswith("/cluster/backup"):  # the schema here lacks that
                wrong.append(f"{where}: pvesh {verb} {path}")
    assert wrong == []


def test_what_is_printed_for_a_node_is_ready_to_be_typed() -> None:
    found = set()
    for _, text in messages():
        for match in NODE_PROGRAMS.finditer(text):
            words = set(PLACEHOLDER.findall(match[1])) - NO_PLACEHOLDERS
            if words:
                found.add(match[1].strip())
    assert found == LEFT, "say the number or name; what is left in the list only shrinks"
