"""A real browser that trusts the lab's root opens a site without a warning, and its websocket outlives a reload."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.up.door_lab import AUTHORITY, DoorLab, checkout_with_hello
from tests.lab.incus import Lab as Incus
from tests.lab_files import lab_text
from tests.waiting import wait_until

pytestmark = [pytest.mark.incus, pytest.mark.slow]

SERVICE = Path(__file__).resolve().parents[3] / "molecule/door/service.py"
SITE = "hello.home.example"
PAGE = f"https://{SITE}/page"
FILE = lab_text("door_browser")
UNKNOWN_AUTHORITY = "net_error -202"
"""How Chromium's journal says ERR_CERT_AUTHORITY_INVALID."""
PATIENCE_S, POLL_S = 60.0, 0.5
INSTALL = (
    "apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "
    "chromium libnss3-tools"
)


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoorLab]:
    """The lab, up; the service that speaks with browsers stands in for hello's own, and Chromium lives beside it."""
    environment = {**incus_lab.environment, **checkout_with_hello(tmp_path_factory.mktemp("checkout"))}
    lab = DoorLab(tmp_path_factory.mktemp("browser"), environment, "debian/12", "debian/12", name="e2ebrowser")
    lab.write_site(SITE)
    (lab.folder / "homelab.yml").write_text(FILE, encoding="utf-8")
    with lab.brought_up():
        inside(lab, "sh", "-c", INSTALL)
        lab.incus("file", "push", str(SERVICE), "hello/usr/local/lib/service.py")
        address = lab.incus("exec", "door", "--", "hostname", "-I").split()[0]
        inside(lab, "sh", "-c", f"echo {address} {SITE} >> /etc/hosts; systemctl stop hello.service")
        inside(lab, "systemd-run", "--quiet", "--unit=chat", "python3", "/usr/local/lib/service.py", "9000")
        inside(lab, "sh", "-c", "mkdir -p /root/.pki/nssdb && certutil -d sql:/root/.pki/nssdb -N --empty-password")
        yield lab


def inside(lab: DoorLab, *words: str) -> str:
    """Run a program where the browser lives."""
    return lab.incus("exec", "hello", "--env", "HOME=/root", "--", *words)


def open_page(lab: DoorLab) -> None:
    """Have a new browser open the page."""
    inside(lab, "sh", "-c", "systemctl stop browser; rm -rf /run/report /run/go /run/profile; true")
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--user-data-dir=/run/profile"]
    unit = ["systemd-run", "--quiet", "--unit=browser", "--collect", "--setenv=HOME=/root"]
    inside(lab, *unit, "chromium", *words, "--remote-debugging-port=9222", PAGE)


def journal(lab: DoorLab) -> str:
    """What the browser said."""
    return inside(lab, "journalctl", "--no-pager", "-u", "browser")


def reported(lab: DoorLab, count: int) -> list[str]:
    """What the page has reported once that many words came by its websocket."""
    seen: list[str] = []

    def is_there() -> bool:
        text = lab.incus("exec", "hello", "--", "cat", "/run/report", check=False)
        seen[:] = json.loads(text) if text else []
        return len(seen) >= count

    try:
        wait_until(is_there, PATIENCE_S, POLL_S)
    except AssertionError:
        pytest.fail(f"the page was to report {count} words and reported {seen}\n{journal(lab)}")
    return seen


def reload_door(lab: DoorLab) -> None:
    """Have the door read its files again, until another process does its work."""

    def workers() -> set[str]:
        main = lab.incus("exec", "door", "--", "systemctl", "show", "--value", "-p", "MainPID", "door.service")
        return set(lab.incus("exec", "door", "--", "pgrep", "-P", main.strip()).split())

    before = workers()
    lab.incus("exec", "door", "--", "systemctl", "reload", "door.service")
    wait_until(lambda: workers() - before, PATIENCE_S, POLL_S)


def test_a_browser_that_does_not_know_the_root_does_not_open_the_site(lab: DoorLab) -> None:
    open_page(lab)
    wait_until(lambda: UNKNOWN_AUTHORITY in journal(lab), PATIENCE_S, POLL_S)
    assert lab.incus("exec", "hello", "--", "cat", "/run/report", check=False) == ""


def test_one_that_knows_it_opens_it_without_a_warning_and_its_websocket_outlives_a_reload(lab: DoorLab) -> None:
    (lab.folder / "lab.pem").write_text(lab.root(), encoding="ascii")
    lab.incus("file", "push", str(lab.folder / "lab.pem"), "hello/root/lab.pem")
    trust = ["certutil", "-d", "sql:/root/.pki/nssdb", "-A", "-t", "C,,", "-n", "lab", "-i", "/root/lab.pem"]
    inside(lab, *trust)
    open_page(lab)
    assert reported(lab, 1) == ["before"]
    reload_door(lab)
    inside(lab, "touch", "/run/go")
    assert reported(lab, 2) == ["before", "after"]
    assert "net_error" not in journal(lab).rpartition("Started")[2]
    assert AUTHORITY not in journal(lab)
