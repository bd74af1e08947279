"""Has a program measure once in a container, in a unit of its own made of the engine's (``trial_unit``).

Reads JSON: ``unit`` (the name of the engine's unit), ``program`` (the name of the engine's program) and ``command``.
Where that is empty, nothing is started: the answer says with which ``words`` the engine is served, its program first,
and on what: ``threads`` (processors of the container), ``processor``, ``card``, ``driver``, ``free`` (bytes of its
disk); and ``build`` and ``model``: the SHA-256 of what lies in the mounts that hold them, as its unit says them, before
the first of them the commit of its sources, where it says one. Empty is what nobody tells.

Else ``command`` is started in the place of the engine's, with ``without`` (lines of its unit that hold one of these are
left out), ``no_room`` (what programs say when there is too little memory) and ``within_s``. ``begins``: lines that it
writes count where they begin so. ``text``: what ``TEXT`` holds meanwhile; ``most_bytes``: how long a file may be that
it writes into ``FOLDER``, 0 where it has none; that stays until ``forget`` is asked for. The answer: ``outcome``
(one of ``trial_unit.OUTCOMES``), ``words`` (what was said where it did not measure), ``lines`` (those that count),
``took_s``, and ``waited``: the part of that time in which something of the host waited for a processor, what waits by
a limit of its own left out; -1 where the kernel does not tell.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from provisioner.inside.cpu_waits import GROUPS, STAT, Waits, throttled_us, waits
from provisioner.inside.trial_unit import (
    ANSWERED,
    COMMAND_S,
    HUNG,
    REFUSED,
    FailedError,
    TrialUnit,
    state_of,
    trial_of,
    unit_text,
)

SAID = Path("/run/provision-trial.said")
CPUINFO = Path("/proc/cpuinfo")
LIMITED = Path("/run/provision-trial.limited")
NOTE = "ExecStopPost=-+/bin/sh -c 'cat {groups}$$(sed -n s/^0:://p /proc/self/cgroup)/{stat} > {file}'"
"""What its own limit kept from it is known when it has ended, and its control group is gone then: it says it itself."""
CARDS = ("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
COMMAND = re.compile(r"^ExecStart=(.+)$", re.MULTILINE)
ANY_COMMAND = re.compile(r"^ExecStart=.*$", re.MULTILINE)
WORD = re.compile(r'"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\'|(\S+)')
MOST_SAID = 2**20
"""Bytes that it may write to its output."""
TEXT = Path("/run/provision-trial.text")
STATE, FOLDER = Path("/var/lib"), "provision-trial"
"""What its user may write to, below the folder of all such ones."""
MARGIN_S = 60.0
BUILD, MODEL = "X-Artifact", "X-Model"
"""By which lines a unit says what is mounted."""


def words_in(text: str, program: str) -> list[str]:
    """The command of a unit from that program on, as its process gets it; none where it does not stand there."""
    for line in reversed(COMMAND.findall(text)):
        words = [_plain(found) for found in WORD.finditer(line)]
        for number, word in enumerate(words):
            if word.rpartition("/")[2] == program:
                return words[number:]
    return []


def _plain(found: re.Match[str]) -> str:
    """A word of a command as its process gets it."""
    quoted = next(group for group in found.groups() if group is not None)
    return re.sub(r"\\(.)", r"\1", quoted).replace("%%", "%").replace("$$", "$")


def command_line(words: Sequence[str]) -> str:
    """The words as the command of a unit, in which none of them is a variable, or more than one."""
    return " ".join(f'"{_escaped(word)}"' for word in words)


def _escaped(word: str) -> str:
    for mark, other in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$")):
        word = word.replace(mark, other)
    return word


def served(asked: Mapping[str, Any]) -> dict[str, Any]:
    """With which words an engine is served, and on what."""
    text = unit_text(asked["unit"])
    card, _, driver = _first_card().partition(", ")
    return {
        "words": words_in(text, asked["program"]),
        "threads": len(os.sched_getaffinity(0)),
        "processor": _processor(),
        "card": card,
        "driver": driver,
        "free": _free(),
        "build": " ".join(word for word in (_commit(text), _stack(text), noted(text, BUILD)) if word),
        "model": noted(text, MODEL),
    }


def _free() -> int:
    """Bytes of the disk that nobody uses, and those that a trial has written and nobody needs."""
    written = STATE / FOLDER
    return shutil.disk_usage(STATE).free + sum(file.lstat().st_size for file in written.glob("*"))


def _commit(text: str) -> str:
    """What a unit says of the sources that it runs, patches included; empty where it says nothing."""
    found = re.findall(r"^X-Commit=([0-9a-f]{40}(?: [\w.-]{1,80}){0,9})$", text, re.MULTILINE)
    return found[-1] if found else ""


def _stack(text: str) -> str:
    """The venv of a stack that a unit runs with: its name holds the checksum of all that was installed in it."""
    found = re.findall(r"^X-Python=/(?:.*/)?([0-9a-f]{16})$", text, re.MULTILINE)
    return found[-1] if found else ""


def noted(text: str, name: str) -> str:
    """The SHA-256 that a line of a unit holds, the last of that name; empty where none does."""
    found = re.findall(rf"^{name}=([0-9a-f]{{64}})$", text, re.MULTILINE)
    return found[-1] if found else ""


def _processor() -> str:
    for line in CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, said = line.partition(":")
        if name.strip() == "model name":
            return said.strip()
    return ""


def _first_card() -> str:
    try:
        done = subprocess.run(CARDS, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    except OSError:
        return ""
    lines = done.stdout.splitlines()
    return lines[0].strip() if done.returncode == 0 and lines else ""


def measured(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What it measured."""
    found: dict[str, Any] = {"outcome": ANSWERED, "words": "", "lines": [], "took_s": 0.0, "waited": -1.0}
    with TrialUnit(asked["no_room"]) as unit:
        try:
            _forget()
            if asked["text"]:
                TEXT.write_text(asked["text"], encoding="utf-8")
            unit.make(_text(asked))
            before = waits()
            _run(unit, asked["within_s"])
            after = waits()
            found["took_s"] = after.at_s - before.at_s
            found["waited"] = before.share_until(_and_of_unit(after))
            found["lines"] = _lines(asked["begins"])
        except FailedError as error:
            found["outcome"], found["words"] = error.outcome, str(error)
        finally:
            _forget()
    return found


