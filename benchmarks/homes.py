"""``up`` of twenty real containers in which nothing is to be done: on Incus, and on one node of Proxmox over ssh.

Nothing but the base role is in them, and in one of each twenty tasks of Ansible are run, too. The Proxmox is the tests'
double, whose containers run and whose ``pct`` is slowed to the 0.9 s of a processor that the real one takes.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.labs import PROVISION, Labs
from benchmarks.looks import NUMBER, PCT_S
from benchmarks.measuring import BIN, Cost, Row, Way, cost, cost_row, in_turns, ratio_row, say
from benchmarks.transports import play
from provisioner.hosts.base import Provider
from provisioner.hosts.incus import IncusProvider
from provisioner.hosts.proxmox import ProxmoxProvider
from provisioner.reconcile.inventory import CONTAINER_PYTHON
from provisioner.reconcile.runner import ansible_environment
from tests.doubles.proxmox.fixture import PveHost, real_host
from tests.lab.incus import LAB

NEAR, FAR = f"no-op, {NUMBER} on Incus: up", f"no-op, {NUMBER} on Proxmox: up"
TASKS_NEAR, TASKS_FAR = "20 tasks of Ansible on Incus", "20 tasks of Ansible on Proxmox"
BESIDE = f"no-op, {NUMBER}: up on Proxmox / on Incus"
TASKS_BESIDE = "20 tasks of Ansible: Proxmox / Incus"
COMMANDS = f"no-op, {NUMBER} on Proxmox: commands over ssh"
ATTACHES = f"no-op, {NUMBER} on Proxmox: containers entered by lxc-attach"
CONTAINER = "  {name}: {{ image: debian/12, cpu: 1, memory: 512MiB, disk: 2GiB }}\n"


@dataclass(frozen=True)
class _Home:
    """One lab of twenty containers, up."""

    name: str
    folder: Path
    environment: Mapping[str, str]

    @property
    def containers(self) -> list[str]:
        """Their names."""
        return [f"{self.name}-{number}" for number in range(1, NUMBER + 1)]

    def provision(self, *arguments: str) -> Cost:
        """What the command took."""
        return cost([*PROVISION, *arguments], self.environment, self.folder)


def rows(_labs: Labs, rounds: int) -> list[Row]:
    """Seconds of each, in turns, and how many commands the node ran and how often one entered a container."""
    with ExitStack() as stack:
        host = stack.enter_context(real_host(LAB))
        near = stack.enter_context(_home("bench-near", "{ incus: local }", {}))
        far = stack.enter_context(_home("bench-far", host.page, _environment(host)))
        host.pct.cost_s = PCT_S
        counts: list[tuple[int, int]] = []

        def over_ssh() -> Cost:
            commands, attached = host.ssh.commands, len(host.lxc.attached)
            done = far.provision("up")
            counts.append((host.ssh.commands - commands, len(host.lxc.attached) - attached))
            return done

        ways = [
            Way(NEAR, lambda: near.provision("up"), rounds),
            Way(FAR, over_ssh, rounds),
            _tasks(TASKS_NEAR, near, IncusProvider("home"), rounds),
            _tasks(TASKS_FAR, far, ProxmoxProvider("home", access=host.access), rounds),
        ]
        for way in ways:
            way.run()
        counts.clear()
        try:
            return rows_of(in_turns(ways), counts)
        finally:
            host.pct.cost_s = 0


def rows_of(taken: Mapping[str, Sequence[Cost]], counts: Sequence[tuple[int, int]]) -> list[Row]:
    """The rows of what each took, round by round; ``counts``: commands over ssh, and containers entered."""
    return [
        *(cost_row(what, taken[what]) for what in (NEAR, FAR, TASKS_NEAR, TASKS_FAR)),
        ratio_row(BESIDE, taken[FAR], taken[NEAR]),
        ratio_row(TASKS_BESIDE, taken[TASKS_FAR], taken[TASKS_NEAR]),
        Row(COMMANDS, [commands for commands, _ in counts], ""),
        Row(ATTACHES, [attaches for _, attaches in counts], ""),
    ]


def _tasks(what: str, home: _Home, provider: Provider, rounds: int) -> Way:
    place = home.folder / "tasks"
    place.mkdir()
    name = home.containers[0]
    variables = {"ansible_python_interpreter": CONTAINER_PYTHON, **provider.connection_variables(name)}
    (place / "hosts.yml").write_text(json.dumps({"all": {"hosts": {name: variables}}}), encoding="utf-8")
    (place / "play.yml").write_text(json.dumps(play(place)), encoding="utf-8")
    (place / "ansible.cfg").touch()
    command = [str(BIN / "ansible-playbook"), "-i", str(place / "hosts.yml"), str(place / "play.yml")]
    settings = {**ansible_environment(), **home.environment, "ANSIBLE_CONFIG": str(place / "ansible.cfg")}
    return Way(what, lambda: cost(command, settings, place), rounds)


def _environment(host: PveHost) -> dict[str, str]:
    secret = host.access.token_secret
    return {
        "PROVISION_SECRET_PVE_TOKEN": secret.reveal() if secret else "",
        "PROVISION_SSH_CONFIG": str(host.access.ssh_config),
    }


@contextmanager
def _home(name: str, page: str, environment: Mapping[str, str]) -> Iterator[_Home]:
    with tempfile.TemporaryDirectory(prefix=f"{name}-") as folder:
        home = _Home(name, Path(folder), environment)
        boxes = "".join(CONTAINER.format(name=one) for one in home.containers)
        text = f"name: {name}\nhosts:\n  home: {page}\ncontainers:\n{boxes}"
        (home.folder / "homelab.yml").write_text(text, encoding="utf-8")
        say(f"bringing up lab {name}")
        try:
            home.provision("up", "--yes")
            yield home
        finally:
            say(f"destroying lab {name}")
            home.provision("destroy", "--yes", "--lab", name)
