"""Desktops in a lab's file: what is refused and with which words, and what the role is told."""

from __future__ import annotations

from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from provisioner.catalog import load_catalog
from provisioner.lab import desired_fleet, problems, resolve
from provisioner.labfile.parsing import parse_spec
from provisioner.labfile.spec import Spec
from provisioner.services.desktop import needed_bytes
from provisioner.values.state import Secret, Service
from tests.lab_files import spec_of

CATALOG = load_catalog()
WORD = Secret("penny_rdp", "canary-rdp")


def lab(container: dict[str, Any] | None = None, **options: Any) -> Spec:
    """A file with one desktop."""
    service = {"user": "penny", "password": WORD, **options}
    content = {"name": "lab", "containers": {"desk": {**(container or {}), "services": {"desktop": service}}}}
    return spec_of(content)


def said(container: dict[str, Any] | None = None, **options: Any) -> list[str]:
    """Everything that is wrong with it, each with its place."""
    found = problems(resolve(lab(container, **options), CATALOG))
    return [f"{'.'.join(map(str, one.path))}: {one.message}; {one.hint}" for one in found]


def refused(content: dict[str, Any]) -> list[str]:
    """What a file that is not well formed says."""
    parsed = parse_spec({"name": "lab", "containers": {"desk": {"services": {"desktop": content}}}}, CATALOG)
    return [f"{'.'.join(map(str, one.path))}: {one.message}; {one.hint}" for one in parsed.problems]


def service(spec: Spec) -> Service:
    (one,) = desired_fleet(resolve(spec, CATALOG), {}).instances[0].services
    return one


NO_NAMES = ("root", "pen ny", "Penny", "1penny", "", "penny\n", "p" * 32)
NO_ZONES = ("Europe/Berln", "../../etc/passwd", "")
NO_LOCALES = ("de_DE", "de_DE.ISO-8859-1", "de_DE.UTF-8\n")
USERS = [{"name": f"user{place}", "password": WORD} for place in range(9)]
WRONG: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "names": ({}, [{"user": name} for name in NO_NAMES]),
    "names of further users": ({}, [{"users": [{"name": name, "password": WORD}]} for name in (*NO_NAMES, "penny")]),
    "timezones": ({}, [{"timezone": name} for name in NO_ZONES]),
    "locales": ({}, [{"locale": name} for name in NO_LOCALES]),
    "browsers": ({}, [{"browser": name} for name in ("chrome", "chromium")]),
    "too little memory": ({"memory": "1GiB"}, [{}]),
    "too little memory by itself": ({}, [{"users": USERS}]),
    "an image without the packages": ({"image": "alpine/3.20"}, [{}]),
    "sound on debian 12": ({"image": "debian/12"}, [{"sound": True}]),
    "half a certificate": ({}, [{"certificate": "-----BEGIN"}, {"certificate_key": Secret("k", "x")}]),
}


@pytest.mark.parametrize(("container", "several"), WRONG.values(), ids=WRONG)
def test_what_a_desktop_cannot_have_is_refused_at_its_place(
    container: dict[str, Any], several: list[dict[str, Any]], snapshot: SnapshotAssertion
) -> None:
    found = [said(container, **options) for options in several]
    assert all(found)
    assert "\n".join(line for lines in found for line in lines) == snapshot


def test_what_is_not_well_formed_says_what_is_known(snapshot: SnapshotAssertion) -> None:
    usual: dict[str, Any] = {"user": "penny", "password": WORD}
    several = (
        {"user": "penny"},
        *({**usual, "keyboard": name} for name in ("latm", "qwertz")),
        {**usual, "image": "x"},
    )
    assert "\n".join(line for content in several for line in refused(content)) == snapshot


@pytest.mark.parametrize(
    ("container", "options"),
    [
        ({"image": "debian/13", "cpu": 4, "memory": "4GiB", "disk": "30GiB"}, {"expose": "lan"}),
        ({}, {"timezone": "America/Argentina/Buenos_Aires"}),
        ({}, {"locale": "de_DE.UTF-8"}),
        ({}, {"locale": "C"}),
        ({"memory": "1472MiB"}, {}),
        ({"memory": "448MiB"}, {"browser": "none"}),
        ({}, {"users": USERS[:8]}),
        ({}, {"sound": True}),
        ({}, {"certificate": "-----BEGIN", "certificate_key": Secret("k", "x")}),
    ],
)
def test_what_a_desktop_can_have_is_taken(container: dict[str, Any], options: dict[str, Any]) -> None:
    assert said(container, **options) == []


def test_a_larger_flavour_and_more_users_need_more() -> None:
    alone = needed_bytes({"users": [], "flavour": "small", "browser": "auto"})
    assert needed_bytes({"users": [{}], "flavour": "full", "browser": "auto"}) > alone


def test_the_role_is_told_its_image_and_the_file_cannot_say_another() -> None:
    assert service(lab({"image": "debian/12"})).variables["desktop_image"] == "debian/12"
    assert service(lab()).variables["desktop_image"] == "debian/13"


@pytest.mark.parametrize(
    ("image", "browser", "packages"),
    [
        ("debian/12", "auto", {"firefox-esr", "freerdp2-x11"}),
        ("debian/13", "auto", {"firefox-esr", "freerdp3-x11"}),
        ("ubuntu/24.04", "auto", {"firefox", "freerdp2-x11"}),
        ("debian/12", "firefox", {"firefox", "freerdp2-x11"}),
        ("debian/12", "none", {"freerdp2-x11"}),
    ],
)
def test_what_a_stamp_looks_at_depends_on_image_and_browser(image: str, browser: str, packages: set[str]) -> None:
    managed = service(lab({"image": image}, browser=browser, users=[{"name": "ann", "password": WORD}])).managed
    assert {one for one in managed.packages if one.startswith(("firefox", "freerdp"))} == packages
    assert ("/etc/apt/sources.list.d/mozilla.sources" in managed.paths) == ("firefox" in packages)
    assert ("/home/ann/Desktop/firefox.desktop" in managed.paths) == (browser != "none")
    assert {"/home/penny/.xsession", "/home/ann/.xsession"} <= set(managed.paths)
    assert managed.users == ("penny", "ann")
