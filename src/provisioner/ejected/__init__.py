"""A lab as plain Ansible: the texts of a folder that ``ansible-playbook`` runs without this program. Pure.

What is copied beside them (roles, modules, plugins) is named here, and copied by ``workflow.ejecting``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from provisioner.ejected.pages import CONFIGURATION, About, readme
from provisioner.ejected.plain import plain_yaml
from provisioner.loader import environment_name
from provisioner.state import Instance, secrets_of

CONTAINER_PYTHON = "/usr/bin/python3"
MAKING_ROLE = "container"
"""The role that makes containers; it alone needs this program."""


@dataclass(frozen=True, slots=True)
class Box:
    """One container: what it is, how Ansible reaches it, and the variables of the role that makes it."""

    instance: Instance
    connection: Mapping[str, str]
    making: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Source:
    """What the ejected lab is made of: its containers, variables of whole hosts, our playbooks, Ansible's version."""

    lab: str
    boxes: Sequence[Box]
    hosts: Mapping[str, Mapping[str, Any]]
    playbooks: Mapping[str, str]
    ansible: str


def ejected_texts(source: Source) -> dict[str, str]:
    """The files of the folder, by their path in it; secrets are references in all of them."""
    head = f"# Ejected from the lab {source.lab} by provision; yours from now on.\n"
    groups = _groups(source.boxes)
    plays = {name: text for name, whole in source.playbooks.items() if (text := _plays(whole, groups))}
    about = About(source.lab, _variables(source), sorted(connection_plugins(source.boxes)), sorted(plays))
    texts = {
        "ansible.cfg": CONFIGURATION,
        "requirements.txt": f"ansible-core~={source.ansible}\n",
        "README.md": readme(about),
        "hosts.yml": head + plain_yaml({"all": {"children": groups}}),
    }
    texts |= {name: head + text for name, text in plays.items()}
    texts |= {f"host_vars/{one.instance.name}.yml": head + _host_page(one) for one in source.boxes}
    texts |= {f"group_vars/{host_group(name)}.yml": head + plain_yaml(one) for name, one in source.hosts.items() if one}
    return texts


def roles_of(boxes: Sequence[Box]) -> tuple[str, ...]:
    """The roles that the folder needs."""
    return tuple(sorted({MAKING_ROLE, *(role.role for one in boxes for role in one.instance.roles)}))


def connection_plugins(boxes: Sequence[Box]) -> set[str]:
    """The connection plugins that reach the containers."""
    return {one.connection["ansible_connection"] for one in boxes}


def host_group(host: str) -> str:
    """The group of the containers that live on a host; no dash may stand in a group's name."""
    return f"host_{host.replace('-', '_')}"


def _groups(boxes: Sequence[Box]) -> dict[str, Any]:
    groups: dict[str, Any] = {"containers": {"hosts": {}}}
    for one in boxes:
        reached = {"ansible_python_interpreter": CONTAINER_PYTHON, **one.connection}
        groups["containers"]["hosts"][one.instance.name] = reached
        names = [host_group(one.instance.host), *(f"service_{service.role}" for service in one.instance.services)]
        for name in names:
            groups.setdefault(name, {"hosts": {}})["hosts"][one.instance.name] = {}
    return groups


def _host_page(box: Box) -> str:
    parts = ["# How it is made (containers.yml).\n" + plain_yaml(box.making)]
    parts += [
        f"# Role {service.role}.\n{plain_yaml(service.variables)}"
        for service in box.instance.services
        if service.variables
    ]
    return "\n".join(parts)


def _plays(text: str, groups: Mapping[str, Any]) -> str:
    """The plays of a playbook for which there is anything to do here; Ansible takes no playbook without any."""
    return "\n".join(plain_yaml([play]) for play in yaml.safe_load(text) if play["hosts"] in groups)


def _variables(source: Source) -> dict[str, bool]:
    """The environment variables that give the secrets' values; whether only ``containers.yml`` needs them."""
    services = secrets_of([service.variables for one in source.boxes for service in one.instance.services])
    hosts = secrets_of(list(source.hosts.values()))
    return {environment_name(name): name not in services for name in sorted({**services, **hosts})}
