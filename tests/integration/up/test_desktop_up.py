"""A desktop in a lab's file, up on a real host, and what its users meet: logins, clicks, keys, limits, restarts.

One container for all of it: the tests build on each other, in their order.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from provisioner.hosts.incus import IncusProvider
from provisioner.page.clients import Desktop, certificate_word, client
from tests.desktop_lab import CERTIFICATE, PASSWORDS, PORT, USERS, DesktopLab
from tests.desktop_pictures import inked
from tests.integration.role_box import RoleBox
from tests.integration.up.quickstart_lab import CANARIES
from tests.lab.incus import Lab as Incus
from tests.tls_pairs import expired_pair
from tests.unit.desktop.programs import ROOT, program
from tests.waiting import wait_until

pytestmark = [pytest.mark.incus, pytest.mark.network, pytest.mark.desktop, pytest.mark.slow]

judge, picture = program("judge"), program("picture")
FIELDS = judge.drawn_fields(7)
HOME_PAGE = "http://127.0.0.1:8999/"
GERMAN = "de_DE.UTF-8"
LAUNCHER = "/home/penny/Desktop/firefox.desktop"
ASKED = "setxkbmap -query && echo $LANG"
QUICK_S = 10
"""Within which panels are drawn, by the issue."""
MINUTE_S = 60
WIDE = 1100
KINDS = [
    pytest.param(("debian/13", {}), id="debian-13"),
    pytest.param(("debian/12", {"flavour": "core"}), id="debian-12-core"),
]


@pytest.fixture(scope="module", params=KINDS)
def lab(request: pytest.FixtureRequest, incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The desktop, up: in German, and with a first page that a server in the container has."""
    image, options = request.param
    name = f"dsk{secrets.token_hex(3)}"
    lab = DesktopLab(tmp_path_factory.mktemp(name), incus_lab.environment, image, name)
    lab.options |= {"keyboard": "de", "locale": GERMAN, "home_page": HOME_PAGE, **options}
    lab.describe()
    try:
        lab.well("up", "--yes")
        yield lab
    finally:
        lab.well("destroy", "--prune", "--yes", "--lab", name)


@pytest.fixture(autouse=True)
def nobody_left(lab: DesktopLab) -> Iterator[None]:
    """Whoever a test has logged in is out again afterwards."""
    yield
    lab.end_sessions()


def drawn_by_firefox(lab: DesktopLab, page: Path) -> Any:
    """The whole page as the container's Firefox draws it without a screen."""
    lab.push(page, "/srv/page/lab.html")
    drawn = "/home/penny/page.png"
    lab.inside("rm", "-f", drawn)
    run = f"firefox-esr --headless --screenshot {drawn} --window-size={WIDE} file:///srv/page/lab.html"
    lab.inside("runuser", "-l", "penny", "-c", run)
    lab.incus("file", "pull", "--quiet", f"{lab.desk}{drawn}", str(page.with_suffix(".png")))
    return picture.read_png(page.with_suffix(".png"))


def serve_home_page(lab: DesktopLab) -> None:
    """Have the first page of the file served in the container."""
    page = lab.folder / "index.html"
    page.write_text(judge.page(FIELDS), encoding="utf-8")
    lab.push(page, "/srv/home/index.html")
    serving = "python3 -m http.server 8999 --bind 127.0.0.1 --directory /srv/home"
    lab.inside("systemd-run", "--quiet", "--collect", "--unit=home-page", *serving.split())


# Pictures.


def test_status_names_the_pictures_of_the_proof(lab: DesktopLab) -> None:
    (container,) = [line for line in lab.provision("status", "--json").lines if line["type"] == "container"]
    (service,) = container["services"]
    assert {one["name"]: one["shows"] for one in service["screens"]} == {"desktop": "mate", "browser": "mate"}
    seen = {one["name"]: picture.read_png(Path(one["file"])) for one in service["screens"]}
    assert judge.kind(seen["desktop"]) == "mate"
    assert inked(seen["desktop"]) == ()
    assert set(inked(seen["browser"])) == {0, 1}