def _and_of_unit(after: Waits) -> Waits:
    """The same with what the limit of its unit kept from it, which is gone with the unit."""
    return replace(after, throttled_us=after.throttled_us + throttled_us(LIMITED))


def _forget() -> None:
    """Take away what a trial has written: each process of a unit opens its files anew, and appends."""
    for file in (SAID, LIMITED, TEXT):
        file.unlink(missing_ok=True)


def _text(asked: Mapping[str, Any]) -> str:
    """The unit in which it runs: what it writes goes into a file, and its command is another one."""
    kept = ANY_COMMAND.sub("", unit_text(asked["unit"]))
    text = trial_of(kept, asked["unit"], asked["without"], [], asked["within_s"] + MARGIN_S)
    told = f"StandardOutput=append:{SAID}\nLimitFSIZE={max(MOST_SAID, asked['most_bytes'])}\n"
    if asked["most_bytes"]:
        told += f"StateDirectory={FOLDER}\n"
    told += f"ExecStart={command_line(asked['command'])}"
    noted = NOTE.format(groups=GROUPS, stat=STAT, file=LIMITED)
    return f"{text}\n[Service]\n{told}\n{noted}\n"  # at its end: of what is said twice the last counts


def _run(unit: TrialUnit, within_s: float) -> None:
    """Start it and wait until it has ended well; ``FailedError`` where it does not.

    systemd says when: who asked it again and again would be in the way of what is measured.
    """
    try:
        unit.run(within_s)
    except subprocess.TimeoutExpired:
        raise FailedError(HUNG, f"it measured nothing in {within_s:g} s") from None
    state = state_of()
    if state["ActiveState"] == "failed":
        raise unit.failure(state)


def _lines(begins: str) -> list[str]:
    """Lines that it wrote and that count; ``FailedError`` where there are none, or none that can be read."""
    try:
        said = SAID.read_bytes()[:MOST_SAID].decode()
    except (OSError, ValueError) as error:
        raise FailedError(REFUSED, f"what it wrote cannot be read: {error}") from None
    lines = [line for line in said.splitlines() if line.startswith(begins)]
    if not lines:
        raise FailedError(REFUSED, "it ended without a figure")
    return lines


def main(request: bytes) -> None:
    """Answer one request, given as it is sent."""
    asked = json.loads(request)
    if asked.get("forget"):
        shutil.rmtree(STATE / FOLDER, ignore_errors=True)
    json.dump(measured(asked) if asked["command"] else served(asked), sys.stdout)


if __name__ == "__main__":
    main(sys.stdin.buffer.read())
