"""Cards as hosts tell of them, for labs whose engines compute on one."""

from __future__ import annotations

from provisioner.gpus.cards import Card, Node

RTX_3060 = Card(
    "0000:01:00.0",
    "nvidia",
    "RTX 3060",
    driver="nvidia",
    memory=12 * 2**30,
    capability="8.6",
    driver_version="580.95.05",
    runtime=True,
    nodes=(Node("/dev/nvidia0", 195, 0),),
)
