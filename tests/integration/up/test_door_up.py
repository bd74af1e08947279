"""`up` gives a service a name with TLS, finds its certificate due, and takes up another site; the secret is nowhere."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

import pytest

from tests.integration.up.door_lab import HELLO, DoorLab, checkout_with_hello
from tests.lab.incus import Lab as Incus

pytestmark = [pytest.mark.incus]

SITE, OTHER = "hello.home.example", "other.home.example"
FRESH = "/etc/door/certificate-is-fresh"


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoorLab]:
    """The lab, up."""
    environment = {**incus_lab.environment, **checkout_with_hello(tmp_path_factory.mktemp("checkout"))}
    lab = DoorLab(tmp_path_factory.mktemp("door"), environment, "debian/12", "debian/12", name="e2edoor")
    lab.write_site(SITE)
    with lab.brought_up():
        yield lab


def nothing_to_do(lab: DoorLab) -> None:
    """Fail where a plan has something to say."""
    lab.succeeded("plan", "--detailed-exitcode")


def test_a_browser_that_trusts_the_root_sees_the_service(lab: DoorLab) -> None:
    assert lab.page(SITE).strip() == HELLO
    assert lab.way_in(SITE) == (308, f"https://{SITE}:8443/a")
    assert lab.way_in(OTHER) == (404, None)
    with pytest.raises(ssl.SSLError):
        lab.page(OTHER)
    nothing_to_do(lab)


def test_a_certificate_that_is_due_is_drift_and_the_next_up_mends_it(lab: DoorLab) -> None:
    lab.incus("exec", "door", "--", "rm", FRESH)
    plan = lab.provision("plan", "--detailed-exitcode")
    assert plan.code == 2
    assert f"{FRESH}: is gone" in plan.out
    assert lab.provision("up", "--yes").code == 0
    lab.incus("exec", "door", "--", "test", "-e", FRESH)
    nothing_to_do(lab)


def test_another_site_is_taken_up_without_a_new_process(lab: DoorLab) -> None:
    process = lab.incus("exec", "door", "--", "systemctl", "show", "--value", "-p", "MainPID", "door.service")
    lab.write_site(OTHER)
    lab.succeeded("up", "--yes")
    assert lab.page(OTHER).strip() == HELLO
    with pytest.raises(ssl.SSLError):
        lab.page(SITE)
    assert lab.incus("exec", "door", "--", "systemctl", "show", "--value", "-p", "MainPID", "door.service") == process
    nothing_to_do(lab)
    assert lab.provision("verify").code == 0


def test_the_secret_is_in_no_output_argument_or_file(lab: DoorLab) -> None:
    lab.provision("up", "--yes", "--full", "--json")
    lab.shows_none_of("CANARY1")
    files = [file for file in lab.folder.rglob("*") if file.is_file() and file.name != "secrets.env"]
    assert files
    assert [file for file in files if b"CANARY1" in file.read_bytes()] == []
    inside = lab.incus(
        "exec", "door", "--", "grep", "-rlF", "CANARY1", "/etc", "/run", "/usr", "/var", "/root", check=False
    )
    assert inside == ""
