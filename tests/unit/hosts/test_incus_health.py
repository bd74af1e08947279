"""What an Incus host says of itself for ``doctor``."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.doctor.hosts import diagnoses
from provisioner.hosts.incus.api import Endpoint
from provisioner.hosts.incus.health import examine
from provisioner.values.errors import UnavailableError

SAID: dict[tuple[str, ...], Any] = {
    (): {"auth": "trusted", "environment": {"server_version": "6.0.4"}},
    ("storage-pools", "tank", "resources"): {"space": {"used": 10 * 2**30, "total": 100 * 2**30}},
    ("images", "aliases"): [{"name": "debian/12"}],
    ("profiles", "default"): {"devices": {"root": {"type": "disk"}, "eth0": {"type": "nic", "network": "lab0"}}},
    ("networks", "lab0"): {"name": "lab0"},
}


class Incus:
    """A client that gives what a host has said, the parts that a test changes included."""

    endpoint = Endpoint("https://192.0.2.9:8443")
    """Of what is on this machine more is told: tests/integration/test_doctor_machine.py."""

    def __init__(self, **changes: Any) -> None:
        self.said = {**SAID, **{path: changes[path[0]] for path in SAID if path and path[0] in changes}}

    def get(self, *path: str, **_: str) -> Any:
        """What is there."""
        return self.said[path]

    def find(self, *path: str, **_: str) -> Any:
        """The same, or nothing."""
        return self.said.get(path)


def looked(client: Any, images: tuple[str, ...] = ("debian/12",)) -> dict[str, tuple[bool | None, str]]:
    """What is found, by the names of the checks."""
    found = diagnoses(examine("box", client, "default", lambda: "tank", images))
    return {one.check.name: (one.check.ok, one.check.message) for one in found}


def test_a_healthy_host() -> None:
    assert looked(Incus()) == {
        "answers": (True, "it answers"),
        "version": (True, "Incus 6.0.4"),
        "storage": (True, "tank for disks: 90.0 of 100.0 GiB free"),
        "image": (True, "debian/12 is there"),
        "bridge": (True, "lab0 is there"),
    }


def test_trouble() -> None:
    full = {"space": {"used": 99 * 2**30, "total": 100 * 2**30}}
    found = looked(Incus(**{"storage-pools": full, "networks": None, "images": []}))
    assert found["storage"] == (False, "tank for disks: 1.0 of 100.0 GiB free: that is little")
    assert found["bridge"] == (False, "there is no bridge lab0")
    assert found["image"] == (False, "there is no image debian/12")
    assert looked(Incus(profiles={"devices": {}}))["bridge"] == (False, "profile default has no network card")


def test_a_pool_that_says_nothing_of_its_room_is_not_judged() -> None:
    assert "storage" not in looked(Incus(**{"storage-pools": {}}))


def test_no_daemon_is_one_finding() -> None:
    def nothing() -> str:
        raise UnavailableError("Unable to reach Incus at /nowhere", details="There is no such socket.")

    client: Any = Incus()
    (found,) = diagnoses(examine("box", client, "default", nothing, ()))
    assert (found.check.name, found.check.ok) == ("answers", False)
    assert found.check.message.startswith("Unable to reach Incus at ")
    assert found.finding is not None
    assert found.finding.details == "There is no such socket."


@pytest.mark.parametrize("image", ["debian/13", "plan9/4"])
def test_a_missing_image_names_its_command(image: str) -> None:
    client: Any = Incus()
    found = diagnoses(examine("box", client, "default", lambda: "tank", (image,)))
    (finding,) = [one.finding for one in found if one.finding is not None]
    assert finding.resolution == f"On the machine of that Incus, run: sudo provision host prepare --image {image}"
