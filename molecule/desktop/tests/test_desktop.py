"""The desktop as its users meet it, by a real client; and its proof, which fails where it must, in words of its own."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host

from tests.case_files import read_case

SCENARIO = Path(__file__).resolve().parents[1]
PROGRAMS = "/usr/local/lib/desktop"
PICTURES = "/var/lib/provisioner/desktop"
IMPORTED = f"import sys; sys.path.insert(0, '{PROGRAMS}'); import sessions; "
CERTIFICATE = "/etc/xrdp/tls/own.crt"
PORT = 3389
PATIENCE_S = 60
"""How long a proof waits for a picture that does not come."""

VARS = read_case(SCENARIO / "vars.yml")
PENNY = {"name": VARS["desktop_user"], "password": VARS["desktop_password"]}
ANN = dict(VARS["desktop_users"][0])


def playbook(name: str, **values: Any) -> str:
    """What one of the scenario's playbooks says with other variables, without folds; its last word is its exit code."""
    command = ["ansible-playbook", "--inventory", os.environ["MOLECULE_INVENTORY_FILE"], str(SCENARIO / name)]
    done = subprocess.run(
        [*command, "--extra-vars", json.dumps(values)],
        env=os.environ | {"ANSIBLE_FORCE_COLOR": "0", "ANSIBLE_NOCOLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=900,
    )
    return " ".join(done.stdout.split()) + f" rc={done.returncode}"


def proved(host: Host, *users: dict[str, str], patience: int = 180, most: int = 2) -> Any:
    """What the role's own proof says."""
    asked = {"users": users or (PENNY,), "port": PORT, "certificate": CERTIFICATE, "browser": "firefox-esr"}
    text = json.dumps({**asked, "folder": PICTURES, "patience": patience, "max_sessions": most})
    return json.loads(host.check_output("printf %%s %s | python3 %s/prove.py", text, PROGRAMS))


def sessions(host: Host) -> Any:
    """The sessions that there are."""
    return json.loads(host.check_output(f"python3 {PROGRAMS}/sessions.py"))


def until(true: Callable[[], Any], timeout_s: float = 180) -> None:
    """Wait until it is true."""
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.5)


@contextmanager
def logged_in(host: Host, user: dict[str, str]) -> Iterator[dict[str, Any]]:
    """The session of somebody who sits before it; all of that user's end with the block."""
    name, script = user["name"], (SCENARIO / "files/hold.py").read_text(encoding="utf-8")
    host.check_output("printf %%s %s > /run/hold.py && printf %%s %s > /run/hold.txt", script, user["password"])
    held = f"python3 /run/hold.py {name} {PORT} {CERTIFICATE} < /run/hold.txt"
    host.check_output("systemd-run --quiet --collect --unit=hold-%s sh -c %s", name, held)
    try:
        until(lambda: host.file(f"/run/held-{name}").exists)
        yield next(one for one in sessions(host) if one["user"] == name)
    finally:
        host.run(f"systemctl stop hold-{name}; rm -f /run/held-{name} /run/hold.txt")
        host.check_output("python3 -c %s", f"{IMPORTED}[sessions.end(one) for one in sessions.sessions()]")
        until(lambda: not sessions(host))


@contextmanager
def moved(host: Host, *files: str) -> Iterator[None]:
    """The machine without these files."""
    for file in files:
        host.check_output(f"mv {file} {file}.moved")
    try:
        yield
    finally:
        for file in files:
            host.check_output(f"mv {file}.moved {file}")


@contextmanager
def done(host: Host, commands: Sequence[str], undone: Sequence[str]) -> Iterator[None]:
    """The machine between two lists of commands."""
    for command in commands:
        host.check_output(command)
    try:
        yield
    finally:
        for command in undone:
            host.check_output(command)


# As it is.


def test_the_proof_logs_in_and_keeps_its_pictures(host: Host) -> None:
    found = proved(host)
    assert found["problem"] == ""
    assert found["pictures"] == {"desktop": "mate", "browser": "mate"}
    assert set(found["took"]) == {"refused", "panel", "browser", "again", "headless"}
    assert sessions(host) == []
    for name in ("desktop", "browser"):
        file = host.file(f"{PICTURES}/{name}.png")
        assert (file.user, file.mode) == ("root", 0o600)
        assert 5_000 < file.size < 500_000


def test_no_secret_is_written_down(host: Host) -> None:
    for user in (PENNY, ANN):
        assert (
            host.run("grep -rqsF -- %s /etc /var/log /var/lib/provisioner /home /usr/local", user["password"]).rc == 1
        )
    assert host.run("journalctl --no-pager | grep -qF -e canary").rc == 1
    for user in (PENNY, ANN):
        hashed = host.check_output(f"getent shadow {user['name']}").split(":")[1]
        assert hashed.startswith("$")


