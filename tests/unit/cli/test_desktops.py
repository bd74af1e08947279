"""Desktops by the command line, on a host in memory: the pictures of their proofs, and the file that clients open."""

from __future__ import annotations

import base64
import io
import json
import stat
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from provisioner.providers.fake import Container
from provisioner.report.rdp import Desktop, client_command
from provisioner.screens import MOST_BYTES
from provisioner.state import Execution
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
            head.size = len(content)
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


def test_verify_brings_newer_ones_and_older_ones_go(desk: World, tmp_path: Path) -> None:
    has(desk, {"failed.png": PICTURE})
    desk.command("verify")
    assert [file.name for file in (tmp_path / ".provision/screens/desk/desktop").iterdir()] == ["failed.png"]
    assert [(one["name"], one["shows"]) for one in screens(desk)] == [("failed", "")]


def test_a_container_without_pictures_has_none(desk: World) -> None:
    has(desk, {})
    assert screens(desk) == []


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


def test_the_page_holds_the_pictures_and_escapes_what_was_said(desk: World, tmp_path: Path) -> None:
    answer = desk.command("status", "--html", "lab.html")
    assert answer.code == 0, answer.err
    page = (tmp_path / "lab.html").read_text(encoding="utf-8")
    assert f'src="data:image/png;base64,{base64.b64encode(PICTURE).decode()}"' in page
    assert page.count("<img ") == 2
    assert "judged to show a desktop" in page
    assert "<script>" not in page
    assert "<td>desk</td>" in page
    assert WORD not in page + answer.out + answer.err


def test_a_page_that_cannot_be_written_is_said(desk: World, tmp_path: Path) -> None:
    answer = desk.command("status", "--html", str(tmp_path / "no/lab.html"))
    assert answer.code == 64
    assert "Unable to write" in answer.err


def test_without_a_screen_open_writes_a_file_without_the_password(desk: World, tmp_path: Path) -> None:
    answer = desk.command("open", "desk")
    assert answer.code == 0, answer.err
    content = (tmp_path / "desk.rdp").read_bytes()
    (there,) = [one.address for one in desk.host.observe("homelab").instances]
    assert f"full address:s:{there}:3389\r\n".encode() in content
    assert b"username:s:penny\r\n" in content
    assert WORD.encode() not in content
    assert "Wrote desk.rdp" in answer.out


def test_open_says_as_json_where_it_is(desk: World) -> None:
    (result,) = desk.command("open", "--json", "-o", "other.rdp").of("result")
    assert (result["user"], result["port"], result["file"]) == ("penny", 3389, "other.rdp")


def test_with_a_screen_the_client_is_started_and_asks_for_the_password(
    desk: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "xfreerdp"
    program.write_text(
        f"#!/bin/sh\nprintf '%s\\n' \"$@\" > {tmp_path}/said.part && mv {tmp_path}/said.part {tmp_path}/said\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def remembered(*args: Any, **named: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*args, **named))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", remembered)
    answer = desk.command("open")
    assert answer.code == 0, answer.err
    assert [one.wait(20) for one in started] == [0]
    said = (tmp_path / "said").read_text().split()
    assert "/u:penny" in said
    assert said[0].endswith(":3389")
    assert WORD not in " ".join(said)
    assert not (tmp_path / "desk.rdp").exists()


@pytest.mark.parametrize("names", [("other",), ("desk", "other")])
def test_open_wants_one_desktop(desk: World, lab: Path, names: tuple[str, ...]) -> None:
    lab.write_text(FILE + "  other: { image: debian/12 }\n")
    answer = desk.command("open", *names)
    assert answer.code == 64
    assert "Name one container with service desktop" in answer.err


def test_a_desktop_that_does_not_run_cannot_be_opened(world: World, lab: Path, tmp_path: Path) -> None:
    lab.write_text(FILE)
    assert world.command("open", "desk").code == 4
    assert not (tmp_path / "desk.rdp").exists()


def test_each_client_is_started_in_its_own_words() -> None:
    desktop = Desktop("desk", "192.0.2.7", 3389, "penny")

    def only(name: str) -> Any:
        return lambda one: f"/usr/bin/{one}" if one == name else None

    assert client_command(desktop, "desk.rdp", only("none")) is None
    assert client_command(desktop, "desk.rdp", only("remmina")) == ("/usr/bin/remmina", "-c", "desk.rdp")
    assert client_command(desktop, "desk.rdp", only("mstsc.exe")) == ("/usr/bin/mstsc.exe", "desk.rdp")
    command = client_command(desktop, "desk.rdp", only("xfreerdp3"))
    assert command is not None
    assert command[:3] == ("/usr/bin/xfreerdp3", "/v:192.0.2.7:3389", "/u:penny")
