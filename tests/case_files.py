"""Reads data cases with secrets in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from provisioner.values.state import Secret


class _Loader(yaml.CSafeLoader):
    """Reads ``!secret [NAME, VALUE]`` (a value may be left out), and what Ansible has as ``!unsafe`` as a string."""


def _secret(loader: yaml.SafeLoader, node: yaml.Node) -> Secret:
    assert isinstance(node, yaml.SequenceNode)
    name, *value = loader.construct_sequence(node)
    return Secret(name, value[0] if value else None)


_Loader.add_constructor("!secret", _secret)
_Loader.add_constructor("!unsafe", lambda _, node: str(node.value))


def read_case(file: Path) -> dict[str, Any]:
    """The case's content."""
    case: dict[str, Any] = yaml.load(file.read_text(encoding="utf-8"), _Loader)  # noqa: S506  # a SafeLoader
    return case


def read_cases(name: str) -> dict[str, Any]:
    """Return the content of ``tests/cases/<name>.yml``: a table of cases by their names, or several tables."""
    return read_case(Path(__file__).parent / "cases" / f"{name}.yml")
