"""The sites of a door: what is warned of, what is published of its host, and whom it needs."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.catalog import load_catalog
from provisioner.lab import desired_fleet, resolve
from provisioner.lab.artifacts import ModelFile
from provisioner.lab.resolved import ResolvedLab
from provisioner.lab.rules import problems, warnings
from provisioner.values.state import Secret
from tests.lab_files import spec_of

KEY = Secret("key", "sk-0123456789abcdef")
AUTHORITY = Secret("authority", "an-authority-of-its-own")
DOOR = {"authority": AUTHORITY, "sites": {"a.example": "a/llama_cpp", "b.example": "a/llama_cpp"}}


def lab(engine: dict[str, Any], door: dict[str, Any], hosts: dict[str, Any] | None = None) -> ResolvedLab:
    """A lab with an engine and a door before it, on hosts of their own where there are two."""
    names = list(hosts or {"box": {"incus": "local"}})
    file = {
        "name": "lab",
        "hosts": hosts or {"box": {"incus": "local"}},
        "models": {"m": {"source": "builtin:tiny"}},
        "containers": {
            "a": {"host": names[0], "services": {"llama_cpp": {"model": "m", "api_key": KEY, **engine}}},
            "door": {"host": names[-1], "services": {"door": {**DOOR, **door}}},
        },
    }
    return resolve(spec_of(file), load_catalog())


def test_a_service_that_the_lan_reaches_past_its_door_is_a_warning() -> None:
    (found,) = warnings(lab({"expose": "lan"}, {"expose": "lan"}))
    assert found.path == ("containers", "a", "services", "llama_cpp", "expose")
    assert "the site a.example of door/door, and the LAN also reaches its port without TLS" in found.message


@pytest.mark.parametrize("expose", ["lan", "host"])
def test_a_service_that_only_its_door_reaches_is_none(expose: str) -> None:
    assert warnings(lab({}, {"expose": expose})) == []


def test_a_door_publishes_both_of_its_ports() -> None:
    found = lab({}, {"expose": "lan", "plain_port": 8080})
    assert problems(found) == []
    fleet = desired_fleet(found, {"m": ModelFile("/models/m.gguf", "m.gguf", "a" * 64)})
    published = {
        device.name: (device.properties["listen"], device.properties["connect"])
        for instance in fleet.instances
        for device in instance.devices
        if device.kind == "publish"
    }
    assert published == {
        "publish-door": ("0.0.0.0:443", "127.0.0.2:443"),
        "publish-door-8080": ("0.0.0.0:8080", "127.0.0.2:8080"),
    }


def test_a_door_reaches_services_of_another_host_over_the_lan() -> None:
    far = {"incus": "https://far.example:8443", "cert": "/c", "key": "/k", "fingerprint": "a" * 64}
    found = lab({}, {}, {"far": {**far, "address": "192.168.1.6"}, "box": {"incus": "local"}})
    assert problems(found) == []
    assert found.services[next(iter(found.used_over_lan))].is_on_lan
    assert dict(found.used_over_lan) == {"a/llama_cpp": ("door/door",)}
