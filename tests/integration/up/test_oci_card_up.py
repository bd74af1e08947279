"""An image with a real card of NVIDIA: its driver answers inside, through what the role's CDI file gives.

Where there is no such card every test says so and is skipped. Files of the driver come as for other services: lent by
Incus, or as the container's own.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from provisioner.gpus.cards import Card
from provisioner.gpus.look import SCRIPT, cards_in
from tests.integration.up.quickstart_lab import sh
from tests.integration.up.test_oci_up import BESIDE, FILE, ImageLab, with_registry
from tests.lab.incus import Lab as Incus

pytestmark = [pytest.mark.gpu, pytest.mark.incus, pytest.mark.network, pytest.mark.slow]

NAME = "e2eocicard"
WITH_CARD = """    memory: 1GiB
    gpu: { pci: "PCI" }
"""
ASKS_DRIVER = """        health: /health
        health_command: [/usr/bin/nvidia-smi, -L]
"""
CARD_FILE = (
    FILE.replace("name: e2eoci", f"name: {NAME}")
    .replace("    memory: 1GiB\n", WITH_CARD)
    .replace("        health: /health\n", ASKS_DRIVER)
)


@pytest.fixture(scope="module")
def card() -> Card:
    """A card of NVIDIA of this machine."""
    said = subprocess.run(["sh", "-c", SCRIPT], capture_output=True, text=True, check=False, timeout=60).stdout
    usable = [one for one in cards_in(said) if one.is_usable and one.vendor == "nvidia"]
    if not usable:
        pytest.skip("this machine has no card of NVIDIA that containers could be given")
    return usable[0]


@pytest.fixture(scope="module")
def lab(card: Card, incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImageLab]:
    """The lab, up, whose image has the card."""
    lab = ImageLab(tmp_path_factory.mktemp("oci"), incus_lab.environment, "debian/13", "debian/13", name=NAME)
    try:
        with_registry(lab)
        lab.write_file(text=CARD_FILE.replace("PCI", card.pci))
        lab.provision("destroy", "--yes", "--lab", NAME)  # what an interrupted run of this test left
        lab.succeeded("up", "--yes")
        yield lab
        lab.succeeded("destroy", "--prune", "--yes", "--lab", NAME)
    finally:
        environment = {**incus_lab.environment, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
        subprocess.run(
            ["incus", "delete", "--force", BESIDE], env=environment, capture_output=True, check=False, timeout=120
        )


def test_the_driver_answers_inside_the_image(lab: ImageLab, card: Card) -> None:
    podman = "PODMAN_IGNORE_CGROUPSV1_WARNING=1 podman"
    assert card.uuid in sh(lab, "image", f"{podman} exec oci /usr/bin/nvidia-smi -L")


def test_nothing_starts_once_a_device_file_is_gone(lab: ImageLab) -> None:
    sh(lab, "image", "umount /dev/nvidia-uvm || true; rm -f /dev/nvidia-uvm")
    verified = lab.provision("verify")
    assert verified.code == 3, verified.out
    assert "/dev/nvidia-uvm of the card is gone from this container" in " ".join((verified.out + verified.err).split())
