"""The verb ``host prepare`` on this machine: what it needs for containers, and for their graphics cards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from provisioner.gpus.cards import DRIVERS, Card
from provisioner.reconcile.inventory import render_this_machine
from provisioner.reconcile.runner import PlaybookResult
from provisioner.values import paths
from provisioner.values.errors import PreflightError

INSTALL = (
    "Install the driver as its own pages say, then start the machine anew and run this again. On Debian: for NVIDIA "
    "apt install nvidia-driver (non-free), for AMD firmware-amd-graphics, for Intel firmware-misc-nonfree "
    "(non-free-firmware). A card for virtual machines (vfio-pci) cannot be given to containers at the same time."
)


def require_cards(cards: Sequence[Card]) -> None:
    """Raise ``PreflightError`` where no card of this machine has a driver that can compute; none is installed."""
    if any(card.driver in DRIVERS[card.vendor] for card in cards):
        return
    seen = "\n".join(f"{card.title}: {card.obstacle()}" for card in cards)
    raise PreflightError(
        "Unable to prepare this machine's graphics cards: " + ("none has its driver" if cards else "it has none"),
        details=seen or "Of NVIDIA, AMD and Intel there is none (lspci -nn | grep -E 'VGA|3D|Display').",
        resolution=INSTALL if cards else "Leave --gpu out. In a virtual machine its host has to pass a card on first.",
    )


def prepare_cards(run_playbook: Callable[..., PlaybookResult]) -> PlaybookResult:
    """Have this machine's graphics cards ready for containers after every start: ``playbooks/gpu_host.yml`` on it."""
    return run_playbook("gpu_host.yml", render_this_machine({}, paths.inventory_templates()))


def prepare_host(variables: Mapping[str, object], run_playbook: Callable[..., PlaybookResult]) -> PlaybookResult:
    """Make this machine able to hold containers: ``playbooks/host.yml`` on localhost with the role's ``variables``."""
    return run_playbook("host.yml", render_this_machine(variables, paths.inventory_templates()))
