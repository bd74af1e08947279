"""Ansible's events as our own values. Pure; the output of a task that uses a secret is never in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LAST_WORDS = 3
HIDDEN = "the task uses a secret, so what it said is hidden"
NO_REASON = "no reason was given"
NO_PLACE = "No usable temporary directory"
"""Python's words where no file can be written in /tmp, /var/tmp, /usr/tmp and the folder that it is in."""
NOTHING_WRITTEN = "Nothing can be written there: the disk is full, has reached its limit, or is read-only"
LARGEST_COUNT = 2**63
DEEPEST = 3
"""Results within results: a loop has items, and no item has items of its own."""
NOTHING_SAID = "All assertions passed"
"""What ``ansible.builtin.assert`` says of itself where its task has no ``success_msg``."""
MOST_SAID, LONGEST_SAID = 9, 160
"""Lines of what a judging task says came, and characters of each: answers are of models and of other programs."""


@dataclass(frozen=True, slots=True)
class RunCommand:
    """One command that a task ran: its exit code, what it wrote (stdout, then stderr), and how long it took."""

    argv: tuple[str, ...]
    code: int | None
    output: str = ""
    elapsed_s: float = 0.0


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """What Ansible says of a task: ``status`` is start, ok, changed, failed, unreachable, skipped or retry.

    ``facts`` are what a module of ours measured for the controller (``provision_facts`` in its result), by their names.
    ``commands``: what a task of ``ansible.builtin.command`` ran, one for each item of its loop.
    ``came``: what a task of ``ansible.builtin.assert`` that holds says came (its ``success_msg``), a part on each line,
    as the answers had it: ``short_words`` makes it fit to be shown.
    """

    status: str
    host: str
    role: str
    task: str
    message: str = ""
    elapsed_s: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)
    commands: tuple[RunCommand, ...] = ()
    came: str = ""


STATUSES = {
    "runner_on_start": "start",
    "runner_on_ok": "ok",
    "runner_on_failed": "failed",
    "runner_on_unreachable": "unreachable",
    "runner_on_skipped": "skipped",
    "runner_retry": "retry",
}


def task_event(event: Mapping[str, Any]) -> TaskEvent | None:
    """An ansible-runner event as our own value; None for those that are not about a task on a host."""
    status = STATUSES.get(str(event.get("event")))
    data = _mapping(event.get("event_data"))
    if status is None:
        return None
    if status == "failed" and data.get("ignore_errors"):
        return None
    result = _mapping(data.get("res"))
    if status == "ok" and result.get("changed"):
        status = "changed"
    host = data.get("host") or data.get("remote_addr") or "localhost"
    return TaskEvent(
        status=status,
        host=str(host),
        role=str(data.get("role") or ""),
        task=str(data.get("task") or ""),
        message=_message(status, result),
        elapsed_s=_duration(data.get("duration")),
        facts=_facts(result),
        commands=_commands(status, result),
        came=_came(status, str(data.get("task_action") or ""), result),
    )


def short_words(text: str) -> str:
    """At most ``MOST_SAID`` lines of this, each of at most ``LONGEST_SAID`` characters that can all be printed.

    Secrets are to be masked before: half of one would not be found any more.
    """
    lines = list(filter(None, map(_short_line, text.split("\n"))))
    left = len(lines) - MOST_SAID
    if left > 0:
        lines[MOST_SAID:] = [f"and {left} more"]
    return "\n".join(lines)


def _short_line(text: str) -> str:
    # A space takes the place of what cannot be printed, so that nothing is joined that stood apart.
    printable = "".join(character if character.isprintable() else " " for character in text)
    line = " ".join(printable.split())
    return line if len(line) <= LONGEST_SAID else f"{line[: LONGEST_SAID - 1]}…"


def _mapping(value: Any) -> Mapping[str, Any]:
    """The object that a container sent; an empty one where it sent something else."""
    return value if isinstance(value, Mapping) else {}


