"""A look into twenty containers: on Incus, and on Proxmox by one command over ssh.

One container of each kind stands for all twenty: what is measured is the way there and back. The Proxmox is the tests'
double, whose ``pct`` is slowed to the 0.9 s of a processor that the real one takes.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import monotonic

from benchmarks.labs import Labs
from benchmarks.measuring import Row, say
from provisioner.hosts.base import LOOKS, Provider
from provisioner.hosts.incus import IncusProvider
from provisioner.hosts.proxmox import ProxmoxProvider, observe
from provisioner.reconcile.gather import COMMAND, agent_text
from provisioner.values.state import Instance
from tests.doubles.proxmox.fixture import PveHost, real_host
from tests.lab.incus import LAB

NUMBER = 20
TIMEOUT_S = 600.0
PCT_S = 0.9
REQUEST = {"do": "look", "of": "bench/look", "roles": ["base"], "services": [], "manifests": []}
INCUS, ONE, EACH = (
    f"{NUMBER} looks on Incus",
    f"{NUMBER} looks on Proxmox, by one command",
    f"{NUMBER} looks on Proxmox, by a command each",
)


def rows(_labs: Labs, rounds: int) -> list[Row]:
    """Seconds of each way, in turns, and Proxmox' beside Incus'."""
    with real_host(LAB) as host, _running(IncusProvider("box")) as near, _running(_proxmox(host)) as far:
        host.pct.cost_s = PCT_S
        ways: dict[str, Callable[[], object]] = {
            INCUS: lambda: _by_call_each(IncusProvider("box"), near),
            ONE: lambda: _by_one(_proxmox(host), far, COMMAND, agent_text()),
            EACH: lambda: _by_call_each(_proxmox(host), far),
        }
        taken: dict[str, list[float]] = {what: [] for what in ways}
        for number in range(rounds):
            for what, way in ways.items():
                say(f"looks: {what}, round {number + 1}")
                started = monotonic()
                way()
                taken[what].append(monotonic() - started)
    return rows_of(taken)


def rows_of(taken: Mapping[str, Sequence[float]]) -> list[Row]:
    """The rows of what each way took, round by round."""
    beside = [one / near for one, near in zip(taken[ONE], taken[INCUS], strict=True)]
    ratio = Row(f"{NUMBER} looks: Proxmox / Incus", beside, "ratio")
    return [*(Row(what, values, "s") for what, values in taken.items()), ratio]


def _proxmox(host: PveHost) -> ProxmoxProvider:
    return ProxmoxProvider("pve1", access=host.access)


@contextmanager
def _running(provider: Provider) -> Iterator[Instance]:
    one = Instance(f"bench-look-{secrets.token_hex(3)}", provider.host, "bench-looks", "debian/12")
    provider.create(one)
    try:
        provider.start(one)
        yield provider.wait_until_ready(one)
    finally:
        provider.delete(one)


def _by_call_each(provider: Provider, one: Instance) -> None:
    stdin = agent_text() + json.dumps(REQUEST).encode()

    def look(_number: int) -> None:
        _require([provider.execute(one.name, COMMAND, stdin=stdin, timeout_s=TIMEOUT_S).returncode])

    with ThreadPoolExecutor(LOOKS) as pool:
        list(pool.map(look, range(NUMBER)))


def _by_one(provider: ProxmoxProvider, one: Instance, command: Sequence[str], shared: bytes) -> None:
    names = [f"look-{number}" for number in range(NUMBER)]
    vmids = dict.fromkeys(names, provider.vmid(one.name, "Unable to measure"))
    stdins = dict.fromkeys(names, json.dumps(REQUEST).encode())
    looked = observe.look_into_containers(provider.ssh, command, vmids, stdins, shared=shared, timeout_s=TIMEOUT_S)
    _require([ran.returncode for ran in looked.executions.values()])


def _require(codes: Sequence[int]) -> None:
    if any(codes):
        raise RuntimeError(f"Unable to measure looks: they ended with {codes}")
