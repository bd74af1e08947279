"""``python -m tests.lab up|down|status``: the tests' Incus by hand; after ``up`` it stays until ``down``."""

from __future__ import annotations

import sys
import time

import click

from tests.lab import incus, remains


def main(arguments: list[str]) -> int:
    """Do what was asked; 0 when done, 1 when the lab cannot be or is not up, 64 for a wrong question."""
    reason = incus.reason_to_skip()
    if reason:
        click.echo(reason, err=True)
        return 1
    actions = {"up": _up, "down": _down, "status": _status}
    if len(arguments) != 1 or arguments[0] not in actions:
        click.echo(__doc__, err=True)
        return 64
    began = time.monotonic()
    code = actions[arguments[0]]()
    click.echo(f"{time.monotonic() - began:.1f} s")
    return code


def _up() -> int:
    with incus.turn(incus.LAB):
        incus.kept_mark(incus.LAB).touch()
        click.echo(incus.bring_up(incus.LAB).strip().splitlines()[-1])
    click.echo(f"export INCUS_DIR={incus.LAB.state}")
    return 0


def _down() -> int:
    with incus.turn(incus.LAB):
        incus.kept_mark(incus.LAB).unlink(missing_ok=True)
        if incus.take_down_unused(incus.LAB):
            return 0
    click.echo("a test run uses it and will take it down when it ends", err=True)
    return 1


def _status() -> int:
    pid = remains.running(remains.pidfile(incus.LAB.state, incus.RUN), remains.INCUSD)
    kept = ", kept after tests" if incus.kept_mark(incus.LAB).exists() else ""
    click.echo(f"up: process {pid}{kept}" if pid else "down")
    for thing in remains.left(incus.LAB.state, incus.LAB.bridge):
        click.echo(f"  {thing}")
    return 0 if pid else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
