"""YAML as a person would write it for Ansible: what came from a file is text, never a template; secrets are lookups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from provisioner.labfile.loader import environment_name
from provisioner.values.state import Secret

_STR = "tag:yaml.org,2002:str"
_TEMPLATE_MARKS = ("{{", "{%", "{#")
_OWN_MARKS = "#jinja2:"
"""What a text begins with that says itself which marks its template has."""


class _Template(str):
    """A string of ours that Ansible has to template."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """Block style with indented lists, without anchors; text that looks like a template gets ``!unsafe``."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  # PyYAML's signature
        """Anchors would hide which host has which value."""
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002  # PyYAML's signature
        """Indent lists, as ansible-lint wants them."""
        super().increase_indent(flow, indentless=False)


def _represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    if text.startswith(_OWN_MARKS) or any(mark in text for mark in _TEMPLATE_MARKS):
        return dumper.represent_scalar("!unsafe", text, style='"')
    return dumper.represent_scalar(_STR, text)


_Dumper.add_representer(str, _represent)
_Dumper.add_representer(_Template, lambda dumper, text: dumper.represent_scalar(_STR, str(text), style='"'))


def plain_yaml(value: Any) -> str:
    """``value`` as YAML for Ansible."""
    return str(yaml.dump(_marked(value), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000))


def reference(secret: Secret) -> str:
    """The template by which Ansible finds a secret's value; without one, the task that needs it fails and says so."""
    name = environment_name(secret.name)
    return f"{{{{ lookup('ansible.builtin.env', '{name}', default=undef(hint='Set {name}.')) }}}}"


def _marked(value: Any) -> Any:
    """The value made of YAML's own types, and of templates where there are secrets."""
    if isinstance(value, Secret):
        return _Template(reference(value))
    if isinstance(value, Mapping):
        return {str(key): _marked(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return list(map(_marked, value))
    if isinstance(value, str):
        return str(value)
    return value
