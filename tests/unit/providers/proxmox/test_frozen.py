"""Frozen containers: told from those that are slow by the node alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from provisioner.providers.proxmox import frozen, inside
from provisioner.providers.proxmox.shell import CommandKilledError, Shell
from provisioner.values.errors import ProviderError, UnavailableError
from provisioner.values.state import Execution

SLOW = "It was killed after 1 s."
ADVICE = "CT 101 is frozen: nothing in it runs. Resume it, on its node: lxc-unfreeze -n 101"


class Node:
    """A node on which nothing in the container ends, and whose ``lxc-info`` says ``state``."""

    def __init__(self, state: bytes | Exception) -> None:
        self.state = state

    def run(self, command: Sequence[str], **_options: Any) -> Execution:
        """Answer for ``lxc-info``; a command in the container takes too long."""
        if command[0] != "lxc-info":
            raise CommandKilledError("Unable to wait for pct", details=SLOW)
        if isinstance(self.state, Exception):
            raise self.state
        return Execution(0, self.state, b"")


@pytest.mark.parametrize(
    ("state", "details"),
    [
        (b"FROZEN\n", f"{SLOW}\n{ADVICE}"),
        (b"RUNNING\n", SLOW),
        (b"", SLOW),
        (ProviderError("Unable to run lxc-info"), SLOW),
        (UnavailableError("Unable to reach root@pve1 by ssh"), SLOW),
    ],
)
def test_a_command_that_did_not_end_says_whether_its_container_is_frozen(
    state: bytes | Exception, details: str
) -> None:
    shell = cast("Shell", Node(state))
    with pytest.raises(ProviderError, match="Unable to run true in container one") as caught:
        inside.execute(shell, 101, ["true"], timeout_s=1, name="one")
    assert caught.value.details == details
    assert frozen.is_frozen(shell, 101) is (state == b"FROZEN\n")
