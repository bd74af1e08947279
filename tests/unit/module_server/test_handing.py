"""Which payloads are handed to the module server, what is counted, and that nothing else is."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from provisioner.inside.module_server import handing
from provisioner.inside.module_server.handing import (
    ModuleServer,
    Notes,
    Served,
    UsualWayError,
    hand_over,
    recognised,
    served,
)
from tests.module_payloads import payload

COMMAND = "/bin/sh -c '/usr/bin/python3 && sleep 0'"
VERSION = "2.19.14"


@pytest.fixture(scope="module")
def ping() -> bytes:
    return payload("ping", {"data": "my-secret"})


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(tmp_path, "we/b")


def test_a_payload_of_ansible_is_recognised_with_its_archive(ping: bytes) -> None:
    found = recognised(COMMAND, ping, VERSION)
    assert found is not None
    assert found.python == "/usr/bin/python3"
    with zipfile.ZipFile(io.BytesIO(found.archive)) as archive:
        assert "ansible/modules/ping.py" in archive.namelist()


def test_the_library_has_neither_arguments_nor_the_module(ping: bytes) -> None:
    found = recognised(COMMAND, ping, VERSION)
    assert found is not None
    library = handing.library_of(found.archive)
    with zipfile.ZipFile(io.BytesIO(library.archive())) as archive:
        names = archive.namelist()
        content = b"".join(map(archive.read, names))
    assert set(names) == set(library.digests)
    assert all(name == "ansible/__init__.py" or name.startswith("ansible/module_utils/") for name in names)
    assert b"my-secret" not in content


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (
            "/bin/sh -c 'sudo -u web /bin/sh -c '\"'\"'echo BECOME-SUCCESS-abc ; /usr/bin/python3'\"'\"' && sleep 0'",
            "user",
        ),
        ("/bin/sh -c 'LANG=C /usr/bin/python3 && sleep 0'", "environment"),
        ("/bin/sh -c '/usr/bin/python3 -v && sleep 0'", "unknown command"),
        ("/bin/sh -c '/usr/bin/python3'", "unknown command"),
        ("/bin/sh -c '/usr/bin/python3 && sleep 0'; rm -rf /", "unknown command"),
        ("/bin/sh -c 'python3 && sleep 0'", "unknown command"),
    ],
)
def test_an_unusual_command_goes_the_usual_way(ping: bytes, command: str, reason: str) -> None:
    with pytest.raises(UsualWayError, match=reason):
        recognised(command, ping, VERSION)


@pytest.mark.parametrize("version", ["2.18.1", "2.22.0", "3.0", ""])
def test_an_unknown_version_goes_the_usual_way(ping: bytes, version: str) -> None:
    with pytest.raises(UsualWayError, match="ansible-core"):
        recognised(COMMAND, ping, version)


@pytest.mark.parametrize("version", ["2.19.0", "2.20.1", "2.21.5"])
def test_the_versions_that_were_tried_are_known(ping: bytes, version: str) -> None:
    assert recognised(COMMAND, ping, version) is not None


def test_what_is_no_payload_is_not_counted(notes: Notes) -> None:
    for command, content in (("/bin/sh -c 'mkdir x'", None), (COMMAND, b"print(1)\n"), ("/bin/sh -c cat", b"a file")):
        assert recognised(command, content, VERSION) is None
    assert notes.lines() == []


def test_a_payload_that_is_not_pipelined_is_counted() -> None:
    with pytest.raises(UsualWayError, match="not pipelined"):
        recognised("/bin/sh -c '/usr/bin/python3 /root/.ansible/tmp/x/AnsiballZ_ping.py && sleep 0'", None, VERSION)


def test_a_payload_of_another_form_goes_the_usual_way(ping: bytes) -> None:
    for changed in (
        ping.replace(b"\nextensions={},", b"\nextensions={'x': {}},"),
        ping + b"print(1)\n",
        ping.replace(b"\nzip_data='UEs", b"\nzip_data='!UEs"),
        ping.replace(b"    _ansiballz_main(\nansible_module", b"    other_main(\nansible_module"),
    ):
        assert changed != ping
        with pytest.raises(UsualWayError, match="unknown form"):
            recognised(COMMAND, changed, VERSION)


def test_a_damaged_archive_goes_the_usual_way() -> None:
    with pytest.raises(UsualWayError, match="unknown form"):
        handing.library_of(b"no archive")


def never(_argv: object, _stdin: bytes) -> tuple[int, bytes, bytes]:
    raise AssertionError("nothing may be run")


@pytest.mark.parametrize("word", ["off", "OFF"])
def test_it_can_be_switched_off(word: str, ping: bytes, notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(handing.SWITCH, word)
    assert hand_over(COMMAND, ping, version=VERSION, server=ModuleServer(never, notes)) is None
    assert notes.lines() == []


def test_what_goes_the_usual_way_is_counted_by_its_reason(ping: bytes, notes: Notes, tmp_path: Path) -> None:
    for _ in range(2):
        assert hand_over(COMMAND, ping, version="2.9", server=ModuleServer(never, notes)) is None
    notes.add(handing.SERVED)
    notes.add(handing.STARTED, "/usr/bin/python3")
    counted = served(tmp_path)
    assert counted == Served(1, {"ansible-core 2.9": 2}, {"we/b": "/usr/bin/python3"})
    assert str(counted) == "The module server ran 1 modules, 2 went the usual way (ansible-core 2.9: 2)"


def test_without_any_note_nothing_was_served(tmp_path: Path) -> None:
    assert served(tmp_path) == Served()


def test_what_a_client_says_that_ended_early_is_kept(ping: bytes, notes: Notes) -> None:
    def dies(_argv: object, _stdin: bytes) -> tuple[int, bytes, bytes]:
        return 0, b"", b"sh: Killed\n"

    result = hand_over(COMMAND, ping, version=VERSION, server=ModuleServer(dies, notes))
    assert result == (0, b"", b"sh: Killed\n")
    assert ("usual", "the client ended early") in notes.lines()


def test_notes_are_in_the_runs_folder_or_in_ansibles_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(handing.NOTES, raising=False)
    assert handing.notes_folder("/usual") == Path("/usual")
    monkeypatch.setenv(handing.NOTES, "/own")
    assert handing.notes_folder("/usual") == Path("/own")
