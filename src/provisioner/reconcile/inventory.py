"""The Ansible inventory of a fleet. Pure; what a user or a host wrote is data, never a template.

Every string, keys of mappings included, is tagged ``!unsafe`` unless it is one of ours (a secret's lookup): ``{{ … }}``
in the file stays text. Names of hosts, groups and variables need no tag: Ansible itself never templates those.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from provisioner.lab.cards import TAKING_TURNS, takes_turns
from provisioner.values.state import Artifact, Instance, Secret

CONTAINER_PYTHON = "/usr/bin/python3"
NEW = "new_containers"
"""Ansible's group of the containers that this run has made and whose services take no turns with others."""


class _Unsafe(str):
    """A string that Ansible must never template."""

    __slots__ = ()


class _Template(str):
    """A string of ours that Ansible has to template."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """Writes ``_Unsafe`` with its tag, ``_Template`` plainly, and never an alias."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  # PyYAML's signature
        """Anchors would hide which host has which value."""
        return True


_STR = "tag:yaml.org,2002:str"


def _represent_unsafe(dumper: yaml.SafeDumper, text: _Unsafe) -> yaml.ScalarNode:
    # Ansible resolves an !unsafe scalar again as if it were not quoted ("on" becomes true), so what looks like another
    # type is written as a quoted plain string: it holds no braces, hence nothing that could be templated.
    looks_like = dumper.resolve(yaml.ScalarNode, str(text), (True, False))  # type: ignore[no-untyped-call]
    return dumper.represent_scalar("!unsafe" if looks_like == _STR else _STR, str(text), style='"')


_Dumper.add_representer(_Unsafe, _represent_unsafe)
_Dumper.add_representer(_Template, lambda dumper, text: dumper.represent_scalar(_STR, str(text)))


def render_inventory(
    instances: Iterable[Instance],
    connections: Mapping[str, Mapping[str, str]],
    templates: Path,
    new: Collection[str] = (),
) -> str:
    """YAML text: group ``containers`` with every host, group ``service_<role>`` for each service with its variables.

    Where services share cards with others, group ``taking_turns`` has their containers. Group ``new_containers`` has
    those of the others whose names are in ``new``.

    ``connections`` maps a container's name to the variables by which its provider says it is reached.
    """
    hosts: dict[str, Any] = {}
    groups: dict[str, Any] = {}
    for one in sorted(instances, key=lambda one: one.name):
        hosts[one.name] = _variables({"ansible_python_interpreter": CONTAINER_PYTHON, **connections[one.name]})
        if one.name in new and not any(map(takes_turns, one.services)):
            groups.setdefault(NEW, {"hosts": {}})["hosts"][one.name] = {}
        for service in one.services:
            group = groups.setdefault(f"service_{service.role}", {"hosts": {}})
            group["hosts"][one.name] = _variables({**service.variables, **service.estimates})
            if takes_turns(service):
                groups.setdefault(TAKING_TURNS, {"hosts": {}})["hosts"][one.name] = {}
    return _layout({"containers": {"hosts": hosts}, **groups}, templates)


def render_builders(
    artifacts: Iterable[Artifact], connections: Mapping[str, Mapping[str, str]], templates: Path
) -> str:
    """YAML text: group ``builders``, one throwaway container per artifact with the variables of its role."""
    hosts = {
        one.builder: _variables(
            {
                "ansible_python_interpreter": CONTAINER_PYTHON,
                "artifact_role": one.role,
                "artifact_path": one.path,
                **connections[one.builder],
                **one.variables,
            }
        )
        for one in artifacts
    }
    return _layout({"builders": {"hosts": hosts}}, templates)


def render_nodes(groups: Mapping[str, Mapping[str, Mapping[str, Any]]], templates: Path) -> str:
    """YAML text: each group with its hosts and their variables; for nodes that a repair works on."""
    marked = {
        group: {"hosts": {name: _variables(variables) for name, variables in hosts.items()}}
        for group, hosts in groups.items()
    }
    return _layout(marked, templates)


def render_this_machine(variables: Mapping[str, Any], templates: Path) -> str:
    """YAML text: the machine that provision itself runs on, with the variables of a role that prepares it."""
    own_python = _Template("{{ ansible_playbook_python }}")
    localhost = {"ansible_connection": "local", "ansible_python_interpreter": own_python, **_variables(variables)}
    return _layout({"here": {"hosts": {"localhost": localhost}}}, templates)


def _variables(variables: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _marked(value) for name, value in variables.items()}


def _marked(value: Any) -> Any:
    if isinstance(value, Secret):
        return _Template("{{ lookup('provision_secret', '" + value.key + "') }}")
    if isinstance(value, Mapping):
        return {_Unsafe(key): _marked(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_marked(inner) for inner in value]
    return _Unsafe(value) if isinstance(value, str) else value


def _layout(groups: Mapping[str, Any], templates: Path) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    body = yaml.dump({"all": {"children": groups}}, Dumper=_Dumper, sort_keys=True, allow_unicode=True, width=1000)
    environment = Environment(  # noqa: S701  # YAML, not HTML: escaping is the dumper's work
        loader=FileSystemLoader(templates), undefined=StrictUndefined, keep_trailing_newline=True
    )
    return environment.get_template("hosts.yml.j2").render(body=body)