def test_the_key_is_for_xrdp_and_what_is_dangerous_is_off(host: Host) -> None:
    key = host.file(CERTIFICATE.replace(".crt", ".key"))
    assert (key.user, key.group, key.mode) == ("root", "xrdp", 0o640)
    xrdp, sesman = (host.file(f"/etc/xrdp/{name}.ini").content_string for name in ("xrdp", "sesman"))
    wanted = ("security_layer=tls", "require_credentials=true", "rdpdr=false", "cliprdr=false", "rdpsnd=false")
    assert [line for line in wanted if line not in xrdp.splitlines()] == []
    wanted = ("AllowRootLogin=false", "MaxSessions=2", "EnableFuseMount=false", "Policy=Default")
    assert [line for line in wanted if line not in sesman.splitlines()] == []
    assert "param=xrdp/xorg.conf" in sesman.splitlines()


def test_the_whole_system_is_well_and_survives_as_it_is(host: Host) -> None:
    assert host.check_output("systemctl is-system-running") == "running"
    assert host.service("xrdp").is_enabled
    home = host.file("/home/penny/.config/caja")
    assert (home.user, home.is_directory) == ("penny", True)


def test_what_was_changed_by_hand_is_put_back(host: Host) -> None:
    look = "stat -c '%n %U %G %a' /etc/xrdp/*.ini; cat /etc/xrdp/*.ini"
    before = host.check_output(look)
    host.check_output(
        "passwd -d penny; passwd -l ann; echo '; by hand' >> /etc/xrdp/xrdp.ini;"
        " sed -i /xorg.conf/d /etc/xrdp/sesman.ini; chmod 0600 /etc/xrdp/xrdp_keyboard.ini"
    )
    assert playbook("converge.yml").endswith("rc=0")
    assert host.check_output(look) == before
    for name in ("penny", "ann"):
        assert host.check_output(f"getent shadow {name}").split(":")[1].startswith("$")


# Sessions that people have.


def test_who_has_a_session_keeps_it_whatever_runs_meanwhile(host: Host) -> None:
    with logged_in(host, PENNY) as before:
        said = playbook("converge.yml")
        assert "changed=0" in said
        assert said.endswith("rc=0")
        assert "the session of penny on display :10 was left alone" in said
        pid = main_pid(host)
        said = playbook("converge.yml", desktop_port=3390)
        assert "Unable to serve a desktop on port 3390 now" in said
        assert "the sessions of penny to nobody" in said
        assert "changed=0" in said
        assert said.endswith("rc=2")
        said = playbook("converge.yml", desktop_max_sessions=3)
        assert said.endswith("rc=0")
        assert "restarted when the last session ends" in said
        assert main_pid(host) == pid
        assert sessions(host) == [before]
        assert host.service("desktop-restart").is_running
    until(lambda: main_pid(host) not in {pid, "0"})
    until(lambda: not host.service("desktop-restart").is_running)
    for command in (setting("/etc/xrdp/sesman.ini", "MaxSessions", "2"), "systemctl restart xrdp"):
        host.check_output(command)


def main_pid(host: Host) -> str:
    """The process of xrdp."""
    return str(host.check_output("systemctl show --property=MainPID --value xrdp"))


def test_a_session_that_a_restart_left_to_nobody_is_named(host: Host) -> None:
    with logged_in(host, PENNY):
        host.check_output("systemctl restart xrdp")
        assert "xrdp was restarted since the session of penny on display :10 began" in proved(host, ANN)["problem"]


def test_a_session_whose_bus_is_gone_is_named(host: Host) -> None:
    with logged_in(host, PENNY) as session:
        place = session["bus"].partition("unix:path=")[2].partition(",")[0]
        assert bus_answers(host, session["bus"])
        host.check_output(f"rm {place}")
        assert "the bus of the session of penny" in proved(host, ANN)["problem"]


def bus_answers(host: Host, address: str) -> bool:
    """Whether something listens there."""
    asked = f"{IMPORTED}sys.exit(not sessions.bus_answers(sys.argv[1]))"
    return bool(host.run("python3 -c %s %s", asked, address).rc == 0)


