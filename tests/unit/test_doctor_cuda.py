"""An engine that was built with CUDA against the card that it gets, and the card's driver."""

from __future__ import annotations

import pytest

from provisioner.doctor.cuda import Build, cuda_diagnosis
from provisioner.gpus.cards import Card

AMPERE = Card("0000:01:00.0", "nvidia", "RTX 3060", "nvidia", capability="8.6", driver_version="580.95.05", cuda="13.0")
PASCAL = Card("0000:01:00.0", "nvidia", "GTX 1080", "nvidia", capability="6.1", driver_version="580.95.05", cuda="13.0")
OLD = Card("0000:01:00.0", "nvidia", "RTX 3060", "nvidia", capability="8.6", driver_version="550.54.14", cuda="12.4")
SILENT = Card("0000:01:00.0", "nvidia", "RTX 3060", "nvidia", driver_version="580.95.05")

GOOD = {
    "its own": (AMPERE, "13.0", ("86",)),
    "not written: the card's own": (AMPERE, "13.0", ()),
    "of its generation": (AMPERE, "13.0", ("80",)),
    "translated from an older one": (AMPERE, "13.0", ("75",)),
    "of all": (AMPERE, "13.0", ("all",)),
    "one of several": (AMPERE, "13.0", ("120", "86-real")),
    "a newer release of the same branch": (AMPERE, "13.2", ("86",)),
    "an older release": (OLD, "12.4", ("86",)),
    "nobody tells": (SILENT, "13.0", ("90",)),
}
BAD = {
    "too old for the release": (PASCAL, "13.0", ("61",), "CUDA 13.0 compiles for 75 and newer", "backend: vulkan"),
    "a newer one's code alone": (AMPERE, "13.0", ("90",), "is built for 90 alone", 'cuda_architectures: ["86"]'),
    "code that nobody translates": (AMPERE, "13.0", ("75-real",), "is built for 75-real alone", "86"),
    "code of one card": (AMPERE, "13.0", ("80a",), "is built for 80a alone", "86"),
    "a driver that is too old": (OLD, "13.0", ("86",), "CUDA 13.0 needs driver 580 or newer", "(12.4)"),
    "translation that it cannot do": (AMPERE, "13.2", ("75",), "knows CUDA 13.0 only", 'cuda_architectures: ["86"]'),
}


@pytest.mark.parametrize(("card", "release", "names"), GOOD.values(), ids=GOOD)
def test_a_build_that_runs(card: Card, release: str, names: tuple[str, ...]) -> None:
    found = cuda_diagnosis(Build("llama/llama_cpp", release, names), card)
    assert found.finding is None
    assert found.check.target == "llama/llama_cpp"
    assert f"CUDA {release} has code for {card.title}" in found.check.message


@pytest.mark.parametrize(("card", "release", "names", "problem", "hint"), BAD.values(), ids=BAD)
def test_one_that_does_not(card: Card, release: str, names: tuple[str, ...], problem: str, hint: str) -> None:
    found = cuda_diagnosis(Build("llama/llama_cpp", release, names), card)
    assert found.finding is not None
    assert problem in found.finding.message
    assert hint in found.finding.resolution
