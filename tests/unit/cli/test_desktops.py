"""Desktops by the command line, on a host in memory: the pictures of their proofs, and the file that clients open."""

from __future__ import annotations

import base64
import gzip
import io
import json
import stat
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from provisioner.hosts.fake import Container
from provisioner.page.clients import Client, Desktop, client, rdp_text
from provisioner.reconcile.evidence import MOST_BYTES
from provisioner.values.errors import ProviderError
from provisioner.values.state import Execution
from tests.processes import killed_at_end
from tests.raising import raising
from tests.unit.cli.conftest import World

WORD = "canary-penny-41c2"
FILE = """\
name: homelab
hosts:
  box: { incus: local }
containers:
  desk:
    services:
      desktop: { user: penny, password: !secret penny_rdp }
"""
PICTURE = b"\x89PNG\r\n\x1a\nfirst"
TAKEN = 1_790_000_000
"""When the pictures were taken, in seconds of the epoch: 2026-09-21, 14:13:20 UTC."""
ANSWER = {"problem": "", "pictures": {"desktop": "mate", "browser": "<script>"}}


@pytest.fixture
def desk(world: World, lab: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A lab with one desktop that is up, and whose proof has taken pictures."""
    monkeypatch.setenv("PROVISION_SECRET_PENNY_RDP", WORD)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    lab.write_text(FILE)
    has(world, {"desktop.png": PICTURE, "browser.png": PICTURE + b"2", "proof.json": json.dumps(ANSWER).encode()})
    assert world.command("up", "--yes").code == 0
    return world


def has(world: World, files: Mapping[str, bytes]) -> None:
    """The container packs these files when it is asked for its pictures."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in files.items():
            head = tarfile.TarInfo(f"./{name}")
            head.size, head.mtime = len(content), TAKEN
            archive.addfile(head, io.BytesIO(content))

    def pack(_container: Container, command: Sequence[str], _stdin: bytes, _env: Mapping[str, str]) -> Execution:
        if command[-1] != "/var/lib/provisioner/desktop":
            return Execution(127, b"", b"")
        return Execution(0, packed.getvalue() if files else b"", b"")

    world.host.programs["sh"] = pack


def screens(world: World) -> Any:
    """What ``status --json`` says of the desktop's pictures."""
    (container,) = world.command("status", "--json").of("container")
    return container["services"][0]["screens"]


def test_up_brings_the_proofs_pictures_for_the_owner_alone(desk: World, tmp_path: Path) -> None:
    assert desk.played
    folder = tmp_path / ".provision/screens/desk/desktop"
    assert {file.name for file in folder.iterdir()} == {"desktop.png", "browser.png"}
    assert (folder / "desktop.png").read_bytes() == PICTURE
    assert stat.S_IMODE((folder / "desktop.png").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_status_tells_them_with_what_they_show(desk: World) -> None:
    found = screens(desk)
    assert [(one["name"], one["shows"]) for one in found] == [("browser", "<script>"), ("desktop", "mate")]
    assert Path(found[1]["file"]).read_bytes() == PICTURE
    assert {one["at"] for one in found} == {"2026-09-21T14:13:20+00:00"}


@pytest.mark.parametrize("seconds", [0, -(2**62), 2**70])
def test_a_time_that_is_none_costs_the_time_alone(desk: World, seconds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "TAKEN", seconds)
    has(desk, {"desktop.png": PICTURE})
    assert [one["at"] for one in screens(desk)] == [""]


def test_verify_brings_newer_ones_and_older_ones_go(desk: World, tmp_path: Path) -> None:
    has(desk, {"failed.png": PICTURE})
    desk.command("verify")
    assert [file.name for file in (tmp_path / ".provision/screens/desk/desktop").iterdir()] == ["failed.png"]
    assert [(one["name"], one["shows"]) for one in screens(desk)] == [("failed", "")]


@pytest.mark.parametrize(
    "files",
    [
        {"../../evil.png": PICTURE},
        {"/evil.png": PICTURE},
        {"evil.sh": b"#!/bin/sh"},
        {"evil.png": b"<html>"},
        {"evil.png": PICTURE + bytes(MOST_BYTES)},
    ],
    ids=["above", "root", "script", "no picture", "large"],
)
def test_a_container_cannot_write_anything_else_here(desk: World, tmp_path: Path, files: dict[str, bytes]) -> None:
    has(desk, files)
    assert screens(desk) == []
    assert list(tmp_path.rglob("*evil*")) == []


@pytest.mark.parametrize(
    "packed", [b"not an archive" * 99, gzip.compress(bytes(9000)), b""], ids=["words", "packed", "none"]
)
def test_what_is_no_archive_of_pictures_costs_the_pictures_alone(desk: World, packed: bytes) -> None:
    desk.host.programs["sh"] = lambda *_: Execution(0, packed, b"")
    assert screens(desk) == []


def test_a_link_among_them_and_a_container_that_does_not_answer_cost_the_pictures_alone(desk: World) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        link = tarfile.TarInfo("./desktop.png")
        link.type, link.linkname = tarfile.LNKTYPE, "nowhere"
        archive.addfile(link)
    desk.host.programs["sh"] = lambda *_: Execution(0, stream.getvalue(), b"")
    assert screens(desk) == []
    desk.host.programs["sh"] = raising(
        ProviderError("Unable to run sh in container desk", details="It was killed after 30 s")
    )
    assert screens(desk) == []


def test_the_page_holds_the_pictures_and_escapes_what_was_said(desk: World, tmp_path: Path) -> None:
    answer = desk.done("status", "--html", "lab.html")
    page = (tmp_path / "lab.html").read_text(encoding="utf-8")
    assert f'src="data:image/png;base64,{base64.b64encode(PICTURE).decode()}"' in page
    assert page.count("<img ") == 2
    assert "judged to show a desktop" in page
    assert "<script>" not in page
    assert "<h3>desk</h3>" in page
    assert WORD not in page + answer.out + answer.err


def test_without_a_screen_open_writes_a_file_without_the_password(desk: World, tmp_path: Path) -> None:
    answer = desk.done("open", "desk")
    content = (tmp_path / "desk.rdp").read_bytes()
    (there,) = [one.address for one in desk.host.observe("homelab").instances]
    assert f"full address:s:{there}:3389\r\n".encode() in content
    assert b"username:s:penny\r\n" in content
    assert WORD.encode() not in content
    assert answer.printed == desk.snapshot


def test_open_says_as_json_where_it_is(desk: World) -> None:
    (result,) = desk.command("open", "--json", "-o", "other.rdp").of("result")
    assert (result["user"], result["port"], result["file"]) == ("penny", 3389, "other.rdp")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """A screen, no client but those that a test writes, and the programs that were started."""
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("PATH", str(tmp_path))
    programs: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    with ExitStack() as stack:

        def remembered(*args: Any, **named: Any) -> subprocess.Popen[bytes]:
            programs.append(stack.enter_context(killed_at_end(popen(*args, **named))))
            return programs[-1]

        monkeypatch.setattr(subprocess, "Popen", remembered)
        yield programs


def program(tmp_path: Path, name: str, script: str) -> Path:
    """A client that does this, and leaves its words in a file."""
    said = tmp_path / "said"
    file = tmp_path / name
    file.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" > {said}\necho noise\necho noise >&2\n{script}\n")
    file.chmod(0o755)
    return said


def test_with_a_screen_a_client_with_windows_is_started_and_its_noise_is_not_ours(
    desk: World, started: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    said = program(tmp_path, "remmina", "")
    program(tmp_path, "xfreerdp", "")
    answer = desk.done("open", "--json")
    assert [one.wait(20) for one in started] == [0]
    assert said.read_text().split() == ["-c", "desk.rdp"]
    assert "full address:s:" in (tmp_path / "desk.rdp").read_text()
    assert "noise" not in answer.out + answer.err
    assert WORD not in said.read_text() + answer.out


def test_a_client_that_asks_on_a_terminal_is_not_started_without_one(
    desk: World, started: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    said = program(tmp_path, "xfreerdp", "")
    assert desk.command("open").printed == desk.snapshot
    assert started == []
    assert not said.exists()


def test_on_a_terminal_it_asks_there_and_its_end_is_awaited(
    desk: World, started: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    asked: list[Sequence[str]] = []

    def openssl(_container: Container, command: Sequence[str], _in: bytes, _env: Mapping[str, str]) -> Execution:
        asked.append(command)
        return Execution(0, b"sha256 Fingerprint=AB:0C\n", b"")

    desk.host.programs["openssl"] = openssl
    said = program(tmp_path, "xfreerdp", "exit 12")
    answer = desk.done("open", typed="")
    assert answer.out.startswith("Ended xfreerdp for ")
    assert asked[0][-1] == "/etc/xrdp/tls/own.crt"
    words = said.read_text().split()
    assert {"/u:penny", "/cert:fingerprint:sha256:ab0c,fingerprint:sha256:ab:0c"} < set(words)
    assert started[0].returncode == 12  # the user has logged off
    assert not (tmp_path / "desk.rdp").exists()
    program(tmp_path, "xfreerdp", "exit 131")
    assert desk.command("open", typed="").ended(1) == desk.snapshot


def test_a_client_is_not_started_for_a_certificate_that_nobody_knows(
    desk: World, started: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    program(tmp_path, "xfreerdp", "")
    desk.host.programs["openssl"] = lambda *_: Execution(1, b"", b"No such file or directory")
    assert desk.command("open", typed="").ended(4) == desk.snapshot
    assert started == []


@pytest.mark.parametrize("names", [("other",), ("desk", "other")])
def test_open_wants_one_desktop(desk: World, lab: Path, names: tuple[str, ...]) -> None:
    lab.write_text(FILE + "  other: { image: debian/12 }\n")
    assert desk.command("open", *names).ended(64) == desk.snapshot


def test_a_desktop_that_does_not_run_cannot_be_opened(world: World, lab: Path, tmp_path: Path) -> None:
    lab.write_text(FILE)
    assert world.command("open", "desk").code == 4
    assert not (tmp_path / "desk.rdp").exists()


def test_each_client_is_started_in_its_own_words() -> None:
    desktop = Desktop("desk", "192.0.2.7", 3389, "penny")

    def only(*names: str, has_terminal: bool = True, desktop: Desktop = desktop) -> Client | None:
        def find(one: str) -> str | None:
            return f"/usr/bin/{one}" if one in names else None

        return client(desktop, "desk.rdp", find, has_terminal=has_terminal)

    assert only() is None
    assert only("remmina") == Client(("/usr/bin/remmina", "-c", "desk.rdp"), on_terminal=False)
    assert only("mstsc.exe") == Client(("/usr/bin/mstsc.exe", "desk.rdp"), on_terminal=False)
    there = ("/v:192.0.2.7:3389", "/u:penny", "/d:", "/sec:tls", "/dynamic-resolution")
    asks = "/from-stdin:force"
    assert only("xfreerdp3") == Client(("/usr/bin/xfreerdp3", *there, "-clipboard", asks), on_terminal=True)
    assert only("xfreerdp3", has_terminal=False) is None
    assert only("xfreerdp3", "remmina") == only("remmina")
    free = Desktop("desk", "192.0.2.7", 3389, "penny", clipboard=True, drives=True)
    assert only("xfreerdp", desktop=free) == Client(
        ("/usr/bin/xfreerdp", *there, "+clipboard", "+drives", asks), on_terminal=True
    )


def test_the_file_lets_through_what_the_desktop_does() -> None:
    closed = rdp_text(Desktop("desk", "192.0.2.7", 3389, "penny")).splitlines()
    assert {"redirectclipboard:i:0", "drivestoredirect:s:"} < set(closed)
    open_ = rdp_text(Desktop("desk", "192.0.2.7", 3389, "penny", clipboard=True, drives=True)).splitlines()
    assert {"redirectclipboard:i:1", "drivestoredirect:s:*"} < set(open_)