def test_one_session_too_many_is_named(host: Host) -> None:
    sesman, restart = "/etc/xrdp/sesman.ini", "systemctl restart xrdp"
    less, more = (setting(sesman, "MaxSessions", number) for number in ("1", "2"))
    with done(host, [less, restart], [more, restart]), logged_in(host, PENNY):
        assert "no more sessions are allowed" in proved(host, ANN, patience=PATIENCE_S)["problem"]
        taken = proved(host, ANN, most=1)  # as the file has it: somebody is there, and nothing is broken
        assert taken["problem"] == ""
        assert "every session that is allowed is taken (1), so nobody's password was tried" in taken["notes"]


# What is broken.


def test_a_proof_that_fails_fails_the_role() -> None:
    said = playbook("verify_alone.yml", desktop_password="another")
    assert "Unable to verify the desktop: the password of penny was refused" in said
    assert "another" not in said.replace("another process", "")
    assert said.endswith("rc=2")


MISSING = {
    "/usr/lib/xorg/modules/libxorgxrdp.so": "no X server starts for penny",
    "/usr/bin/marco": "the desktop has no window manager (marco)",
    "/usr/bin/mate-panel": "the desktop has no panel (mate-panel)",
    "/usr/bin/mate-session": "the session ended at once",
    "/usr/bin/firefox-esr": "there is no browser: firefox-esr is not installed",
}


@pytest.mark.parametrize("file", MISSING)
def test_what_is_missing_is_named(host: Host, file: str) -> None:
    with moved(host, file):
        assert MISSING[file] in proved(host, patience=PATIENCE_S)["problem"]
    assert sessions(host) == []


OWN_PAIR = "-keyout /run/x.key -out /run/x.crt"
XRDP, PENNYS = "/etc/xrdp/xrdp.ini", "/home/penny"


def setting(file: str, key: str, value: str) -> str:
    """A command that gives a key another value."""
    return f"sed -i 's,^{key}=.*,{key}={value},' {file}"


BROKEN = {
    "nothing is drawn": (
        [f"echo 'exec sleep infinity' > {PENNYS}/.xsession"],
        [f"echo 'exec mate-session' > {PENNYS}/.xsession"],
        "the session runs and draws nothing",
    ),
    "the key cannot be read": (
        # On Debian 13 the process that reads it is root: what nobody can read is a key that is not there.
        ["mv /etc/xrdp/tls/own.key /etc/xrdp/tls/away.key"],
        ["mv /etc/xrdp/tls/away.key /etc/xrdp/tls/own.key"],
        "xrdp does not talk TLS",
    ),
    "RDP's own security": (
        [setting(XRDP, "security_layer", "negotiate")],
        [setting(XRDP, "security_layer", "tls")],
        "xrdp would talk without TLS",
    ),
    "a wrong password is not told": (
        [setting(XRDP, "require_credentials", "false")],
        [setting(XRDP, "require_credentials", "true")],
        "a wrong password does not end the connection",
    ),
    "another certificate": (
        [
            f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=x {OWN_PAIR} 2>&1",
            "chmod 644 /run/x.key",
            setting(XRDP, "certificate", "/run/x.crt"),
            setting(XRDP, "key_file", "/run/x.key"),
        ],
        [setting(XRDP, "certificate", CERTIFICATE), setting(XRDP, "key_file", CERTIFICATE.replace(".crt", ".key"))],
        "xrdp shows another certificate",
    ),
    "a stub of a snap": (
        [
            "mv /usr/bin/firefox-esr /usr/bin/firefox-esr.moved",
            "echo '#!/bin/sh' > /usr/bin/firefox-esr",
            "echo 'exec snap run firefox' >> /usr/bin/firefox-esr",
            "chmod 755 /usr/bin/firefox-esr",
        ],
        ["mv /usr/bin/firefox-esr.moved /usr/bin/firefox-esr"],
        "/usr/bin/firefox-esr is a stub that wants snapd",
    ),
    "the disk is full": (
        [
            f"mount -t tmpfs -o size=64k,mode=755,uid=$(id -u penny),gid=$(id -g penny) tmpfs {PENNYS}",
            f"cat /dev/zero > {PENNYS}/full 2>/dev/null || true",
        ],
        [f"umount -l {PENNYS}"],
        f"the disk is full: {PENNYS}",
    ),
    "nothing listens": (["systemctl stop xrdp"], ["systemctl start xrdp"], f"nothing answers on port {PORT}"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_named(host: Host, name: str) -> None:
    commands, undone, words = BROKEN[name]
    with done(host, commands, undone):
        assert words in proved(host, patience=PATIENCE_S)["problem"]
    until(lambda: not sessions(host))


def test_after_all_that_it_works_again(host: Host) -> None:
    assert proved(host)["problem"] == ""
