"""Services that run code of others reach what ``reaches`` names, and the file refuses the rest."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.catalog import load_catalog
from provisioner.lab.egress import destinations
from provisioner.lab.resolved import ResolvedLab, resolve
from provisioner.lab.rules import problems
from provisioner.values.address import Address
from provisioner.values.declared import REACHES
from tests.lab_files import spec_of

CATALOG = load_catalog()
IMAGE = {"image": f"registry.example/web@sha256:{'a' * 64}", "image_port": 80, "pages": ["/"]}
KEPT_IN = [role for role, page in CATALOG.services.items() if REACHES in page.references]


def lab(*reaches: str) -> ResolvedLab:
    """Return a lab with an image that reaches these, an engine, a desktop and a host whose address is written."""
    engine = {"model": "tiny", "port": 8081}
    containers: dict[str, Any] = {
        "llama": {"services": {"llama_cpp": engine}},
        "web": {"services": {"oci": {**IMAGE, "reaches": list(reaches)}}},
    }
    hosts = {"here": {"incus": "local", "address": "192.168.1.5"}}
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
    assert (service.address, found.services[Address("llama/llama_cpp")].address) in found.uses


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
