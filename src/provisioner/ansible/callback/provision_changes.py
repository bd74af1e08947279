"""Ansible callback ``provision_changes``: writes down the names of what changed tasks have changed.

What a role changes and does not declare in ``meta/managed.yml`` is drift that nobody would see later.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: provision_changes
type: notification
author: provisioner
short_description: Writes down what changed tasks have changed
description:
  - Appends one line of JSON for each changed result of a task (each changed item of a loop) to the file named by
    E(PROVISION_CHANGES_FILE); does nothing when that is not set. The file is made when a playbook begins.
  - A line has playbook, host, role, task, module and the names of paths, packages, units and users; never a value.
  - A result that no_log hides is known from a stat that follows it directly in the same role; else it is unknown.
  - Nothing is written in check mode, where nothing changes.
"""

Things = dict[str, Any]
"""Lists of ``paths``, ``packages``, ``units`` and ``users``; ``unknown``: something else may have changed."""

VARIABLE = "PROVISION_CHANGES_FILE"
SUFFIXES = (".service", ".socket", ".timer", ".mount", ".path", ".target", ".slice", ".device", ".automount", ".swap")


class CallbackModule(CallbackBase):  # type: ignore[misc]  # ansible-core ships no types
    """Listens to results; the lines of one host stand in the order of its tasks."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "provision_changes"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        name = os.environ.get(VARIABLE, "")
        self.disabled = not name
        self._file = Path(name)
        self._playbook = ""
        self._hidden: dict[str, dict[str, Any]] = {}
        """By host, the line of the last task where no_log hid what it changed."""

    def v2_playbook_on_start(self, playbook: Any) -> None:
        """Make the file, so that one without a line says that nothing was changed."""
        self._playbook = Path(playbook._file_name).name  # noqa: SLF001  # there is no other way to its name
        self._file.touch(mode=0o600)

    def v2_runner_on_ok(self, result: Any) -> None:
        """Note what the task changed."""
        self._note(result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:  # noqa: ARG002  # Ansible's signature
        """Note what the task changed before it failed."""
        self._note(result)

    def v2_runner_on_skipped(self, result: Any) -> None:
        """Note that the task told nothing of the one before it."""
        self._note(result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """Note that the task told nothing of the one before it."""
        self._note(result)

    def v2_playbook_on_stats(self, stats: Any) -> None:  # noqa: ARG002  # Ansible's signature
        """Write what is left: tasks that no other followed."""
        self._append([line | {"unknown": True} for line in self._hidden.values()])
        self._hidden.clear()

    def _note(self, result: Any) -> None:
        items = result.result.get("results", []) if result.task.loop is not None else [result.result]
        line = self._head(result)
        hidden = self._hidden.pop(line["on"], None)
        lines = [hidden | told_by_stat(hidden, line, items)] if hidden else []
        changed = [item for item in items if item.get("changed")] if not result.task_fields.get("check_mode") else []
        if any("censored" in item for item in changed):
            self._hidden[line["on"]] = line | things()
            changed = [item for item in changed if "censored" not in item]
        self._append(lines + [line | changed_things(line["module"], item) for item in changed])

    def _head(self, result: Any) -> dict[str, Any]:
        role = result.task._role  # noqa: SLF001  # there is no other way to its name
        return {
            "playbook": self._playbook,
            "on": result.host.get_name(),
            "host": str(result.task_fields.get("delegate_to") or result.host.get_name()),
            "role": role.get_name() if role else "",
            "task": str(result.task.name),  # as it is written: no value is in it
            "module": str(result.task.resolved_action or result.task.action).rpartition(".")[2],
        }

    def _append(self, lines: Sequence[Mapping[str, Any]]) -> None:
        text = "".join(json.dumps({key: line[key] for key in line if key != "on"}) + "\n" for line in lines)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(text)


def changed_things(module: str, result: Mapping[str, Any]) -> Things:
    """What the module, which says that it changed something, has changed: taken from its result and its arguments."""
    arguments = (result.get("invocation") or {}).get("module_args") or {}
    return CHANGES.get(module, _anything)(result, arguments)


def told_by_stat(hidden: Mapping[str, Any], line: Mapping[str, Any], items: Sequence[Mapping[str, Any]]) -> Things:
    """What a hidden task has changed: what the task after it looked at, when that is its role's stat."""
    if line["module"] != "stat" or line["role"] != hidden["role"]:
        return things(unknown=True)
    arguments = [(item.get("invocation") or {}).get("module_args") or {} for item in items]
    paths = [path for one in arguments for path in _names(one.get("path"))]
    return things(paths=paths, unknown=not paths)


