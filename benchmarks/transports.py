"""A play of 20 tasks on one container by three connections: ours, community.general's incus, and Mitogen's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.labs import BenchLab, Labs
from benchmarks.measuring import BIN, Row, Way, cost, cost_row, in_turns, ratio_row
from benchmarks.peers import MissingPeerError, community_general, mitogen
from provisioner.reconcile.inventory import CONTAINER_PYTHON
from provisioner.reconcile.runner import ansible_environment

FOLDER = "/root/benchmark"
OURS, COMMUNITY, MITOGEN = "ours", "community.general.incus", "mitogen_incus"
BESIDE_MITOGEN = "20 tasks: ours / Mitogen"
Variables = Mapping[str, str]


def rows(labs: Labs, rounds: int) -> list[Row]:
    """What the play takes by each of them once there is nothing to change; the first one of each is not counted."""
    lab = labs.of(1)
    (lab.folder / "ansible.cfg").touch()
    ways, found = [], []
    for name, prepare in {OURS: _ours, COMMUNITY: _community, MITOGEN: _mitogen}.items():
        what = f"20 tasks: {name}"
        try:
            environment, variables = prepare(lab)
        except MissingPeerError as error:
            found.append(Row(what, (), "", why_not=str(error)))
            continue
        ways.append(_way(lab, what, environment, variables, rounds))
    for way in ways:
        way.run()
    taken = in_turns(ways)
    ours, theirs = taken[f"20 tasks: {OURS}"], taken.get(f"20 tasks: {MITOGEN}")
    if theirs is not None:
        found.append(ratio_row(BESIDE_MITOGEN, ours, theirs))
    return [*(cost_row(what, costs) for what, costs in taken.items()), *found]


def _way(lab: BenchLab, what: str, environment: Variables, variables: Variables, rounds: int) -> Way:
    place = lab.folder / what.replace(" ", "-")
    place.mkdir(exist_ok=True)
    hosts = {"all": {"hosts": {lab.containers[0]: {"ansible_python_interpreter": CONTAINER_PYTHON, **variables}}}}
    (place / "hosts.yml").write_text(json.dumps(hosts), encoding="utf-8")
    (place / "play.yml").write_text(json.dumps(play(place)), encoding="utf-8")
    command = [str(BIN / "ansible-playbook"), "-i", str(place / "hosts.yml"), str(place / "play.yml")]
    settings = ansible_environment() | {"ANSIBLE_CONFIG": str(lab.folder / "ansible.cfg")} | dict(environment)
    return Way(what, lambda: lab.watched(lambda: cost(command, settings, place)), rounds)


def _ours(lab: BenchLab) -> tuple[Variables, Variables]:
    return {}, lab.provider.connection_variables(lab.containers[0])


def _community(_lab: BenchLab) -> tuple[Variables, Variables]:
    return {"ANSIBLE_COLLECTIONS_PATH": str(community_general())}, {"ansible_connection": COMMUNITY}


def _mitogen(_lab: BenchLab) -> tuple[Variables, Variables]:
    folder = mitogen()
    plugins = folder / "ansible_mitogen/plugins"
    environment = {
        "PYTHONPATH": str(folder),
        "ANSIBLE_STRATEGY": "mitogen_linear",
        "ANSIBLE_STRATEGY_PLUGINS": str(plugins / "strategy"),
        "ANSIBLE_CONNECTION_PLUGINS": str(plugins / "connection"),
    }
    return environment, {"ansible_connection": MITOGEN}


def play(place: Path) -> list[dict[str, Any]]:
    """Four times a folder, a look, a template, a file, a line; the last one a command instead of a line."""
    (place / "template.j2").write_text("container {{ inventory_hostname }}\n", encoding="utf-8")
    tasks: list[dict[str, Any]] = []
    for number in range(4):
        here = f"{FOLDER}/{number}"
        tasks += [
            {"ansible.builtin.file": {"path": here, "state": "directory", "mode": "0755"}},
            {"ansible.builtin.stat": {"path": here}},
            {"ansible.builtin.template": {"src": str(place / "template.j2"), "dest": f"{here}/a", "mode": "0644"}},
            {"ansible.builtin.copy": {"content": "text\n", "dest": f"{here}/b", "mode": "0644"}},
            {"ansible.builtin.lineinfile": {"path": f"{here}/c", "line": "a line", "create": True, "mode": "0644"}}
            if number % 2
            else {"ansible.builtin.command": {"argv": ["true"]}, "changed_when": False},
        ]
    return [{"hosts": "all", "gather_facts": False, "tasks": tasks}]
