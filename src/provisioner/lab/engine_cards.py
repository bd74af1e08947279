"""What a llama.cpp server is built for and told where its container has a card and the file leaves that open. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from provisioner.catalog import Catalog
from provisioner.gpus.cards import Card, Vendor
from provisioner.lab.cards import described
from provisioner.lab.engine_builds import CPU, CUDA, ROLE, VULKAN, engine_builds
from provisioner.lab.speech import ROLE as KOKORO
from provisioner.lab.speech import speech_card_problems
from provisioner.lab.speech import told as _told_kokoro
from provisioner.spec import Container, ServiceSpec, Spec
from provisioner.state import Problem

TABBY = "tabbyapi"
BACKENDS: Mapping[Vendor, str] = {"nvidia": CUDA, "amd": VULKAN, "intel": VULKAN}
"""What computes best on a vendor's cards of those that can be built."""


def with_cards(spec: Spec, cards: Mapping[str, Card]) -> Spec:
    """The file with the options of its engines that follow from their containers' cards; what is written stays."""
    containers = {
        name: container.model_copy(update={"services": _services(container, cards[name])})
        for name, container in spec.containers.items()
        if name in cards
    }
    return spec.model_copy(update={"containers": {**spec.containers, **containers}}) if containers else spec


def card_problems(spec: Spec, catalog: Catalog, cards: Mapping[str, Card]) -> Iterator[Problem]:
    """What engines cannot do with their cards; ``spec`` is the file that ``with_cards`` gave."""
    for name, card in cards.items():
        if TABBY in spec.containers[name].services and card.vendor != "nvidia":
            what = f"{card.title} knows no CUDA, which its stacks are for"
            yield Problem(("containers", name, "services", TABBY), what, "Give the container another card.")
        service = spec.containers[name].services.get(ROLE)
        if service is None:
            continue
        path, backend = ("containers", name, "services", ROLE, "backend"), service.options.get("backend")
        if backend == CUDA and card.vendor != "nvidia":
            yield Problem(path, f"{card.title} knows no CUDA", "Leave it out, or write backend: vulkan.")
        elif backend == CUDA and not service.options.get("cuda_architectures"):
            hint = "Install nvidia-smi on the host, or write cuda_architectures: [N]."
            yield Problem(path, f"nobody tells what {card.title} can compute", hint)
    yield from (one for one in engine_builds(spec, catalog) if one.path[1] in cards)
    yield from speech_card_problems(spec, catalog, cards)


def _services(container: Container, card: Card) -> dict[str, ServiceSpec]:
    return {
        role: one.model_copy(update={"options": {**_TOLD[role](one.options, card), **one.options}})
        if role in _TOLD
        else one
        for role, one in container.services.items()
    }


def _told_tabby(_written: Mapping[str, Any], card: Card) -> dict[str, Any]:
    return {"card": described(card)}


def _told(written: Mapping[str, Any], card: Card) -> dict[str, Any]:
    backend = written.get("backend", BACKENDS[card.vendor])
    if backend == CPU:
        return {}
    # Left to itself the server keeps room on the card and moves layers to the CPU for it, without a word.
    told = {"backend": backend, "card": described(card), "gpu_layers": "all"}
    digits = card.capability.replace(".", "")
    return told | ({"cuda_architectures": [digits]} if backend == CUDA and digits else {})


_TOLD = {ROLE: _told, TABBY: _told_tabby, KOKORO: _told_kokoro}
"""The roles that compute on their container's card, and what each is told of it."""
