"""Labs as a host would show them, for the record of what the version before made of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from provisioner.gpus.cards import Card, Node
from provisioner.report.messages import plain_value
from provisioner.values.state import Artifact, Instance
from tests.case_files import read_cases

CASES = read_cases("labs_made_before")

CARD = Card(
    "0000:01:00.0",
    "nvidia",
    "NVIDIA GeForce RTX 3060",
    driver="nvidia",
    uuid="GPU-00000000-0000-0000-0000-000000000000",
    memory=12 * 2**30,
    capability="8.6",
    driver_version="580.95.05",
    cuda="13.0",
    nodes=(Node("/dev/nvidia0", 195, 0), Node("/dev/nvidiactl", 195, 255)),
)
USUAL: dict[str, Any] = CASES["usual"]
"""What most files say: little, so that everything else is a default."""
COMPARED = ("name", "host", "image", "cpu", "memory", "disk", "nesting", "devices", "settings")
"""What a plan compares of a container."""


def made_of(instances: Iterable[Instance], artifacts: Iterable[Artifact]) -> dict[str, Any]:
    """What a host holds once a lab is made: its containers as a plan compares them, and the volumes of artifacts."""
    containers = {one.name: {name: plain_value(getattr(one, name)) for name in COMPARED} for one in instances}
    return {"containers": containers, "volumes": sorted(artifact.volume for artifact in artifacts)}
