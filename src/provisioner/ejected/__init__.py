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
from provisioner.lab.turns import TAKING_TURNS, one_by_one, takes_turns
from provisioner.labfile.loader import environment_name
from provisioner.values.state import Instance, secrets_of

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
    groups = _groups(source.boxes)
    plays = _playbooks(source.playbooks, groups)
    about = About(source.lab, _variables(source), sorted(connection_plugins(source.boxes)), sorted(plays))
    pages = {"hosts.yml": plain_yaml({"all": {"children": groups}}), **plays}
    for box in source.boxes:
        pages[f"host_vars/{box.instance.name}.yml"] = _host_page(box)
    for host, variables in source.hosts.items():
        if variables:
            pages[f"group_vars/{host_group(host)}.yml"] = plain_yaml(variables)
    head = f"# Ejected from the lab {source.lab} by provision; yours from now on.\n"
    texts = {
        "ansible.cfg": CONFIGURATION,
        "requirements.txt": f"ansible-core~={source.ansible}\n",
        "README.md": readme(about),
    }
    texts |= {path: head + page for path, page in pages.items()}
    return texts


def roles_of(boxes: Sequence[Box]) -> tuple[str, ...]:
    """The roles that the folder needs."""
    names = {MAKING_ROLE}
    for box in boxes:
        names.update(role.role for role in box.instance.roles)
        names.update(service.behind for service in box.instance.services if service.behind)
    return tuple(sorted(names))


def connection_plugins(boxes: Sequence[Box]) -> set[str]:
    """The connection plugins that reach the containers."""
    return {box.connection["ansible_connection"] for box in boxes}


def host_group(host: str) -> str:
    """The group of the containers that live on a host; no dash may stand in a group's name."""
    return f"host_{host.replace('-', '_')}"


def _groups(boxes: Sequence[Box]) -> dict[str, Any]:
    groups: dict[str, Any] = {"containers": {"hosts": {}}}
    for box in boxes:
        instance = box.instance
        groups["containers"]["hosts"][instance.name] = {
            "ansible_python_interpreter": CONTAINER_PYTHON,
            **box.connection,
        }
        names = [host_group(instance.host), *(f"service_{service.role}" for service in instance.services)]
        if any(takes_turns(service) for service in instance.services):
            names.append(TAKING_TURNS)
        for name in names:
            group = groups.setdefault(name, {"hosts": {}})
            group["hosts"][instance.name] = {}
    return groups


def _host_page(box: Box) -> str:
    parts = ["# How it is made (containers.yml).\n" + plain_yaml(box.making)]
    with_options = [service for service in box.instance.services if service.variables]
    parts += [f"# Role {service.role}.\n{plain_yaml(service.variables)}" for service in with_options]
    return "\n".join(parts)


def _playbooks(playbooks: Mapping[str, str], groups: Mapping[str, Any]) -> dict[str, str]:
    """The playbooks with the plays for which there is anything to do here; Ansible takes no playbook without any."""
    texts = {}
    for name, text in playbooks.items():
        kept = [play for play in yaml.safe_load(text) if play["hosts"] in groups]
        plays = one_by_one(kept, {group: members["hosts"] for group, members in groups.items()})
        if plays:
            texts[name] = "\n".join(plain_yaml([play]) for play in plays)
    return texts


def _variables(source: Source) -> dict[str, bool]:
    """The environment variables that give the secrets' values; whether only ``containers.yml`` needs them."""
    of_services: list[Any] = []
    for box in source.boxes:
        of_services += [service.variables for service in box.instance.services]
    services = secrets_of(of_services)
    hosts = secrets_of(list(source.hosts.values()))
    return {environment_name(name): name not in services for name in sorted({**services, **hosts})}
