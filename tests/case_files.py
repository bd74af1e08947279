"""Reads data cases, with secrets and texts of programs in them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import yaml

from provisioner.values.state import Secret


class _Loader(yaml.CSafeLoader):
    """Reads ``!secret [NAME, VALUE]`` (a value may be left out), and what Ansible has as ``!unsafe`` as a string.

    ``!json`` is a value as the JSON that a program writes, and ``!base64`` is such a text as Ansible reads a file.
    """


def _secret(loader: yaml.SafeLoader, node: yaml.Node) -> Secret:
    assert isinstance(node, yaml.SequenceNode)
    name, *value = loader.construct_sequence(node)
    return Secret(name, value[0] if value else None)


def _json(loader: yaml.SafeLoader, node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return json.dumps(loader.construct_mapping(node, deep=True))
    assert isinstance(node, yaml.SequenceNode)
    return json.dumps(loader.construct_sequence(node, deep=True))


def _base64(loader: yaml.SafeLoader, node: yaml.Node) -> str:
    return base64.b64encode(_json(loader, node).encode()).decode()


_Loader.add_constructor("!secret", _secret)
_Loader.add_constructor("!json", _json)
_Loader.add_constructor("!base64", _base64)
_Loader.add_constructor("!unsafe", lambda _, node: str(node.value))


def read_case(file: Path) -> dict[str, Any]:
    """The case's content."""
    case: dict[str, Any] = yaml.load(file.read_text(encoding="utf-8"), _Loader)  # noqa: S506  # a SafeLoader
    return case


def read_cases(name: str) -> dict[str, Any]:
    """Return the content of ``tests/cases/<name>.yml``: a table of cases by their names, or several tables."""
    return read_case(Path(__file__).parent / "cases" / f"{name}.yml")
