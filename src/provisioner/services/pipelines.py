"""Pipelines servers: which files of Python are pipelines, what they are called, and what their environment may hold."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from provisioner.services import base
from provisioner.services.base import ResolvedService
from provisioner.values.declared import Problem
from provisioner.values.plain_data import python_tree
from provisioner.values.refusals import did_you_mean

FILES, MODEL, ENVIRONMENT, SECRETS = "pipelines", "model", "environment", "secrets"
CLASS, METHOD = "Pipeline", "pipe"
MANIFOLD, FILTER = "manifold", "filter"
NAME = re.compile(r"(?!failed[.])[A-Za-z_][A-Za-z0-9_-]{0,63}\.py", re.ASCII)
"""Upstream names a pipeline for its file, and moves what it cannot load into a folder ``failed``."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
TAKEN = re.compile(r"PIPELINES_.*|PYTHON.*|LD_.*|LAB_CONNECT|GLOBAL_LOG_LEVEL|HOME|PATH|SSL_CERT_FILE", re.ASCII)
"""Variables that the role sets, or that would have the server do what nobody proves."""
OPENING = '"""'
REQUIREMENTS = "requirements"
INSTEAD = (
    "Leave it out: nothing is installed while it starts. Pipelines have what the server has (requests, httpx, aiohttp, "
    "pydantic); what needs more is a service of its own, or agent_team."
)


@dataclass(frozen=True, slots=True)
class Flaw:
    """Why a file is no pipeline: in which of its lines, 0 for none, and what to do."""

    line: int
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class Said:
    """What a file says of its pipeline in plain words; an empty ``id`` it does not say."""

    id: str = ""
    type: str = ""
    type_line: int = 0


class Knowledge(base.OnCpu):
    """Knowledge of Pipelines servers."""

    def problems(self, service: ResolvedService) -> Iterator[Problem]:
        """Files that are no pipelines, two of one name, a model that none is, and variables that are taken."""
        yield from _files(service)
        yield from _model(service)
        yield from _variables(service)

    def warnings(self, service: ResolvedService) -> Iterator[Problem]:
        """Upstream has come to rest, and says itself what not to use it for."""
        message = (
            "upstream has had no commit since July 2025 and says itself: DO NOT USE PIPELINES! (filters, providers)"
        )
        yield Problem(service.path, message, "A team of agents needs no such server: see agent_team.")

    def offers(self, service: ResolvedService) -> tuple[str, ...]:
        """The pipelines; first the one that the file names as the usual one."""
        usual = service.written.get(MODEL)
        names = [usual] if usual else []
        for said, stem in _all_said(service):
            # Which models a manifold has only it knows.
            if said.type != MANIFOLD:
                names.append(said.id or stem)
        return tuple(dict.fromkeys(names)) or (service.role,)


def flaws(name: str, text: str) -> Iterator[Flaw]:
    """Yield what keeps upstream from serving a module of that name, as far as that is seen without running it."""
    if not NAME.fullmatch(name):
        hint = 'Call it by a letter or "_", then letters, digits, "_" and "-", ending with .py; failed.py is taken.'
        yield Flaw(0, f"{name} cannot be the name of a pipeline", hint)
    yield from _requirements(text)
    yield from _class_flaws(python_tree(text))


def said_of(text: str) -> Said:
    """Return what the file says of its pipeline."""
    found = _class(python_tree(text))
    return _said(found) if found is not None else Said()


def _requirements(text: str) -> Iterator[Flaw]:
    """Upstream installs what the text at the very beginning of a file asks for, whatever it is, when it starts."""
    end = text.find(OPENING, len(OPENING))
    if not text.startswith(OPENING) or end < 0:
        return
    for number, line in enumerate(text[len(OPENING) : end].split("\n"), start=1):
        word, colon, value = line.partition(":")
        if colon and word.strip().lower() == REQUIREMENTS and value.strip():
            yield Flaw(number, f"{REQUIREMENTS}: upstream would install {value.strip()} while it starts", INSTEAD)


