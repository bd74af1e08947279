"""What Ansible says while it works, as our own values. Pure; what a task with a secret said is never in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LAST_WORDS = 3
HIDDEN = "the task uses a secret, so what it said is hidden"
NO_REASON = "no reason was given"
LARGEST_COUNT = 2**63
DEEPEST = 3
"""Results within results: a loop has items, and no item has items of its own."""


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
    """

    status: str
    host: str
    role: str
    task: str
    message: str = ""
    elapsed_s: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)
    commands: tuple[RunCommand, ...] = ()


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
    if status is None or (status == "failed" and data.get("ignore_errors")):
        return None
    result = _mapping(data.get("res"))
    if status == "ok" and result.get("changed"):
        status = "changed"
    return TaskEvent(
        status=status,
        host=str(data.get("host") or data.get("remote_addr") or "localhost"),
        role=str(data.get("role") or ""),
        task=str(data.get("task") or ""),
        message=_words(status, result),
        elapsed_s=_number(data.get("duration")),
        facts=_facts(result),
        commands=tuple(_commands(result)) if status != "retry" else (),
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    """What a container said in the place of an object; an empty one where it said something else."""
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and 0 <= value < LARGEST_COUNT else 0.0


def _facts(result: Mapping[str, Any]) -> dict[str, int]:
    """Counts of our modules (whole numbers below ``LARGEST_COUNT``) by their names; whatever else is there is none."""
    counts: dict[str, int] = {}
    for name, value in _mapping(result.get("provision_facts")).items():
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LARGEST_COUNT:
            counts[str(name)] = value
    return counts


def _items(result: Mapping[str, Any]) -> list[Any]:
    """The results of a loop's items; none where a container says something else."""
    found = result.get("results")
    return found if isinstance(found, list) else []


def _is_hidden(result: Mapping[str, Any]) -> bool:
    return bool(result.get("censored") or result.get("_ansible_no_log"))


def _commands(result: Mapping[str, Any]) -> list[RunCommand]:
    if _is_hidden(result):
        return []
    results = [one for one in _items(result) or [result] if isinstance(one, Mapping)]
    return [_command(one) for one in results if _has_run(one)]


def _has_run(result: Mapping[str, Any]) -> bool:
    # Other modules have a cmd, too (a string, their own way of telling); only this one also has both of its times.
    return not _is_hidden(result) and isinstance(result.get("cmd"), list) and "start" in result and "end" in result


def _command(result: Mapping[str, Any]) -> RunCommand:
    code = result.get("rc")
    return RunCommand(
        argv=tuple(str(part) for part in result["cmd"]),
        code=code if isinstance(code, int) else None,
        output="\n".join(str(result[name]) for name in ("stdout", "stderr") if result.get(name)),
        elapsed_s=_seconds(str(result.get("delta") or "")),
    )


def _seconds(delta: str) -> float:
    """The module's ``0:00:01.250000`` in seconds; no command of ours may take days."""
    clock = re.fullmatch(r"(\d{1,6}):(\d{1,2}):(\d{1,2}(?:\.\d{1,9})?)", delta, re.ASCII)
    return int(clock[1]) * 3600 + int(clock[2]) * 60 + float(clock[3]) if clock else 0.0


def _words(status: str, result: Mapping[str, Any]) -> str:
    if status == "retry" and not result.get("failed"):  # not a failure: the task is called again to go on
        return str(result.get("msg") or "")
    return _failure_words(result) if status in {"failed", "unreachable"} else ""


def _failure_words(result: Mapping[str, Any], level: int = 0) -> str:
    if _is_hidden(result):
        return HIDDEN
    parts = [str(result.get(key)).strip() for key in ("msg", "stderr", "stdout") if result.get(key)]
    # A module that could not even start says why here only: its container's disk is full, for instance.
    parts.append("\n".join(str(result.get("module_stderr") or "").strip().splitlines()[-LAST_WORDS:]))
    items = [item for item in _items(result) if isinstance(item, Mapping)]
    failed = [item for item in items if item.get("failed")] if level < DEEPEST else []
    parts += [_failure_words(item, level + 1) for item in failed]
    return "\n".join(dict.fromkeys(part for part in parts if part)) or NO_REASON
