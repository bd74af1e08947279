"""The containers in which artifacts are made: their network cards, and where nobody knows who answers them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from provisioner.lab.resolved import ResolvedContainer
from provisioner.labfile.hosts import DHCP

if TYPE_CHECKING:
    from provisioner.values.state import Artifact

BUILD_HINT = (
    "If no DHCP server answers there, write on the host's page: build: { network: { ip: ADDRESS/PREFIX, gateway: "
    "ADDRESS } }, with an address that nothing else has."
)


def with_builder(artifact: Artifact, container: ResolvedContainer, earlier: Artifact | None) -> Artifact:
    """Return the artifact with its builder's network card, as it is for that container.

    ``earlier``: the same artifact for another container, whose card is taken where that one asks DHCP itself.
    """
    if container.page is None:
        return artifact
    if earlier is not None and not earlier.builder_beside:
        return replace(artifact, builder_settings=earlier.builder_settings, builder_address=earlier.builder_address)
    card = container.page.builder_card(container.written.block)
    beside = container.name * card.asks_in_vain
    return replace(artifact, builder_settings=card.settings, builder_address=card.address, builder_beside=beside)


def has_nobody_to_ask(copy: ResolvedContainer, original: ResolvedContainer) -> bool:
    """Whether a copy asks DHCP, unlike its original, on a host whose ``build:`` says that there is none."""
    page = copy.page
    if page is None or page.build is None or page.build.network.ip == DHCP:
        return False
    of_copy = page.settings_of(copy.written.block)["network"]["ip"]
    of_original = page.settings_of(original.written.block)["network"]["ip"]
    return bool(of_copy == DHCP != of_original)


def dhcp_doubts(artifacts: Iterable[Artifact]) -> list[str]:
    """Say of which networks it is not known whether DHCP answers there, on which builders ask for an address."""
    names: dict[str, list[str]] = {}
    for artifact in artifacts:
        if artifact.builder_beside:
            card = artifact.builder_settings["network"]
            vlan = f" with VLAN {card['vlan']}" if "vlan" in card else ""
            where = f"DHCP on {card['bridge']}{vlan}, where {artifact.builder_beside} has a fixed address"
            names.setdefault(where, []).append(artifact.name)
    return [f"{', '.join(made)}: made in containers that ask {where}" for where, made in names.items()]
