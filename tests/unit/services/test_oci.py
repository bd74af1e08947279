"""OCI images in a lab's file: what is refused before anything is made, and which page says that one is well."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.catalog import load_catalog
from provisioner.lab import problems, resolve
from provisioner.lab.upkeep import managed_by
from provisioner.labfile.parsing import parse_spec
from provisioner.values.address import Address
from provisioner.values.state import Secret

CATALOG = load_catalog()
ADDRESS = Address.of("image", "oci")
DIGEST = f"sha256:{'a' * 64}"
USUAL = {"image": f"registry.example/team/web@{DIGEST}", "image_port": 80, "pages": ["/"]}
KEY = Secret("key", "0123456789abcdef")


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


@pytest.mark.parametrize(
    "image",
    [
        "docker.io/library/nginx:1.27",
        "docker.io/library/nginx",
        f"nginx@{DIGEST}",
        f"library/nginx@{DIGEST}",
        f"docker.io/library/nginx:1.27@{DIGEST}",
        f"https://docker.io/library/nginx@{DIGEST}",
        f"docker.io/library/nginx@{DIGEST[:-1]}",
        f"docker.io/../nginx@{DIGEST}",
        f"docker.io/library/nginx@{DIGEST} --privileged",
    ],
)
def test_what_is_no_registry_name_and_digest_is_refused(image: str) -> None:
    (message,) = said(image=image)
    assert "must name a registry, an image and its digest" in message


@pytest.mark.parametrize(
    "image", ["localhost:5000/a", "ghcr.io/a/b-c/d_e", "10.0.0.1:5000/a", "reg:5000/a", "localhost/a"]
)
def test_a_registry_of_any_kind_is_taken(image: str) -> None:
    assert said(image=f"{image}@{DIGEST}") == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"pages": None}, "it has no list of paths"),
        ({"looks": ["/"]}, "pages and looks are both written"),
        ({"api_key": KEY}, "no browser sends a key"),
        ({"registry_user": "penny"}, "needs registry_password"),
        ({"registry_password": KEY}, "needs registry_user"),
        ({"port": 80}, "80 is too small"),
        ({"capabilities": ["SYS_ADMIN"]}, "not one of the choices"),
        ({"privileged": True}, "unknown key"),
        ({"devices": ["/dev/fuse"]}, "unknown key"),
        ({"pages": None, "looks": ["/"], "expose": "lan"}, "expose: lan needs api_key"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], words: str) -> None:
    assert any(words in message for message in said(**options)), said(**options)


def test_each_has_a_page_of_its_own_that_says_that_it_is_well() -> None:
    page = CATALOG.services["oci"]
    assert page.health_with({}) == "/"
    assert page.health_with({"health": "/healthz"}) == "/healthz"
    content = {"name": "lab", "containers": {"image": {"services": {"oci": {**USUAL, "health": "/healthz"}}}}}
    spec = parse_spec(content, CATALOG).spec
    assert spec is not None
    assert resolve(spec, CATALOG).services[ADDRESS].health == "/healthz"


def test_each_volume_is_managed_by_its_own_folder() -> None:
    options = {"image": USUAL["image"], "registry_ca": "", "secrets": [], "volumes": {"data": "/data", "more": "/more"}}
    managed = managed_by(CATALOG.services["oci"].upkeep, {f"oci_{name}": value for name, value in options.items()})
    assert {"/var/lib/oci/volumes/data", "/var/lib/oci/volumes/more"} <= set(managed.paths)
