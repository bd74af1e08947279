"""A Proxmox node's cards and what it does for them, asked over ssh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from provisioner.gpus import health, look
from provisioner.hosts.base import Cards
from provisioner.hosts.proxmox import ProxmoxProvider
from provisioner.hosts.proxmox.access import Access
from provisioner.hosts.proxmox.ssh import Shell
from provisioner.values.errors import UnavailableError
from provisioner.values.state import Execution


class OneAnswer(Shell):
    """A node's shell that gives one answer."""

    def __init__(self, answer: Execution) -> None:
        self.answer = answer
        self.asked: list[Sequence[str]] = []

    def run(self, argv: Sequence[str], **_: Any) -> Execution:
        """The answer."""
        self.asked.append(argv)
        return self.answer


def cards(shell: Shell) -> Cards:
    """The cards of a node with that shell."""
    provider = ProxmoxProvider("box", access=Access("https://pve:8006", "root@pam"))
    provider.ssh = shell
    return provider.cards


def test_it_is_asked_by_the_script() -> None:
    node = OneAnswer(Execution(0, b"-\tunit\tprovision-gpu.service enabled\n-\tmodule\tNVRM version: x 580.95.05", b""))
    found = cards(node).driver()
    assert (found.module, found.makers) == ("580.95.05", ("provision-gpu.service",))
    assert node.asked == [["sh", "-c", health.SCRIPT]]


def test_its_cards_are_asked_for_without_a_stream_that_a_child_could_eat() -> None:
    node = OneAnswer(Execution(0, b"0000:01:00.0\tvendor\t0x1002\n0000:01:00.0\tdriver\tamdgpu\n", b""))
    assert [(card.pci, card.vendor, card.driver) for card in cards(node).read()] == [("0000:01:00.0", "amd", "amdgpu")]
    assert node.asked == [["sh", "-c", look.SCRIPT]]


@pytest.mark.parametrize("ask", ["read", "driver"])
def test_a_node_that_cannot_say_is_named_with_its_words(ask: str) -> None:
    with pytest.raises(UnavailableError) as caught:
        getattr(cards(OneAnswer(Execution(2, b"", b"sh: not found\n"))), ask)()
    assert caught.value.details == "sh: not found"
