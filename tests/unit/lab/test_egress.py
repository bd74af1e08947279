"""Services that run code of others reach what ``reaches`` names, and the file refuses the rest."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.catalog import load_catalog
from provisioner.lab import ModelFile
from provisioner.lab.egress import destinations
from provisioner.lab.fleet import desired_fleet
from provisioner.lab.resolved import ResolvedLab, Use, resolve
from provisioner.lab.rules import problems
from provisioner.values.address import Address
from provisioner.values.declared import REACHES, Secret
from provisioner.values.state import HostState, Instance
from tests.lab_files import spec_of

CATALOG = load_catalog()
IMAGE = {"image": f"registry.example/web@sha256:{'a' * 64}", "image_port": 80, "pages": ["/"]}
KEPT_IN = [role for role, page in CATALOG.services.items() if REACHES in page.references]


def lab(*reaches: str, host: dict[str, Any] | None = None) -> ResolvedLab:
    """Return a lab with an image that reaches these, an engine, a desktop and a host whose address is written."""
    engine = {"model": "tiny", "port": 8081}
    containers: dict[str, Any] = {
        "llama": {"services": {"llama_cpp": engine}},
        "web": {"services": {"oci": {**IMAGE, "reaches": list(reaches)}}},
    }
    hosts = {"here": host or {"incus": "local", "address": "192.168.1.5"}}
    models = {"tiny": {"source": "hf:a/b:Q8_0"}}
    return resolve(spec_of({"name": "home", "hosts": hosts, "models": models, "containers": containers}), CATALOG)


def test_roles_that_run_code_of_others_are_kept_in() -> None:
    assert KEPT_IN == ["agent_team", "pipelines", "oci", "open_webui"]


def test_a_service_becomes_its_address_and_the_rest_stays() -> None:
    found = lab("llama/llama_cpp", "internet", "192.168.1.20:8123", "[fd00::20]:443")
    assert problems(found) == []
    service = found.services[Address("web/oci")]
    told = ["llama.incus:8081", "internet", "192.168.1.20:8123", "[fd00::20]:443"]
    assert destinations(found, service) == told
    assert Use(service.address, Address("llama/llama_cpp"), "reaches") in found.uses
    assert found.needs(service.address) == ()  # it may reach it, and nothing has to be there first


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("lama/llama_cpp", 'no service "lama/llama_cpp" in this file'),
        ("llama", 'no service "llama" in this file'),
        ("web/oci", "web/oci is the service itself"),
        ("192.168.0.0/16", "192.168.0.0/16 is a whole network"),
        ("192.168.1.7/24", "192.168.1.7/24 is a whole network"),
        ("fd00::/8", "fd00::/8 is a whole network"),
        ("0.0.0.0/0", "0.0.0.0/0 is a whole network"),
        ("192.168.1.7", "192.168.1.7 has no port"),
        ("fd00::7", "fd00::7 has no port"),
        ("192.168.1.7:0", "0 is no port"),
        ("192.168.1.7:65536", "65536 is no port"),
        ("192.168.1.5:8443", "192.168.1.5 is a host of this file"),
        ("127.0.0.1:80", "127.0.0.1 is no other machine's own address"),
        ("169.254.169.254:80", "169.254.169.254 is no other machine's own address"),
        ("[fe80::1]:80", "fe80::1 is no other machine's own address"),
        ("[::1]:80", "::1 is no other machine's own address"),
        ("224.0.0.1:80", "224.0.0.1 is no other machine's own address"),
        ("0.0.0.0:80", "0.0.0.0 is no other machine's own address"),
        ("255.255.255.255:80", "255.255.255.255 is no other machine's own address"),
        ("[fd00::1%eth0]:80", "fd00::1%eth0 is no other machine's own address"),
        ("[::ffff:192.168.1.9]:80", "::ffff:c0a8:109 is no other machine's own address"),
        ("[192.168.1.9]:80", "[192.168.1.9] is no address"),
        ("nas.home:445", "nas.home is no address"),
        ("$(id):80", "$(id) is no address"),
        ("everything", 'no service "everything" in this file'),
    ],
)
def test_what_cannot_be_reached_is_refused(written: str, words: str) -> None:
    (problem,) = problems(lab(written))
    assert problem.message.startswith(words)
    assert problem.path[-2:] == (REACHES, 0)


def test_nothing_is_named_twice() -> None:
    assert [problem.message for problem in problems(lab("internet", "internet"))] == ["internet is named twice"]


def instances(found: ResolvedLab, *, confines: bool = True) -> tuple[Instance, ...]:
    """Return the containers as the file wants them on a host that can hold them, or cannot."""
    hosts = {"here": HostState("here", confines=confines)}
    files = {"tiny": ModelFile("/models/tiny.gguf", "tiny.gguf", "a" * 64)}
    return desired_fleet(found, files, hosts).instances


def desired(found: ResolvedLab, *, confines: bool = True) -> dict[str, tuple[str, ...] | None]:
    """Return what each container's host lets it reach."""
    return {one.name: one.reaches for one in instances(found, confines=confines)}


def test_a_host_that_can_lets_out_to_what_is_connected_and_to_the_registry() -> None:
    found = lab("llama/llama_cpp", "internet", "192.168.1.20:8123")
    reaches = ("192.168.1.20:8123", "llama.incus:8081", "registry.example:443")
    assert desired(found) == {"llama": None, "web": reaches}
    assert desired(found, confines=False) == {"llama": None, "web": None}


def test_on_proxmox_the_card_of_what_is_held_has_a_firewall_and_no_other() -> None:
    page = {"proxmox": "https://pve:8006", "user": "root@pam", "password": Secret("p", "x")}
    found = lab(host=page)
    cards = {one.name: one.settings["network"]["firewall"] for one in instances(found)}
    assert cards == {"llama": False, "web": True}
    assert not any(one.settings["network"]["firewall"] for one in instances(found, confines=False))


def test_what_others_in_the_container_ask_is_let_out_to_as_well() -> None:
    upstreams = {
        "nas": {"model": "openai/x", "base_url": "http://192.168.1.9:8000/v1"},
        "far": {"model": "openai/y", "base_url": "http://nas.home/v1"},
    }
    member = {"name": "writer", "says": "Ask it.", "instructions": "Write."}
    services = {
        "agent_team": {
            "api_key": Secret("k", "0123456789abcdef"),
            "coordinator": {"model": "nas", "instructions": "Ask."},
            "members": [{"model": "tiny", **member}],
        },
        "litellm": {"aliases": {"fast": ["far"]}, "master_key": Secret("m", "0123456789abcdef")},
    }
    content = {
        "name": "home",
        "hosts": {"here": {"incus": "local"}},
        "models": {"tiny": {"source": "hf:a/b:Q8_0"}},
        "upstreams": upstreams,
        "containers": {"llama": {"services": {"llama_cpp": {"model": "tiny"}}}, "team": {"services": services}},
    }
    assert desired(resolve(spec_of(content), CATALOG))["team"] == (
        "192.168.1.9:8000",
        "llama.incus:8080",
        "nas.home:80",
    )