def test_a_browser_shows_them_in_the_page_of_report(lab: DesktopLab) -> None:
    page = lab.folder / "lab.html"
    lab.well("report", str(page))
    (kept,) = lab.folder.rglob("screens/*/desktop/browser.png")
    fields = inked(picture.read_png(kept))
    assert inked(drawn_by_firefox(lab, page)) == fields
    without = lab.folder / "without.html"
    without.write_text(page.read_text(encoding="utf-8").replace("data:image/png;base64,", "data:image/png;base64,A"))
    assert inked(drawn_by_firefox(lab, without)) == ()


# Logins.


def test_a_client_that_opens_the_file_of_open_gets_the_desktop(lab: DesktopLab) -> None:
    file = lab.folder / "desk.rdp"
    assert f"Wrote {file}" in lab.well("open", lab.desk, "--output", str(file))
    assert PASSWORDS["penny"] not in file.read_text(encoding="utf-8")
    lab.push(file, "/srv/desk.rdp")
    seen = lab.visit("penny", file="/srv/desk.rdp")
    assert (seen["shows"], seen["code"]) == ("mate", None), seen
    assert [one["user"] for one in lab.sessions()] == ["penny"]


def test_freerdp_as_open_starts_it_takes_the_containers_certificate_and_no_other(lab: DesktopLab) -> None:
    found = client(Desktop(lab.desk, "127.0.0.1", PORT, "penny"), "desk.rdp", free_rdp_alone, has_terminal=True)
    assert found is not None
    told = lab.inside("openssl", "x509", "-noout", "-fingerprint", "-sha256", "-in", CERTIFICATE)
    mark = told.strip().partition("=")[2]
    words = found.command[1:]
    seen = lab.visit("penny", words=[*words, certificate_word(mark)])
    assert (seen["shows"], seen["code"]) == ("mate", None), seen
    other = "00" if not mark.startswith("00") else "01"
    refused = lab.visit("penny", words=[*words, certificate_word(other + mark[2:])])
    assert refused["panel"] is None or refused["code"] is not None, refused
    assert refused["shows"] != "mate"


def free_rdp_alone(name: str) -> str | None:
    """A machine whose one client is FreeRDP."""
    return f"/usr/bin/{name}" if "freerdp" in name else None


def test_panels_are_soon_there_and_keyboard_and_language_are_the_files_at_every_login(lab: DesktopLab) -> None:
    for _ in range(2):  # xrdp sets the layout anew at each connection
        seen = lab.visit("penny", run=ASKED)
        assert seen["panel"] < QUICK_S
        assert " ".join(seen["said"].split()).endswith(f"layout: de {GERMAN}")


def test_a_click_on_the_launcher_opens_firefox_on_the_first_page(lab: DesktopLab) -> None:
    serve_home_page(lab)
    seen = lab.visit("penny", fields=FIELDS)
    assert seen["page"] is not None, seen


def test_up_changes_nothing_under_somebody_who_is_logged_in(lab: DesktopLab) -> None:
    lab.visit("penny")
    before = lab.sessions()
    assert "No changes" in lab.well("up")
    assert lab.sessions() == before
    lab.well("up", "--yes", "--full")
    newest = max((lab.folder / ".provision/logs").glob("*-site.log"), key=lambda file: file.stat().st_mtime)
    assert "changed=0 " in newest.read_text(encoding="utf-8")
    assert lab.sessions() == before
    assert lab.visit("penny")["panel"] is not None
    assert lab.sessions() == before


def test_five_users_at_once_have_a_desktop_each_and_nothing_is_broken_when_a_sixth_has_none(lab: DesktopLab) -> None:
    five = USERS[:5]
    with ThreadPoolExecutor(len(five)) as pool:
        seen = list(pool.map(lambda user: lab.visit(user, stay=20), five))
    assert [(one["shows"], one["code"]) for one in seen] == [("mate", None)] * 5, seen
    before = lab.sessions()
    assert {one["user"] for one in before} == set(five)
    assert len({one["server"] for one in before}) == 5
    assert all(one["manager"] and one["panel"] for one in before)
    refused = lab.visit(USERS[5])
    assert (refused["code"], refused["shows"]) != (None, "mate"), refused
    assert lab.provision("verify").code == 0
    assert lab.sessions() == before


