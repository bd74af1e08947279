"""Whether a changed server is started beside the one that serves, as far as that can be told before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from provisioner.gpus.cards import Card
from provisioner.loads.terms import MIB
from provisioner.models.header import Header
from provisioner.services.base import ResolvedService
from provisioner.services.llama_cpp import BESIDE_SHARE, Knowledge
from provisioner.values import paths
from tests.unit.loads.models import LLAMA
from tests.unit.services.llama_cpp.servers import service_with

GIB = 2**30


TWO = {"models": ["m", "eyes"]}


@pytest.mark.parametrize(
    ("options", "sizes", "told"),
    [
        ({}, {"m": GIB // 2}, True),
        ({}, {"m": GIB}, False),
        ({}, {"m": None}, None),
        ({}, {}, None),
        ({"mmproj": "eyes"}, {"m": GIB // 2, "eyes": GIB // 4}, True),
        ({"mmproj": "eyes"}, {"m": GIB // 2, "eyes": GIB // 2}, False),
        ({"beside": False}, {"m": 1}, False),
        ({"backend": "vulkan"}, {"m": 1}, False),
        ({"backend": "vulkan", "gpu_layers": 0}, {"m": 1}, True),
        # Of several models as many count as are in memory at once.
        (TWO, {"m": GIB // 2, "eyes": GIB // 2}, True),
        ({**TWO, "models_max": 2}, {"m": GIB // 2, "eyes": GIB // 2}, False),
        ({**TWO, "models_max": 0}, {"m": GIB // 2, "eyes": GIB // 2}, False),
        ({**TWO, "models_max": 2}, {"m": GIB // 2, "eyes": 1}, True),
        (TWO, {"m": 1, "eyes": GIB}, False),
        (TWO, {"m": 1, "eyes": None}, None),
    ],
)
def test_both_fit_where_twice_the_files_fit_and_the_processor_computes(
    options: dict[str, Any], sizes: dict[str, int | None], told: bool | None
) -> None:
    """In a container of 2 GiB."""
    assert Knowledge().changes_beside(service_with(options), sizes) is told


CARD = Card("0000:01:00.0", "nvidia", "NVIDIA of a test", memory=12 * GIB)
ON_CARD = {"backend": "cuda", "cuda_architectures": ["86"], "context": 4096}
HEAD = Header("llama", 32, values=LLAMA, tokens=32_000)


def on_card(options: dict[str, Any], card: Card | None = CARD, header: Header = HEAD) -> ResolvedService:
    """A server that computes on that card."""
    usual = service_with({**ON_CARD, **options})
    return replace(usual, card=card, wants_card=True, headers={"m": header})


@pytest.mark.parametrize(("gib", "told"), [(4, None), (5, False)])
def test_on_a_card_its_role_decides_where_twice_of_what_it_takes_could_lie_there(gib: int, told: bool | None) -> None:
    """4096 tokens of this model take 512 MiB of cache, and the engine's own context is reckoned with 832 MiB."""
    service, sizes = on_card({}), {"m": gib * GIB}
    assert Knowledge().changes_beside(service, sizes) is told
    [(name, needed)] = Knowledge().estimates(service, sizes).items()
    assert name == "llama_cpp_card_bytes"
    assert (gib * 1024 + 512 + 832) * MIB < needed < (gib * 1024 + 512 + 832 + 600) * MIB


@pytest.mark.parametrize(
    ("service", "sizes"),
    [
        (on_card({}), {"m": None}),
        (on_card({}, header=Header("")), {"m": GIB}),
        (on_card({}, card=None), {"m": GIB}),
        (on_card({"backend": "vulkan"}), {"m": GIB}),
        (on_card({"gpu_layers": 0}), {"m": GIB}),
    ],
    ids=["no size", "a guess", "no card", "Vulkan", "no layers"],
)
def test_what_is_not_known_to_lie_on_a_card_is_not_reckoned(
    service: ResolvedService, sizes: dict[str, int | None]
) -> None:
    assert Knowledge().estimates(service, sizes) == {}


def test_the_share_is_that_of_the_role() -> None:
    variables = yaml.safe_load((paths.roles() / "llama_cpp" / "vars" / "main.yml").read_text("utf-8"))
    assert variables["__llama_cpp_beside_share"] == BESIDE_SHARE