def _class_flaws(tree: ast.Module) -> Iterator[Flaw]:
    found = _class(tree)
    if found is None:
        # It may be imported, or made by a call: then the proof sees what it is.
        if CLASS not in _names(tree):
            yield Flaw(0, f"it has no class {CLASS}", f"Write class {CLASS}, with a method {METHOD}.")
        return
    methods = {one.name: one for one in found.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
    said = _said(found)
    if said.type == FILTER:
        hint = "Filters are asked by other ways than models, which are closed here; Open WebUI has functions for them."
        yield Flaw(said.type_line, "it is a filter", hint)
        return
    if said.type not in ("", MANIFOLD):
        hint = f'Leave it out, or write "{MANIFOLD}".'
        yield Flaw(said.type_line, f'upstream offers nothing of the type "{said.type}"', hint)
    if said.type == MANIFOLD and "." in said.id:
        yield Flaw(said.type_line, f'upstream does not find the models of "{said.id}"', "Write an id without dots.")
    if METHOD not in methods and not found.bases:
        yield Flaw(found.lineno, f"class {CLASS} has no method {METHOD}", f"Write def {METHOD}, which answers.")
    elif isinstance(methods.get(METHOD), ast.AsyncFunctionDef):
        hint = f"Write def {METHOD}; to wait inside of it, use asyncio.run."
        yield Flaw(methods[METHOD].lineno, f"upstream does not wait for an async {METHOD}", hint)


def _class(tree: ast.Module) -> ast.ClassDef | None:
    """The last class of that name, which is the one that counts."""
    found = None
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef) and statement.name == CLASS:
            found = statement
    return found


def _names(tree: ast.Module) -> set[str]:
    """Every name that the file gives to something, wherever."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name)
    return found


def _said(found: ast.ClassDef) -> Said:
    """What the class says of itself in plain words: in ``self.id = "team"``, or in its own body."""
    words = {"id": "", "type": ""}
    line = 0
    for node in ast.walk(found):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Constant):
            continue
        for target in node.targets:
            is_own = (
                isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
            )
            name = target.attr if isinstance(target, ast.Attribute) and is_own else ""
            if isinstance(target, ast.Name) and node in found.body:
                name = target.id
            if name in words and isinstance(node.value.value, str):
                words[name] = node.value.value
                line = node.lineno if name == "type" else line
    return Said(words["id"], words["type"], line)


def _files(service: ResolvedService) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for place, written in enumerate(service.written.get(FILES) or ()):
        text = service.texts.get(f"{FILES}.{place}")
        if text is None:
            continue
        option = f"{FILES}.{place}"
        for flaw in flaws(PurePath(written).name, text):
            where = f"{written}, line {flaw.line}" if flaw.line else written
            yield service.problem(option, f"{where}: {flaw.message}", flaw.hint)
        name = said_of(text).id or PurePath(written).stem
        if name in seen:
            hint = "Give one of them another self.id."
            yield service.problem(option, f'{written} and {seen[name]} are both called "{name}"', hint)
        seen.setdefault(name, written)


def _all_said(service: ResolvedService) -> Iterator[tuple[Said, str]]:
    """What each file says of its pipeline, and the name of the file without its end."""
    for place, written in enumerate(service.written.get(FILES) or ()):
        yield said_of(service.texts.get(f"{FILES}.{place}", "")), PurePath(written).stem


def _model(service: ResolvedService) -> Iterator[Problem]:
    """The usual model is one of a pipeline; those of manifolds begin with its name."""
    model = service.written.get(MODEL)
    if not model or not service.texts:
        return
    names: list[str] = []
    for said, stem in _all_said(service):
        name = said.id or stem
        if said.type == MANIFOLD and model.startswith(f"{name}."):
            return
        names.append(f"{name}.MODEL" if said.type == MANIFOLD else name)
    if model not in names:
        yield service.problem(
            MODEL, f'"{model}" is no pipeline of this service', did_you_mean(model, names, always=True)
        )


def _variables(service: ResolvedService) -> Iterator[Problem]:
    written = service.written
    environment: dict[str, Any] = written.get(ENVIRONMENT) or {}
    secrets: Sequence[dict[str, Any]] = written.get(SECRETS) or ()
    named = [(f"{ENVIRONMENT}.{name}", name) for name in environment]
    named += [(f"{SECRETS}.{place}.name", str(secret["name"])) for place, secret in enumerate(secrets)]
    seen: set[str] = set()
    for where, name in named:
        if where.startswith(SECRETS) and not VARIABLE.fullmatch(name):
            yield service.problem(where, f'"{name}" is no name of a variable', 'Write letters, digits and "_".')
        elif TAKEN.fullmatch(name):
            yield service.problem(where, f"{name} is none of the pipelines' own", "Choose another name.")
        elif name in seen:
            yield service.problem(where, f"{name} is there twice", "Leave one of them out.")
        seen.add(name)
    for name, value in environment.items():
        if isinstance(value, dict | list):
            yield service.problem(f"{ENVIRONMENT}.{name}", "a variable is a text or a number", "Write it in quotes.")
