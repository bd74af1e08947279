"""Desktops in a lab's file: what is refused and with which words, and what the role is told."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.catalog import load_catalog
from provisioner.lab import desired_fleet, problems, resolve
from provisioner.labfile.parsing import parse_spec
from provisioner.labfile.spec import Spec
from provisioner.services.desktop import needed_bytes
from provisioner.values.state import Secret, Service

CATALOG = load_catalog()
WORD = Secret("penny_rdp", "canary")


def lab(container: dict[str, Any] | None = None, **options: Any) -> Spec:
    """A file with one desktop."""
    service = {"user": "penny", "password": WORD, **options}
    content = {"name": "lab", "containers": {"desk": {**(container or {}), "services": {"desktop": service}}}}
    parsed = parse_spec(content, CATALOG)
    assert parsed.problems == ()
    assert parsed.spec is not None
    return parsed.spec


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


def test_a_desktop_is_well_as_the_design_has_it() -> None:
    assert said({"image": "debian/13", "cpu": 4, "memory": "4GiB", "disk": "30GiB"}, expose="lan") == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("root", "root does not log in to a desktop"),
        ("pen ny", '"pen ny" cannot be the name of an account'),
        ("Penny", "cannot be the name"),
        ("1penny", "cannot be the name"),
        ("", "cannot be the name"),
        ("penny\n", "cannot be the name"),
        ("p" * 32, "cannot be the name"),
    ],
)
def test_a_name_that_is_none_is_refused_at_its_place(name: str, words: str) -> None:
    assert words in said(user=name)[0]
    (one,) = said(users=[{"name": name, "password": WORD}])
    assert one.startswith("containers.desk.services.desktop.users.0.name: ")
    assert words in one


def test_a_name_that_is_there_twice_is_refused() -> None:
    assert '"penny" is named twice' in said(users=[{"name": "penny", "password": WORD}])[0]


def test_the_password_has_to_be_there() -> None:
    assert "required key is missing" in refused({"user": "penny"})[0]


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("timezone", "Europe/Berln", 'there is no timezone "Europe/Berln"; Did you mean Europe/Berlin'),
        ("timezone", "../../etc/passwd", "there is no timezone"),
        ("timezone", "", "there is no timezone"),
        ("locale", "de_DE", '"de_DE" must be a locale such as de_DE.UTF-8'),
        ("locale", "de_DE.ISO-8859-1", "must be a locale"),
        ("locale", "de_DE.UTF-8\n", "must be a locale"),
    ],
)
def test_a_name_of_zone_or_locale_that_is_none_is_refused_at_its_place(option: str, value: str, words: str) -> None:
    given: dict[str, Any] = {option: value}
    (one,) = said(**given)
    assert one.startswith(f"containers.desk.services.desktop.{option}: ")
    assert words in one


@pytest.mark.parametrize(
    "options", [{"timezone": "America/Argentina/Buenos_Aires"}, {"locale": "de_DE.UTF-8"}, {"locale": "C"}]
)
def test_zones_and_locales_that_are_there_are_taken(options: dict[str, Any]) -> None:
    assert said(**options) == []


def test_a_layout_that_does_not_exist_names_those_that_are_near() -> None:
    (one,) = refused({"user": "penny", "password": WORD, "keyboard": "latm"})
    assert one == 'containers.desk.services.desktop.keyboard: not one of the choices; did you mean "latam"?'
    (one,) = refused({"user": "penny", "password": WORD, "keyboard": "qwertz"})
    assert "known: us, af, ara" in one


@pytest.mark.parametrize("browser", ["chrome", "chromium"])
def test_a_browser_that_is_refused_says_why_and_what_was_measured(browser: str) -> None:
    (one,) = said(browser=browser)
    assert "offline in unprivileged containers" in one
    assert "was not when we measured it" in one
    assert "browser: firefox-esr" in one


def test_too_little_memory_says_how_much_is_missing_and_why() -> None:
    (one,) = said({"memory": "1GiB"})
    assert one == (
        "containers.desk.memory: 1GiB is too little: 448MiB are missing; 256MiB for the system, 1 x 192MiB for "
        "sessions (small), 1GiB for Firefox: write memory: 1472MiB"
    )
    assert said({"memory": "1472MiB"}) == []
    assert said({"memory": "448MiB"}, browser="none") == []


def test_the_memory_that_a_desktop_has_by_itself_has_to_do_as_well() -> None:
    many = [{"name": f"user{place}", "password": WORD} for place in range(9)]
    (one,) = said(users=many)
    assert one.startswith("containers.desk: 3GiB is too little: 128MiB are missing; 256MiB for the system, 10 x 192MiB")
    assert said(users=many[:8]) == []


def test_a_larger_flavour_and_more_users_need_more() -> None:
    alone = needed_bytes({"users": [], "flavour": "small", "browser": "auto"})
    assert needed_bytes({"users": [{}], "flavour": "full", "browser": "auto"}) > alone


def test_an_image_without_these_packages_is_refused() -> None:
    (one,) = said({"image": "alpine/3.20"})
    assert "a desktop cannot be made of alpine/3.20; Write one of: debian/12, debian/13, ubuntu/24.04" in one


def test_sound_needs_debian_13() -> None:
    assert "debian/12 has no package for it" in said({"image": "debian/12"}, sound=True)[0]
    assert said(sound=True) == []


def test_certificate_and_key_come_together() -> None:
    assert "needs certificate_key" in said(certificate="-----BEGIN")[0]
    assert "needs certificate:" in said(certificate_key=Secret("k", "x"))[0]
    assert said(certificate="-----BEGIN", certificate_key=Secret("k", "x")) == []


def test_the_role_is_told_its_image_and_the_file_cannot_say_another() -> None:
    assert service(lab({"image": "debian/12"})).variables["desktop_image"] == "debian/12"
    assert service(lab()).variables["desktop_image"] == "debian/13"
    assert (
        "filled in from the rest of the file" in refused({"user": "penny", "password": WORD, "image": "debian/13"})[0]
    )


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