def test_after_a_restart_of_the_container_it_proves_itself(lab: DesktopLab) -> None:
    lab.visit("penny")
    assert f"ok   {lab.desk}/desktop" in lab.well("verify", "--after-reboot")
    assert GERMAN in lab.visit("ann", run=ASKED)["said"]
    assert "No changes" in lab.well("up")


# What is refused.


def test_a_certificate_that_has_ended_changes_nothing(lab: DesktopLab, tmp_path: Path) -> None:
    certificate, key = expired_pair(tmp_path)
    lab.visit("penny")
    before = lab.sessions()
    lab.environment = {**lab.environment, "PROVISION_SECRET_DESK_KEY": key}
    lab.describe(certificate=certificate, certificate_key="!secret desk_key")
    ran = lab.provision("up", "--yes")
    assert ran.code != 0
    assert "Unable to use the certificate that is given: the certificate expired on" in " ".join(
        (ran.out + ran.err).split()
    )
    assert lab.sessions() == before
    lab.describe()
    assert "No changes" in lab.well("up")


@pytest.mark.parametrize("flavour", ["small", "core", "full"])
def test_apt_knows_every_package_of_a_flavour(
    lab: DesktopLab, provider: IncusProvider, tmp_path: Path, flavour: str
) -> None:
    said = simulated(lab, provider, tmp_path, flavour)
    assert said.endswith("rc=0"), said
    assert "No package matching" not in said


def test_apt_refuses_one_that_there_is_not(lab: DesktopLab, provider: IncusProvider, tmp_path: Path) -> None:
    said = simulated(lab, provider, tmp_path, "full", __desktop_proof=["mate-desktop-enviroment"])
    assert "No package matching 'mate-desktop-enviroment' is available" in said
    assert said.endswith("rc=2")


def simulated(lab: DesktopLab, provider: IncusProvider, folder: Path, flavour: str, **more: Any) -> str:
    """What a simulation of the role's installation says."""
    role = ROOT / "roles/desktop"
    apt = {"name": "{{ __desktop_packages }}", "install_recommends": False}
    play = {
        "vars_files": [str(role / "defaults/main.yml"), str(role / "vars/main.yml")],
        "tasks": [{"ansible.builtin.apt": apt, "check_mode": True}],
    }
    has_sound = lab.image == "debian/13"
    told: dict[str, Any] = {"desktop_user": "penny", "desktop_password": "", "desktop_locale": "de_DE.UTF-8"}
    told |= {"desktop_image": lab.image, "desktop_flavour": flavour, "desktop_sound": has_sound}
    return RoleBox(provider, lab.desk, folder).play(play, told | more)


# What is mended.


def test_a_launcher_that_starts_something_else_is_mended(lab: DesktopLab) -> None:
    lab.inside("sed", "-i", "s/^Exec=.*/Exec=true/", LAUNCHER)
    serve_home_page(lab)  # the one before has ended with the container
    assert lab.visit("penny", fields=FIELDS, limit=15)["page"] is None
    lab.end_sessions()
    lab.well("up", "--yes")
    assert lab.visit("penny", fields=FIELDS)["page"] is not None


# Limits of time.


def test_who_does_nothing_is_cut_off_and_then_the_session_ends(lab: DesktopLab) -> None:
    lab.describe(idle_minutes=1, disconnected_minutes=1)
    lab.well("up", "--yes")
    seen = lab.visit("penny", stay=2 * MINUTE_S)
    assert seen["code"] == 12, seen
    assert 0.7 * MINUTE_S < seen["stayed"] < 1.5 * MINUTE_S
    assert [one["user"] for one in lab.sessions()] == ["penny"]
    began = time.monotonic()
    wait_until(lambda: not lab.sessions(), 2 * MINUTE_S, poll_s=1)
    assert 0.7 * MINUTE_S < time.monotonic() - began < 1.5 * MINUTE_S


def test_no_password_was_seen_or_is_kept(lab: DesktopLab) -> None:
    assert lab.arguments_seen == set()
    said = "".join(ran.out + ran.err for ran in lab.runs)
    kept = "".join(file.read_text(errors="replace") for file in lab.folder.rglob("*") if file.is_file())
    assert CANARIES[0] not in said + kept
