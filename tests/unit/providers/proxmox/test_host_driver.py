"""What a Proxmox node does for its cards, asked over ssh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from provisioner.errors import UnavailableError
from provisioner.gpus.health import SCRIPT
from provisioner.providers.proxmox.health import host_driver
from provisioner.providers.proxmox.shell import Shell
from provisioner.state import Execution


class Node(Shell):
    """A node that gives one answer."""

    def __init__(self, answer: Execution) -> None:
        self.answer = answer
        self.asked: list[Sequence[str]] = []

    def run(self, argv: Sequence[str], **_: Any) -> Execution:
        """The answer."""
        self.asked.append(argv)
        return self.answer


def test_it_is_asked_by_the_script() -> None:
    node = Node(Execution(0, b"-\tunit\tprovision-gpu.service enabled\n-\tmodule\tNVRM version: x 580.95.05", b""))
    found = host_driver(node)
    assert (found.module, found.makers) == ("580.95.05", ("provision-gpu.service",))
    assert node.asked == [["sh", "-c", SCRIPT]]


def test_a_node_that_cannot_say_is_named_with_its_words() -> None:
    with pytest.raises(UnavailableError) as caught:
        host_driver(Node(Execution(2, b"", b"sh: not found\n")))
    assert caught.value.details == "sh: not found"
