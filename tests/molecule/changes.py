"""Compares what a scenario's converge has changed with what its roles declare in ``meta/managed.yml``.

What is not declared is in no stamp: `up` would not see that it is gone or different.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from provisioner.catalog import Upkeep
from provisioner.lab.fleet import managed_by
from provisioner.values.state import Managed
from tests.case_files import read_case

CHANGED_KINDS = ("paths", "packages", "units", "users")
PLAYBOOK = "converge.yml"


@dataclass(frozen=True)
class Declared:
    """A role's ``meta/managed.yml`` with its templates filled in."""

    managed: Managed = field(default_factory=Managed)
    unknown: frozenset[str] = frozenset()
    """Tasks that change something that nobody can name; the page says why that is well."""
    unstampable: str = ""
    """Why the role needs not declare what it manages."""


def load(page: Path) -> Any:
    """What is in a page; nothing where there is none."""
    return read_case(page) if page.is_file() else None


def scenario_variables(scenario: Path) -> dict[str, Any]:
    """What the scenario gives to its roles: from molecule.yml, vars.yml and the plays of converge.yml."""
    inventory = ((load(scenario / "molecule.yml") or {}).get("provisioner") or {}).get("inventory") or {}
    group_vars = (inventory.get("group_vars") or {}).get("all") or {}
    plays = [play.get("vars") or {} for play in load(scenario / PLAYBOOK) or []]
    return {
        key: value for part in [group_vars, load(scenario / "vars.yml") or {}, *plays] for key, value in part.items()
    }


def declared_by(role: Path, variables: Mapping[str, Any]) -> Declared:
    """What the role declares when it gets its defaults and ``variables``: its options, and of these no secret.

    Raises ``jinja2.UndefinedError`` or ``KeyError`` for a template that names anything else.
    """
    page = load(role / "meta/managed.yml")
    given = {**(load(role / "defaults/main.yml") or {}), **variables}
    public = {name: value for name, value in given.items() if name in public_options(role)}
    kinds = {kind.name: tuple(page.get(kind.name) or ()) for kind in fields(Managed)}
    unknown = frozenset(page.get("unknown") or {})
    return Declared(managed_by(Upkeep("", kinds), public), unknown, page.get("stampable", ""))


def public_options(role: Path) -> set[str]:
    """The names of the role's options that are no secrets."""
    options = load(role / "meta/argument_specs.yml")["argument_specs"]["main"].get("options") or {}
    return {name for name, option in options.items() if not option.get("no_log")}


def changes_of(file: Path) -> list[dict[str, Any]]:
    """What the scenario's roles have changed in converge: the lines that callback `provision_changes` wrote."""
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line["playbook"] == PLAYBOOK and line["role"]]


def undeclared(changes: Iterable[Mapping[str, Any]], roles: Mapping[str, Declared]) -> list[str]:
    """A sentence for each thing that a role changed and does not declare."""
    found = []
    for change in changes:
        declared = roles[change["role"]]
        if declared.unstampable:
            continue
        where = f"roles/{change['role']}/meta/managed.yml lacks"
        by = f'changed by task "{change["task"]}"'
        for kind in CHANGED_KINDS:
            known = {_plain(name) for name in _declared_things(declared.managed, kind)}
            found += [f"{where} {name} in `{kind}`, {by}" for name in change[kind] if _plain(name) not in known]
        if change["unknown"] and change["task"] not in declared.unknown:
            found.append(f"{where} a reason in `unknown`: nobody can say what was {by}")
    return sorted(set(found))


def _declared_things(managed: Managed, kind: str) -> tuple[str, ...]:
    """The names of one kind; what a unit takes up without a new process is a path like others."""
    named: tuple[str, ...] = getattr(managed, kind)
    return (*named, *managed.reloaded, *managed.watched) if kind == "paths" else named


def _plain(name: str) -> str:
    return posixpath.normpath(name) if name.startswith("/") else name
