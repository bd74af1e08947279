"""``up`` of twenty real containers in which nothing is to be done: on Incus, and on one node of Proxmox over ssh.

Nothing but the base role is in them. The Proxmox is the tests' double, whose containers run and whose ``pct`` is slowed
to the half second of a processor that the real one takes; what twenty calls of it take alone is measured beside.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from benchmarks.labs import PROVISION, Labs
from benchmarks.looks import NUMBER, PCT_S, TIMEOUT_S
from benchmarks.measuring import Cost, Row, Way, cost, cost_row, in_turns, say
from provisioner.hosts.proxmox import ProxmoxProvider, observe
from tests.doubles.proxmox.fixture import PveHost, real_host
from tests.lab.incus import LAB

NEAR, FAR, ALONE = (
    f"no-op, {NUMBER} on Incus: up",
    f"no-op, {NUMBER} on Proxmox: up",
    f"{NUMBER} x pct alone, by one command",
)
BESIDE = f"no-op, {NUMBER}: up on Proxmox without pct's own / on Incus"
COMMANDS = f"no-op, {NUMBER} on Proxmox: commands over ssh"
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
    """Seconds of each, in turns, and how many commands the node was asked to run for one ``up``."""
    with ExitStack() as stack:
        host = stack.enter_context(real_host(LAB))
        near = stack.enter_context(_home("bench-near", "{ incus: local }", {}))
        far = stack.enter_context(_home("bench-far", host.page, _environment(host)))
        host.pct.cost_s = PCT_S
        commands: list[int] = []

        def over_ssh() -> Cost:
            before = host.ssh.commands
            done = far.provision("up")
            commands.append(host.ssh.commands - before)
            return done

        ways = [
            Way(NEAR, lambda: near.provision("up"), rounds),
            Way(FAR, over_ssh, rounds),
            Way(ALONE, lambda: _alone(host, far.containers), rounds),
        ]
        try:
            return rows_of(in_turns(ways), commands)
        finally:
            host.pct.cost_s = 0


def rows_of(taken: Mapping[str, Sequence[Cost]], commands: Sequence[int]) -> list[Row]:
    """The rows of what each took, round by round."""
    pairs = zip(taken[FAR], taken[ALONE], taken[NEAR], strict=True)
    beside = [(one.wall_s - alone.wall_s) / near.wall_s for one, alone, near in pairs]
    return [
        *(cost_row(what, taken[what]) for what in (NEAR, FAR, ALONE)),
        Row(BESIDE, beside, "ratio"),
        Row(COMMANDS, commands, ""),
    ]


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


def _alone(host: PveHost, names: Sequence[str]) -> Cost:
    provider = ProxmoxProvider("home", access=host.access)
    vmids = {name: provider.vmid(name, "Unable to measure") for name in names}
    started = monotonic()
    stdins = dict.fromkeys(names, b"")
    looked = observe.look_into_containers(provider.ssh, ("true",), vmids, stdins, shared=b"", timeout_s=TIMEOUT_S)
    if any(one.returncode for one in looked.executions.values()):
        raise RuntimeError(f"Unable to measure pct alone: {looked.executions}")
    return Cost(monotonic() - started, 0.0)
