"""A Proxmox node's cards and what it does for them, asked over ssh."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from provisioner.gpus import health, look
from provisioner.hosts.proxmox.health import read_cards, read_host_driver
from provisioner.hosts.proxmox.ssh import Shell
from provisioner.values.errors import UnavailableError
from provisioner.values.state import Execution


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
    found = read_host_driver(node)
    assert (found.module, found.makers) == ("580.95.05", ("provision-gpu.service",))
    assert node.asked == [["sh", "-c", health.SCRIPT]]


def test_its_cards_are_asked_for_without_a_stream_that_a_child_could_eat() -> None:
    node = Node(Execution(0, b"0000:01:00.0\tvendor\t0x1002\n0000:01:00.0\tdriver\tamdgpu\n", b""))
    assert [(card.pci, card.vendor, card.driver) for card in read_cards(node)] == [("0000:01:00.0", "amd", "amdgpu")]
    assert node.asked == [["sh", "-c", look.SCRIPT]]


@pytest.mark.parametrize("ask", [read_cards, read_host_driver])
def test_a_node_that_cannot_say_is_named_with_its_words(ask: Callable[[Shell], object]) -> None:
    with pytest.raises(UnavailableError) as caught:
        ask(Node(Execution(2, b"", b"sh: not found\n")))
    assert caught.value.details == "sh: not found"
