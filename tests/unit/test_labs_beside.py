"""That no lab of the tests gets in the way of another: several of them stand on one machine at the same moments."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

from tests.lab.incus import BESIDE, LAB, lab_beside

TESTS = Path(__file__).resolve().parents[1]
BY_HAND = re.compile(r"""\b(?:Lab|Incus)\(\s*Path\(["']/var/lib""")


def test_no_two_labs_share_a_folder_a_bridge_or_a_network() -> None:
    labs = [LAB, *(lab_beside(name) for name in BESIDE)]
    for one, other in combinations(labs, 2):
        assert one.state != other.state
        assert one.bridge != other.bridge
        assert one.subnet.rpartition(".")[0] != other.subnet.rpartition(".")[0]
    assert all(len(lab.bridge) <= 15 and lab.subnet.endswith(".1/24") for lab in labs)  # the kernel's limit of a name


def test_no_test_gives_a_lab_a_network_of_its_own() -> None:
    """Two did, and failed where they ran at the same moment."""
    assert BY_HAND.search('Incus(Path("/var/lib/provisioner-hand"), "prvhand0", "10.89.79.1/24")')
    assert not [file for file in TESTS.rglob("*.py") if file != Path(__file__) and BY_HAND.search(file.read_text())]
