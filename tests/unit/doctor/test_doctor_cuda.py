"""An engine that was built with CUDA against the card that it gets, and the card's driver."""

from __future__ import annotations

import pytest
from syrupy.assertion import SnapshotAssertion

from provisioner.doctor.cards import Build, cuda_diagnosis
from provisioner.doctor.examine import diagnoses_text
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
    "too old for the release": (PASCAL, "13.0", ("61",)),
    "a newer one's code alone": (AMPERE, "13.0", ("90",)),
    "code that nobody translates": (AMPERE, "13.0", ("75-real",)),
    "code of one card": (AMPERE, "13.0", ("80a",)),
    "a driver that is too old": (OLD, "13.0", ("86",)),
    "translation that it cannot do": (AMPERE, "13.2", ("75",)),
}


@pytest.mark.parametrize(("builds", "is_well"), [(GOOD, True), (BAD, False)], ids=["run", "do not run"])
def test_builds(
    builds: dict[str, tuple[Card, str, tuple[str, ...]]], *, is_well: bool, snapshot: SnapshotAssertion
) -> None:
    texts = []
    for name, (card, release, architectures) in builds.items():
        found = cuda_diagnosis(Build("llama/llama_cpp", release, architectures), card)
        assert (found.finding is None) == found.check.ok == is_well
        texts.append(f"{name}:\n{diagnoses_text([found])}")
    assert "\n\n".join(texts) == snapshot
