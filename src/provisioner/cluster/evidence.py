"""What is asked of one node besides its facts: whether others give a sign of life, and what still names a node."""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.providers.proxmox.shell import Shell
from provisioner.repair.forgetting import Sign
from provisioner.repair.leftovers import Leftovers, leftovers_from
from provisioner.values import paths
from provisioner.values.errors import ProviderError
from provisioner.values.plain_data import Foreign

SIGNS_TIMEOUT_S = 60.0
LEFTOVERS_TIMEOUT_S = 60.0
WORDS = 4


def signs_of_life(shell: Shell, addresses: Sequence[str]) -> tuple[Sign, ...]:
    """What came back at each address when the node pinged it and knocked at its ssh port."""
    if not addresses:
        return ()
    said = _answer(shell, "bash", "signs.sh", addresses, SIGNS_TIMEOUT_S)
    signs = list[Sign]()
    for row in sorted(line.split("\t") for line in said.splitlines()):
        if len(row) == WORDS:
            address, how, state, text = row
            signs.append(Sign(address, "ping" if how == "ping" else "ssh", is_alive=state == "alive", said=text))
    return tuple(signs)


def addresses(shell: Shell, node: str) -> tuple[str, ...]:
    """At which addresses ``node`` may be by its name and by its certificate, as the other node has them."""
    return tuple(_answer(shell, "sh", "addresses.sh", (node,), SIGNS_TIMEOUT_S).split())


def leftovers(shell: Shell, node: str, addresses: Sequence[str]) -> Leftovers:
    """What in ``/etc/pve`` on the lead still names ``node``; ``ProviderError``: it could not be read."""
    said = _answer(shell, "sh", "leftovers.sh", (node, " ".join(addresses)), LEFTOVERS_TIMEOUT_S)
    return leftovers_from(said, node)


def _answer(shell: Shell, program: str, script: str, arguments: Sequence[str], timeout_s: float) -> str:
    """What a script of ``data/cluster`` wrote on the node; ``ProviderError`` when it failed there."""
    text = (paths.data() / "cluster" / script).read_text(encoding="utf-8")
    done = shell.run([program, "-c", text, script, *arguments], timeout_s=timeout_s)
    if done.returncode:
        raise ProviderError(
            f"Unable to look around on {shell.destination} ({script})",
            details=Foreign.of_output(done.stderr),
        )
    return done.stdout.decode(errors="replace")