def things(**named: Any) -> Things:
    """The things given, and none of the other kinds."""
    return {"paths": [], "packages": [], "units": [], "users": [], "unknown": False} | named


def _anything(_result: Mapping[str, Any], _arguments: Mapping[str, Any]) -> Things:
    return things(unknown=True)


def _nothing(_result: Mapping[str, Any], _arguments: Mapping[str, Any]) -> Things:
    return things()


def _path(result: Mapping[str, Any], arguments: Mapping[str, Any]) -> Things:
    # the result comes first: it names the file where the argument names its folder
    found = next(_names(result.get("dest"), result.get("path"), arguments.get("path"), arguments.get("dest")), None)
    return things(paths=[found] if found else [], unknown=not found or bool(arguments.get("recurse")))


def _listed(result: Mapping[str, Any], _arguments: Mapping[str, Any]) -> Things:
    return things(paths=list(_names(result.get("paths"))))


def _extracted(_result: Mapping[str, Any], arguments: Mapping[str, Any]) -> Things:
    paths = list(_names(arguments.get("creates"), arguments.get("dest")))
    return things(paths=paths, unknown=not arguments.get("creates"))


def _command(_result: Mapping[str, Any], arguments: Mapping[str, Any]) -> Things:
    folder = arguments.get("chdir") or ""
    paths = [posixpath.join(folder, path) for path in _names(arguments.get("creates"), arguments.get("removes"))]
    return things(paths=paths, unknown=not paths)


def _packages(_result: Mapping[str, Any], arguments: Mapping[str, Any]) -> Things:
    listed = [one for name in _names(arguments.get("name")) for one in name.split(",")]
    packages = [re.split("[=/:<>]", name, maxsplit=1)[0].strip() for name in listed]
    more = any(arguments.get(key) not in (None, False, "no") for key in ("upgrade", "deb", "autoremove"))
    return things(packages=packages, unknown=more)


def _unit(_result: Mapping[str, Any], arguments: Mapping[str, Any]) -> Things:
    names = _names(arguments.get("name"))
    return things(units=[name if name.endswith(SUFFIXES) else f"{name}.service" for name in names])


def _user(_result: Mapping[str, Any], arguments: Mapping[str, Any]) -> Things:
    return things(users=list(_names(arguments.get("name"))))


def _names(*values: Any) -> Iterator[str]:
    """The texts among ``values``, those in lists included; nothing that is empty or of another type."""
    for value in values:
        yield from (str(one) for one in (value if isinstance(value, list) else [value]) if isinstance(one, str) and one)


CHANGES: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], Things]] = {
    **dict.fromkeys(("assemble", "blockinfile", "copy", "file", "get_url", "lineinfile", "replace", "template"), _path),
    **dict.fromkeys(("provision_apt_key", "provision_ini"), _path),
    "provision_files": _listed,
    "provision_certificate_request": _listed,
    "unarchive": _extracted,
    **dict.fromkeys(("command", "shell"), _command),
    **dict.fromkeys(("apt", "package"), _packages),
    **dict.fromkeys(("service", "systemd", "systemd_service"), _unit),
    **dict.fromkeys(("group", "user"), _user),
    # they only look; a task may call what they found a change, to have something restarted
    **dict.fromkeys(("assert", "debug", "provision_paths", "provision_unit", "slurp", "stat"), _nothing),
}
"""What each module changes; of any other nobody knows."""
