"""OCI images in a lab's file: what is refused before anything is made, and which page says that one is well."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.catalog import Socket, load_catalog
from provisioner.gpus.cards import Card, Node
from provisioner.lab import desired_fleet, problems, resolve
from provisioner.lab.fleet import managed_by
from provisioner.lab.resolved import ResolvedLab
from provisioner.labfile.parsing import parse_spec
from provisioner.services import knowledge_of, oci
from provisioner.serving.audit import expected_sockets
from provisioner.values import paths
from provisioner.values.address import Address
from provisioner.values.state import Instance, Secret
from tests.case_files import read_cases

CASES = read_cases("services/oci")

CATALOG = load_catalog()
ADDRESS = Address.of("image", "oci")
DIGEST = f"sha256:{'a' * 64}"
USUAL = {"image": f"registry.example/team/web@{DIGEST}", "image_port": 80, "pages": ["/"]}
KEY = Secret("key", "0123456789abcdef")
BROKER = {"port": 1883, "why": "MQTT of the sensors"}
NO_HTTP: dict[str, Any] = {
    "pages": None,
    "image_port": None,
    "health": "",
    "health_command": ["/bin/ask"],
    "ports": [BROKER],
}


def said(container: dict[str, Any] | None = None, **options: Any) -> list[str]:
    """What is wrong with a file whose image has these options."""
    service = {name: value for name, value in {**USUAL, **options}.items() if value is not None}
    content = {"name": "lab", "containers": {"image": {**(container or {}), "services": {"oci": service}}}}
    parsed = parse_spec(content, CATALOG)
    if parsed.spec is None or parsed.problems:
        return [problem.message for problem in parsed.problems]
    return [problem.message for problem in problems(resolve(parsed.spec, CATALOG))]


def test_a_usual_one_is_taken_and_has_its_own_system() -> None:
    assert said() == []
    page = CATALOG.services["oci"]
    assert (page.defaults.image, page.defaults.nesting) == ("debian/13", True)


@pytest.mark.parametrize("image", ["debian/12", "debian/12-bare"])
def test_a_system_whose_podman_knows_no_quadlets_is_refused(image: str) -> None:
    assert said({"image": image}) == [f"OCI image cannot run on {image}: its Podman knows no quadlets"]


@pytest.mark.parametrize("image", CASES["what is no registry name and digest is refused"])
def test_what_is_no_registry_name_and_digest_is_refused(image: str) -> None:
    (message,) = said(image=image)
    assert "must name a registry, an image and its digest" in message


@pytest.mark.parametrize(
    "image", ["localhost:5000/a", "ghcr.io/a/b-c/d_e", "10.0.0.1:5000/a", "reg:5000/a", "localhost/a"]
)
def test_a_registry_of_any_kind_is_taken(image: str) -> None:
    assert said(image=f"{image}@{DIGEST}") == []


@pytest.mark.parametrize(("options", "words"), CASES["what cannot be is refused"])
def test_what_cannot_be_is_refused(options: dict[str, Any], words: str) -> None:
    assert any(words in message for message in said(**options)), said(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"ports": [{"port": 53, "why": "logs", "need": "routers know no other"}]},
        {"ports": [{"port": 5000, "why": "x"}, {"port": 5000, "protocol": "udp", "why": "y"}]},
        {"ports": [{"port": 5000, "protocol": "udp", "image_port": 80, "why": "y"}]},
        {"secrets": [{"name": "tls-key.pem", "value": KEY, "as": "file"}]},
    ],
)
def test_what_can_be_is_taken(options: dict[str, Any]) -> None:
    assert said(**options) == []


def test_the_role_and_the_file_know_one_form_of_names() -> None:
    text = (paths.roles() / "oci/vars/main.yml").read_text(encoding="utf-8")
    for form in (oci.VOLUME, oci.FOLDER, oci.VARIABLE, oci.FILE):
        assert rf": '^{form.pattern}\Z'" in text
    taken = oci.TAKEN_FOLDERS.pattern.removesuffix("(/.*)?")
    assert rf": '^{taken}(/|\Z)'" in text


PORTS = [
    {"port": 1883, "why": "MQTT of the sensors"},
    {"port": 514, "image_port": 5514, "protocol": "udp", "why": "logs", "need": "routers know no other"},
]


def resolved(**options: Any) -> tuple[ResolvedLab, Instance]:
    """The lab of a file whose image has these options, and its container."""
    service = {name: value for name, value in {**USUAL, **options}.items() if value is not None}
    spec = parse_spec({"name": "lab", "containers": {"image": {"services": {"oci": service}}}}, CATALOG).spec
    assert spec is not None
    lab = resolve(spec, CATALOG)
    (instance,) = desired_fleet(lab, {}).instances
    return lab, instance


def test_an_image_that_speaks_no_http_is_reached_by_its_ports_and_nothing_stands_before_it() -> None:
    assert said(**NO_HTTP) == said(**NO_HTTP, expose="lan") == []
    assert said(expose="lan") == ["expose: lan needs api_key"]
    lab, instance = resolved(**NO_HTTP, expose="lan")
    (service,) = instance.services
    assert (service.port, service.health, service.behind) == (None, None, "")
    assert expected_sockets(service, lab) == (Socket("oci.service", "network", 1883, "MQTT of the sensors"),)
    assert [device.name for device in instance.devices if device.kind == "publish"] == ["publish-oci-1883"]
    of_a_switch = resolved()[1].services[0].managed
    assert "switch-oci.service" in of_a_switch.helpers
    assert service.managed.helpers == ("egress-oci.timer",)
    assert [path for path in service.managed.reloaded if "switch" in path] == []
    assert "haproxy" in of_a_switch.packages
    assert "haproxy" not in service.managed.packages


def test_further_ports_are_known_to_whoever_looks_at_what_is_open() -> None:
    lab, instance = resolved(pages=None, looks=["/"], api_key=KEY, ports=PORTS, expose="lan")
    sockets = expected_sockets(instance.services[0], lab)
    assert Socket("oci.service", "network", 1883, "MQTT of the sensors") in sockets
    assert Socket("oci.service", "network", 514, "logs", "udp") in sockets
    assert Socket("switch-oci.service", "network", 8300, "clients reach it there") in sockets
    assert {device.name: dict(device.properties) for device in instance.devices if device.kind == "publish"} == {
        "publish-oci": {"listen": "0.0.0.0:8300", "connect": "127.0.0.2:8300", "proxy_protocol": "true"},
        "publish-oci-1883": {"listen": "0.0.0.0:1883", "connect": "127.0.0.1:1883"},
        "publish-oci-514-udp": {"listen": "0.0.0.0:514", "connect": "127.0.0.1:514", "protocol": "udp"},
    }


def test_a_port_of_udp_with_the_number_of_the_service_begins_with_no_address() -> None:
    """Incus says whose connection it is over TCP alone."""
    ports = [{"port": 8300, "protocol": "udp", "why": "found by others"}]
    _, instance = resolved(pages=None, looks=["/"], api_key=KEY, ports=ports, expose="lan")
    told = {
        device.name: "proxy_protocol" in device.properties
        for device in instance.devices
        if "listen" in device.properties
    }
    assert told == {"publish-oci": True, "publish-oci-8300-udp": False}


def test_each_has_a_page_of_its_own_that_says_that_it_is_well() -> None:
    page = CATALOG.services["oci"]
    assert page.health_with({}) == "/"
    assert page.health_with({"health": "/healthz"}) == "/healthz"
    content = {"name": "lab", "containers": {"image": {"services": {"oci": {**USUAL, "health": "/healthz"}}}}}
    spec = parse_spec(content, CATALOG).spec
    assert spec is not None
    assert resolve(spec, CATALOG).services[ADDRESS].health == "/healthz"


def test_an_image_gets_the_card_of_its_container() -> None:
    node = Node("/dev/nvidia0", 195, 0)
    card = Card("0000:01:00.0", "nvidia", "RTX 3060", driver_version="550.163.01", nodes=(node,))
    told = knowledge_of("oci").options_of_card({}, card)["card"]
    assert (told["vendor"], told["driver_version"], told["nodes"]) == ("nvidia", "550.163.01", ["/dev/nvidia0"])


def test_nobody_knows_what_an_image_with_a_card_computes_on() -> None:
    asked = knowledge_of("oci").processor({}, has_card=True)
    assert asked.is_device is None
    assert knowledge_of("oci").processor({}, has_card=False).is_device is False


def test_each_volume_is_managed_by_its_own_folder() -> None:
    options = {"image": USUAL["image"], "registry_ca": "", "secrets": [], "card": {}, "health": "/"}
    options["volumes"] = {"data": "/data", "more": "/more"}
    managed = managed_by(CATALOG.services["oci"].upkeep, {f"oci_{name}": value for name, value in options.items()})
    assert {"/var/lib/oci/volumes/data", "/var/lib/oci/volumes/more"} <= set(managed.paths)
