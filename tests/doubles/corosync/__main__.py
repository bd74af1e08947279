"""``python -m tests.doubles.corosync up [N]|down|status|heal|stale NODE MODE|exec NODE COMMAND``: a cluster by hand."""

from __future__ import annotations

import os
import sys
import time

import click

from provisioner.values import paths
from tests.doubles.corosync import machines, stale
from tests.doubles.corosync.cluster import Cluster
from tests.lab.incus import LAB, reason_to_skip, shared

USAGE = 64


def main(arguments: list[str]) -> int:
    """Do what was asked; the cluster stays until ``down``."""
    actions = {"up": _up, "down": _down, "status": _status, "heal": _heal, "stale": _stale, "exec": _exec}
    if not arguments or arguments[0] not in actions:
        click.echo(__doc__, err=True)
        return USAGE
    reason = reason_to_skip()
    if reason:
        click.echo(reason, err=True)
        return 1
    began = time.monotonic()
    os.environ |= LAB.environment
    code = actions[arguments[0]](arguments[1:])
    click.echo(f"{time.monotonic() - began:.1f} s", err=True)
    return code


def _cluster() -> Cluster:
    nodes = machines.find(LAB, machines.KEPT)
    if not nodes:
        raise SystemExit("there is no cluster: up")
    return Cluster(nodes, paths.cache() / "corosync/by-hand")


def _up(arguments: list[str]) -> int:
    if machines.find(LAB, machines.KEPT):
        click.echo("there is one already: down", err=True)
        return 1
    names = [f"pve{n}" for n in range(1, int(arguments[0] if arguments else "3") + 1)]
    with shared(LAB):
        machines.create(LAB, names, machines.KEPT)
    return _heal([])


def _down(_: list[str]) -> int:
    if machines.find(LAB, machines.KEPT):
        _cluster().close()
    return 0


def _status(_: list[str]) -> int:
    cluster = _cluster()
    for node in cluster.nodes:
        said = "off" if node.is_off else node.run("corosync-quorumtool -s", check=False)
        click.echo(f"== {node.name} {node.address} ({node.instance})\n{said}")
    click.echo(f"ssh -F {cluster.ssh_config} root@{cluster.nodes[0].address}")
    return 0


def _heal(_: list[str]) -> int:
    cluster = _cluster()
    cluster.heal()
    return _status([])


def _stale(arguments: list[str]) -> int:
    name, mode = arguments
    if mode not in stale.MODES:
        click.echo(f"MODE is one of {', '.join(stale.MODES)}", err=True)
        return USAGE
    _cluster().make_stale(name, mode)
    return 0


def _exec(arguments: list[str]) -> int:
    code, said = _cluster().node(arguments[0]).try_run(" ".join(arguments[1:]))
    click.echo(said, nl=False)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
