"""``python -m tests.doubles.proxmox up [PORT]``: a double to try things by hand, until it is interrupted."""

from __future__ import annotations

import signal
import sys

import click

from tests.doubles.proxmox.double import Double, double
from tests.doubles.proxmox.world import PASSWORD


def main(arguments: list[str]) -> int:
    """Run one; 64 for a wrong question."""
    if not arguments or arguments[0] != "up" or not all(part.isdecimal() for part in arguments[1:]):
        click.echo(__doc__, err=True)
        return 64
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with double(port=int(arguments[1]) if arguments[1:] else 0) as running:
        _introduce(running)
        try:
            signal.pause()
        except KeyboardInterrupt:
            return 0
    return 0


def _introduce(running: Double) -> None:
    token = running.world.access.add_token("root@pam", "ci", privsep=False)
    for node in running.world.nodes:
        click.echo(f"{node}: {running.url_of(node)}")
    click.echo(f"root@pam: {PASSWORD}")
    click.echo(f"curl --cacert {running.ca} -H 'Authorization: PVEAPIToken=root@pam!ci={token}' \\")
    click.echo(f"  {running.url}/api2/json/version")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