def _duration(value: Any) -> float:
    """A number of seconds; 0 where a container sent something else."""
    if not isinstance(value, int | float):
        return 0.0
    return float(value) if 0 <= value < LARGEST_COUNT else 0.0


def _facts(result: Mapping[str, Any]) -> dict[str, int]:
    """Counts of our modules (whole numbers below ``LARGEST_COUNT``) by their names; whatever else is there is none."""
    counts: dict[str, int] = {}
    for name, value in _mapping(result.get("provision_facts")).items():
        if isinstance(value, bool) or not isinstance(value, int):
            continue
        if 0 <= value < LARGEST_COUNT:
            counts[str(name)] = value
    return counts


def _items(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The results of a loop's items; none where a container sent something else."""
    results = result.get("results")
    if not isinstance(results, list):
        return []
    return [item for item in results if isinstance(item, Mapping)]


def _is_hidden(result: Mapping[str, Any]) -> bool:
    return bool(result.get("censored") or result.get("_ansible_no_log"))


def _came(status: str, action: str, result: Mapping[str, Any]) -> str:
    """What a judging task that holds says came, of a loop what each item says; nothing of any other task."""
    if status not in {"ok", "changed"} or action.rpartition(".")[2] != "assert" or _is_hidden(result):
        return ""
    texts: list[str] = []
    for item in _items(result) or [result]:
        said = item.get("msg")
        if _is_hidden(item) or item.get("skipped") or said == NOTHING_SAID:
            continue
        parts = said if isinstance(said, list) else [said]
        texts += [part for part in parts if isinstance(part, str)]
    return "\n".join(texts)


def _commands(status: str, result: Mapping[str, Any]) -> tuple[RunCommand, ...]:
    """The commands that a task ran; none of an attempt that is repeated."""
    if status == "retry" or _is_hidden(result):
        return ()
    results = _items(result) or [result]
    return tuple(_command(item) for item in results if _has_run(item))


def _has_run(result: Mapping[str, Any]) -> bool:
    # Other modules have a cmd, too (a string, in a form of their own); only this one also has both of its times.
    if _is_hidden(result) or not isinstance(result.get("cmd"), list):
        return False
    return {"start", "end"} <= result.keys()


def _command(result: Mapping[str, Any]) -> RunCommand:
    code = result.get("rc")
    streams = [result.get("stdout"), result.get("stderr")]
    return RunCommand(
        argv=tuple(map(str, result["cmd"])),
        code=code if isinstance(code, int) else None,
        output="\n".join(str(text) for text in streams if text),
        elapsed_s=_seconds(str(result.get("delta") or "")),
    )


def _seconds(delta: str) -> float:
    """The module's ``0:00:01.250000`` in seconds; no command of ours may take days."""
    clock = re.fullmatch(r"(\d{1,6}):(\d{1,2}):(\d{1,2}(?:\.\d{1,9})?)", delta, re.ASCII)
    if clock is None:
        return 0.0
    hours, minutes, seconds = clock.groups()
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)


def _message(status: str, result: Mapping[str, Any]) -> str:
    """Why a task failed, or what one says that is called again to go on; nothing for all others."""
    is_continued = status == "retry" and not result.get("failed")
    if is_continued:
        return str(result.get("msg") or "")
    if status in {"failed", "unreachable"}:
        return _failure_message(result)
    return ""


def _failure_message(result: Mapping[str, Any], level: int = 0) -> str:
    if _is_hidden(result):
        return HIDDEN
    # A module that could not even start says why here only.
    module_said = str(result.get("module_stderr") or "").strip()
    if NO_PLACE in module_said:
        return NOTHING_WRITTEN
    texts = [str(result.get(key) or "").strip() for key in ("msg", "stderr", "stdout")]
    texts.append("\n".join(module_said.splitlines()[-LAST_WORDS:]))
    if level < DEEPEST:
        failed_items = [item for item in _items(result) if item.get("failed")]
        texts += [_failure_message(item, level + 1) for item in failed_items]
    different_texts = dict.fromkeys(filter(None, texts))
    return "\n".join(different_texts) or NO_REASON
