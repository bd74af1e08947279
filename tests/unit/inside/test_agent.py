"""What the container's side says and writes, on this machine's own files: sent as text it runs the same lines."""

from __future__ import annotations

import json
import os
import pwd
import socket
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from provisioner.inside import agent
from provisioner.inside.agent import differences, look, read_stamp, state_of, write_stamps
from provisioner.values.facts import ASLEEP, BUSY
from tests.case_files import read_cases
from tests.raising import raising

CASES = read_cases("agent")

OF = "lab/box"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "state" / "stamps"
    monkeypatch.setattr(agent, "FOLDER", str(folder))
    return folder


def managed(*paths: Path) -> dict[str, list[str]]:
    return {"paths": [str(path) for path in paths]}


def stamp(role: str = "role", **more: Any) -> dict[str, Any]:
    return {"role": role, "of": OF, "inputs": {"role": "1"}, "secrets": {}, "salt": "s", "managed": {}} | more


def service(**more: Any) -> dict[str, Any]:
    """A service as it is asked for."""
    asked = {"address": "box/role", "unit": "none.service", "port": 9, "own_port": 9, "health": None}
    return asked | {"late": False, "closed_by": ""} | more


def looked(**more: Any) -> dict[str, Any]:
    return look({"do": "look", "of": OF, "roles": ["role"], "services": [], "manifests": []} | more)


def seen(*paths: Path) -> dict[str, dict[str, Any]]:
    return state_of(managed(*paths), "salt", {}, {})


def write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def relink(path: Path) -> None:
    path.unlink()
    path.symlink_to("/elsewhere")


def become_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "content": (lambda path: write(path, "other"), "edited"),
    "mode": (lambda path: path.chmod(0o666), "mode is 0666, was 0640"),
    "deletion": (Path.unlink, "is gone"),
    "link": (relink, "type is link, was file"),
    "folder": (become_folder, "type is folder, was file"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_change_of_a_file_is_seen_and_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / "file"
    write(path, "text")
    path.chmod(0o640)
    before = seen(path)
    assert differences(before, seen(path)) == []
    change, words = CHANGES[name]
    change(path)
    ((kind, where, told),) = differences(before, seen(path))
    assert (kind, where) == ("paths", str(path))
    assert words in told


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_another_owner_or_group_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write(path, "text")
    before = seen(path)
    os.chown(path, 1, 0)
    assert differences(before, seen(path)) == [["paths", str(path), "owner is 1, was 0"]]
    os.chown(path, 0, 1)
    assert "group is 1" in differences(before, seen(path))[0][2]


def test_what_was_not_there_and_is_now_is_a_change(tmp_path: Path) -> None:
    before = seen(tmp_path / "file")
    write(tmp_path / "file", "")
    assert differences(before, seen(tmp_path / "file"))[0][2] == "has appeared"


def test_a_link_is_its_target_not_what_the_target_holds(tmp_path: Path) -> None:
    write(tmp_path / "a", "one")
    (tmp_path / "link").symlink_to("a")
    before = seen(tmp_path / "link")
    write(tmp_path / "a", "two")
    assert differences(before, seen(tmp_path / "link")) == []
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("b")
    assert differences(before, seen(tmp_path / "link"))[0][2] == "points to b, pointed to a"


def test_a_large_file_is_not_read_and_every_write_to_it_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model"
    with path.open("wb") as file:
        file.truncate(agent.LARGE_BYTES + 1)
    with monkeypatch.context() as patch:
        patch.setattr(agent, "keyed_digest", lambda *_: pytest.fail("it was read"))
        before = seen(path)
    times = path.stat()
    with path.open("r+b") as file:
        file.write(b"x")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # who hides a change cannot hide its ctime
    assert differences(before, seen(path))[0][2] == "edited"


def test_a_short_secret_cannot_be_guessed_from_two_stamps(tmp_path: Path) -> None:
    write(tmp_path / "key", "1234")
    first = state_of(managed(tmp_path / "key"), "one", {}, {})
    second = state_of(managed(tmp_path / "key"), "two", {}, {})
    assert first != second


def test_a_user_is_compared_by_everything_that_matters() -> None:
    name = pwd.getpwuid(0).pw_name
    entry = state_of({"users": [name, "nobody-of-that-name"]}, "", {}, {})["users"]
    assert entry["nobody-of-that-name"] is None
    assert entry[name][:2] == [0, 0]
    other = {"users": {name: [*entry[name][:3], "/bin/false", entry[name][4]]}}
    assert "shell is" in differences(other, {"users": entry})[0][2]


def test_packages_and_their_versions_are_compared() -> None:
    before = state_of({"packages": ["one", "two"]}, "", {}, {"one": "1.0"})
    now = state_of({"packages": ["one", "two"]}, "", {}, {"one": "0.9", "two": "1"})
    assert differences(before, now) == [
        ["packages", "one", "is version 0.9, was 1.0 (stays as it is)"],
        ["packages", "two", "has appeared"],
    ]


def unit(**more: str) -> dict[str, str]:
    return {"LoadState": "loaded", "ActiveState": "active", "UnitFileState": "enabled", "MainPID": "0"} | more


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (unit(ActiveState="failed"), "state is failed, was active"),
        (unit(UnitFileState="disabled"), "enablement is disabled, was enabled"),
        (unit(DropInPaths="/etc/systemd/system/x.service.d/a.conf"), "drop-ins is /etc"),
        (unit(FragmentPath="/run/x.service"), "unit file is /run/x.service, was none"),
    ],
)
def test_every_change_of_a_unit_is_seen(now: dict[str, str], words: str) -> None:
    def units(state: dict[str, str]) -> dict[str, Any]:
        return {"units": state_of({"units": ["x.service"]}, "", {"x.service": state}, {})["units"]}

    assert words in differences(units(unit()), units(now))[0][2]


def test_a_process_that_is_older_than_its_files_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "config"
    write(path, "text")
    started = str(int(time.monotonic() * 1e6))
    running = {"x.service": unit(MainPID="1", ExecMainStartTimestampMonotonic=started)}
    wanted = managed(path) | {"units": ["x.service"]}
    os.utime(path, (time.time() - 60, time.time() - 60))
    before = state_of(wanted, "", running, {})
    os.utime(path, (time.time() + 5, time.time() + 5))
    assert ["units", "x.service", "has not read its files as they are"] in differences(
        before, state_of(wanted, "", running, {})
    )


def test_a_file_that_another_program_reads_is_compared_and_makes_no_process_older(tmp_path: Path) -> None:
    """The switch before a service takes up its configuration while the service's own process goes on."""
    own, other = tmp_path / "own", tmp_path / "other"
    write(own, "text")
    write(other, "text")
    started = str(int(time.monotonic() * 1e6))
    running = {"x.service": unit(MainPID="1", ExecMainStartTimestampMonotonic=started)}
    running["switch.service"] = running["x.service"]
    wanted = managed(own) | {"reloaded": [str(other)], "units": ["x.service"], "helpers": ["switch.service"]}
    os.utime(own, (time.time() - 60, time.time() - 60))
    before = state_of(wanted, "", running, {})
    write(other, "edited")
    os.utime(other, (time.time() + 5, time.time() + 5))
    assert differences(before, state_of(wanted, "", running, {})) == [["reloaded", str(other), "edited"]]
    os.utime(own, (time.time() + 5, time.time() + 5))
    words = "has not read its files as they are"
    assert ["units", "x.service", words] in differences(before, state_of(wanted, "", running, {}))
    running["switch.service"] = unit(ActiveState="failed", MainPID="0")
    told = differences(before, state_of(wanted, "", running, {}))
    assert [name for kind, name, _ in told if kind == "helpers"] == ["switch.service"]


def test_a_process_that_has_been_started_since_has_read_its_files(tmp_path: Path) -> None:
    """A desktop's server is not restarted under a session; when its container is, nothing is wrong with it."""
    write(tmp_path / "config", "text")
    os.utime(tmp_path / "config", (time.time() - 60, time.time() - 60))
    wanted = managed(tmp_path / "config") | {"units": ["x.service"]}

    def seen(started_s_ago: float, **changes: str) -> dict[str, Any]:
        started = str(int((time.monotonic() - started_s_ago) * 1e6))
        return state_of(
            wanted, "", {"x.service": unit(MainPID="1", ExecMainStartTimestampMonotonic=started, **changes)}, {}
        )

    assert differences(seen(120), seen(1)) == []
    assert differences(seen(120), seen(120)) == []
    assert differences(seen(1), seen(120)) == [["units", "x.service", "has not read its files as they are"]]
    assert differences(seen(120), seen(1, UnitFileState="disabled")) == [
        ["units", "x.service", "enablement is disabled, was enabled"]
    ]


def test_a_venv_is_what_is_installed_in_it(tmp_path: Path) -> None:
    place = tmp_path / "venv/lib/python3.11/site-packages"
    (place / "one-1.0.dist-info").mkdir(parents=True)
    before = state_of({"venvs": [str(tmp_path / "venv")]}, "", {}, {})
    (place / "one-1.0.dist-info").rename(place / "one-2.0.dist-info")
    now = state_of({"venvs": [str(tmp_path / "venv")]}, "", {}, {})
    assert differences(before, now) == [["venvs", str(tmp_path / "venv"), "holds other distributions"]]


def test_a_stamp_is_read_back_as_it_was_written(folder: Path, tmp_path: Path) -> None:
    write(tmp_path / "file", "text")
    assert write_stamps({"compare": [], "stamps": [stamp(managed=managed(tmp_path / "file"))]}) == {"unmended": {}}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "role.json").stat().st_mode) == 0o600
    assert looked()["stamps"]["role"] == {"inputs": {"role": "1"}, "secrets": {}, "salt": "s", "changed": []}
    write(tmp_path / "file", "other")
    assert looked()["stamps"]["role"]["changed"] == [["paths", str(tmp_path / "file"), "edited"]]


def test_what_has_no_stamp_is_not_proved() -> None:
    assert looked()["stamps"]["role"] == {"problem": "not proved yet"}


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda text: text[: len(text) // 2], "cannot be read"),
        (lambda _: "\x00\xff", "cannot be read"),
        (lambda _: "[]", "cannot be read"),
        (lambda _: "{}", "cannot be read"),
        (lambda text: text.replace('"role":"1"', '"role":"2"'), "damaged"),
        (lambda text: text.replace('"version":1', '"version":2'), "a newer provision"),
        (lambda text: text.replace('"version":1', '"version":0'), "an older provision"),
    ],
)
def test_a_stamp_that_was_touched_does_not_count(folder: Path, damage: Callable[[str], str], words: str) -> None:
    write_stamps({"compare": [], "stamps": [stamp()]})
    file = folder / "role.json"
    file.write_text(damage(file.read_text(encoding="utf-8")), encoding="latin-1")
    assert words in read_stamp("role", OF)["problem"]


def test_a_stamp_of_another_container_does_not_count() -> None:
    write_stamps({"compare": [], "stamps": [stamp(of="lab/other")]})
    assert read_stamp("role", OF) == {"problem": "its stamp is of lab/other"}


def test_a_stamp_that_cannot_be_written_leaves_the_old_one_and_no_part(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_stamps({"compare": [], "stamps": [stamp()]})
    before = (folder / "role.json").read_bytes()
    monkeypatch.setattr(os, "fsync", raising(OSError(28, "No space left on device")))
    assert write_stamps({"compare": [], "stamps": [stamp(salt="other")]}) == {"problem": "No space left on device"}
    assert [one.name for one in folder.iterdir()] == ["role.json"]
    assert (folder / "role.json").read_bytes() == before


def test_what_a_run_has_not_mended_is_told(tmp_path: Path) -> None:
    mended, left = tmp_path / "mended", tmp_path / "left"
    for path in (mended, left):
        write(path, "text")
    write_stamps({"compare": [], "stamps": [stamp(managed=managed(mended, left))]})
    write(left, "other")
    again = {"compare": ["role"], "stamps": [stamp(managed=managed(mended, left), salt="another")]}
    assert write_stamps(again) == {"unmended": {"role": [["paths", str(left), "edited"]]}}
    assert write_stamps(again) == {"unmended": {"role": []}}


def shadow(monkeypatch: pytest.MonkeyPatch, path: Path, line: str) -> None:
    write(path, f"root:*:1::::::\n{line}:1::::::\n")
    monkeypatch.setattr(agent, "SHADOW", str(path))


@pytest.mark.parametrize("line", ["penny:", "penny:!$y$j9T$a$b", "penny:$y$j9T$other$b"])
def test_a_password_that_was_removed_locked_or_changed_is_drift(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    asked = {"compare": [], "stamps": [stamp(managed={"passwords": ["penny"]})]}
    shadow(monkeypatch, tmp_path / "shadow", "penny:$y$j9T$a$b")
    write_stamps(asked)
    assert looked()["stamps"]["role"]["changed"] == []
    shadow(monkeypatch, tmp_path / "shadow", line)
    assert looked()["stamps"]["role"]["changed"] == [["passwords", "penny", "has another password"]]
    assert write_stamps({**asked, "compare": ["role"]}) == {"unmended": {"role": []}}, "the salt is another one"
    assert "$y$" not in (Path(agent.FOLDER) / "role.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("line", ["\n", "+\n", "penny\n", "+::::::::\n"])
def test_lines_of_shadow_that_are_no_accounts_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    write(tmp_path / "shadow", f"{line}penny:$y$j9T$a$b:1::::::\n")
    monkeypatch.setattr(agent, "SHADOW", str(tmp_path / "shadow"))
    write_stamps({"compare": [], "stamps": [stamp(managed={"passwords": ["penny"]})]})
    assert looked()["stamps"]["role"]["changed"] == []
    (tmp_path / "shadow").unlink()
    assert looked()["stamps"]["role"]["changed"] == [["passwords", "penny", "has another password"]]


def test_a_change_that_a_role_leaves_says_so_before_it_runs() -> None:
    drop_ins = "/etc/systemd/system/x.service.d/by-hand.conf"
    before: dict[str, dict[str, Any]] = {
        "packages": {"xrdp": "1"},
        "users": {"penny": [1000, 1000, "/home/penny", "/bin/bash", "1000"]},
        "units": {"x.service": ["active", "enabled", "/etc/x", "/own.conf", ""]},
        "watched": {"/usr/bin/python3": ["link", "0777", 0, 0, "python3.11"]},
        "paths": {"/etc/x": ["file", "0644", 0, 0, ""]},
    }
    now: dict[str, dict[str, Any]] = {
        "packages": {"xrdp": "2"},
        "users": {"penny": [1001, 1002, "/home/penny", "/bin/sh", "1000"]},
        "units": {"x.service": ["active", "disabled", "/etc/x", f"/own.conf {drop_ins}", ""]},
        "watched": {"/usr/bin/python3": ["link", "0777", 0, 0, "python3"]},
        "paths": {"/etc/x": ["file", "0600", 0, 0, ""]},
    }
    stays = " (stays as it is)"
    assert [words for _, _, words in differences(before, now)] == [
        f"is version 2, was 1{stays}",
        "mode is 0600, was 0644",
        f"enablement is disabled, was enabled, drop-ins is /own.conf {drop_ins}, was /own.conf{stays}",
        f"id is 1001, was 1000{stays}, group is 1002, was 1000{stays}, shell is /bin/sh, was /bin/bash",
        f"points to python3, pointed to python3.11{stays}",
    ]
    own = {"units": {"x.service": ["active", "enabled", "/etc/x", "", ""]}}
    assert [words for _, _, words in differences({"units": before["units"]}, own)] == [
        "drop-ins is none, was /own.conf"
    ]


def test_stamps_of_roles_that_nobody_asks_for_are_told() -> None:
    write_stamps({"compare": [], "stamps": [stamp("role"), stamp("gone")]})
    assert looked()["leftovers"] == ["gone"]


def test_a_service_that_listens_and_says_nothing_is_not_healthy() -> None:
    assert looked(services=[service(unit=None, health="/")])["health"] == {"box/role": "Connection refused"}


def test_a_damaged_artifact_is_told(tmp_path: Path) -> None:
    write(tmp_path / "file", "text")
    digest = "982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1"
    write(tmp_path / "MANIFEST.sha256", f"{digest}  file\n")
    manifest = str(tmp_path / "MANIFEST.sha256")
    assert looked(manifests=[manifest])["damaged"] == []
    write(tmp_path / "file", "other")
    assert looked(manifests=[manifest])["damaged"] == [manifest]
    assert looked(manifests=[str(tmp_path / "none")])["damaged"] == [str(tmp_path / "none")]


def test_an_answer_is_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    agent.main(b'{"do": "look", "of": "lab/box", "roles": [], "services": [], "manifests": []}')
    assert json.loads(capsys.readouterr().out)["stamps"] == {}


def note(folder: Path, **other: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    noted = {"verdict": "GPU", "why": "figures", "start": "abc", "driver": agent.driver_now()} | other
    (folder / "llama_cpp.json").write_text(json.dumps(noted))


@pytest.fixture
def proofs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(agent, "PROOFS", str(tmp_path / "proofs"))
    return tmp_path / "proofs"


def test_a_verdict_counts_for_its_start_and_its_driver(proofs: Path) -> None:
    assert agent.verdict_of("llama_cpp", "abc") is None
    note(proofs)
    assert agent.verdict_of("llama_cpp", "abc") == {"verdict": "GPU", "why": "figures", "stale": ""}
    assert (agent.verdict_of("llama_cpp", "abd") or {})["stale"] == "it was started again"
    note(proofs, driver="NVRM version: NVIDIA UNIX x86_64 Kernel Module  1.0")
    assert (agent.verdict_of("llama_cpp", "abc") or {})["stale"] == "its driver changed"


@pytest.mark.parametrize("text", ["", "[]", '{"verdict": "GPU"}', "\0"])
def test_a_note_that_is_none_says_nothing(proofs: Path, text: str) -> None:
    note(proofs)
    (proofs / "llama_cpp.json").write_text(text)
    assert agent.verdict_of("llama_cpp", "abc") is None


def test_nvidia_s_driver_is_known_by_its_own_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2025"
    monkeypatch.setattr(agent, "NVIDIA_VERSION", str(tmp_path / "version"))
    assert agent.driver_now() == os.uname().release
    (tmp_path / "version").write_text(f"{line}\nGCC version:  gcc version 14.2.0\n")
    assert agent.driver_now() == line


def test_a_look_tells_verdicts_beside_units(proofs: Path) -> None:
    note(proofs)
    told = looked(services=[service(address="box/llama_cpp")])
    assert told["verdict"]["box/llama_cpp"]["stale"] == "it was started again", "a unit that is not there has no start"
    assert looked()["verdict"] == {}


@pytest.mark.parametrize("state", ["active", "activating", "inactive", "failed", "deactivating", "", None])
def test_one_that_keeps_people_out_is_told(monkeypatch: pytest.MonkeyPatch, state: str | None) -> None:
    there = {} if state is None else {"web-closed.service": {"ActiveState": state}}
    monkeypatch.setattr(agent.System, "units", lambda _: there)
    services = [service(closed_by="web-closed.service"), service(address="box/other")]
    assert looked(services=services)["closed"] == ["box/role"] * (state in ("active", "activating"))


def test_a_connection_that_was_taken_is_a_client_and_one_that_waits_is_none() -> None:
    me = f"/proc/{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not agent._has_client([me], port, agent._CONNECTED)
        with socket.create_connection(("127.0.0.1", port), 60) as client:
            assert not agent._has_client([me], port, agent._CONNECTED)
            taken, _ = server.accept()
            assert agent._has_client([me], port, agent._CONNECTED)
            client.close()
            assert agent._has_client([me], port, agent._CONNECTED), "a client that has given up has asked all the same"
            assert not agent._has_client([me], port, agent._STILL_THERE)
            taken.close()
            assert not agent._has_client([me], port, agent._CONNECTED)


def test_who_listens_on_another_port_has_no_client_on_this_one() -> None:
    me = f"/proc/{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), 60) as client:
        taken, _ = server.accept()
        with taken:
            assert not agent._has_client([me], client.getsockname()[1], agent._CONNECTED), (
                "it has a connection, and does not listen"
            )


def test_processor_time_grows_with_work() -> None:
    me = [f"/proc/{os.getpid()}"]
    before, began = agent._processor_s(me), time.process_time()
    while time.process_time() - began < 0.2:
        sum(range(1000))
    assert agent._processor_s(me) - before >= 0.15
    assert agent._processor_s(["/proc/0"]) == 0.0, "it has ended"


def test_both_sides_call_it_busy() -> None:
    assert agent.BUSY == BUSY
    assert agent.ASLEEP == ASLEEP


@pytest.fixture
def keeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the keeper of ``engine.service`` notes that it is asleep; beside it lies the folder with its starts."""
    monkeypatch.setattr(agent, "KEEPER_RUN", f"{tmp_path}/run-{{}}")
    monkeypatch.setattr(agent, "KEEPER_STATE", f"{tmp_path}/state-{{}}")
    folder = tmp_path / "run-engine"
    folder.mkdir()
    (tmp_path / "state-engine").mkdir()
    return folder


@pytest.mark.parametrize(("note", "state", "said"), CASES["a unit is asleep that has ended and is noted so"])
def test_a_unit_is_asleep_that_has_ended_and_is_noted_so(
    keeper: Path, monkeypatch: pytest.MonkeyPatch, note: str | None, state: str, said: str
) -> None:
    """Also one that is on its way there, or waits for its turn; one that its container's start left is about to be."""
    if note is not None:
        (keeper / "asleep").write_text(note)
    monkeypatch.setattr(agent, "_started", lambda *_: None)
    monkeypatch.setattr(agent, "_output", lambda _: f"LoadState=loaded\nActiveState={state}\n")
    assert agent.System([], ["engine.service"]).units()["engine.service"]["ActiveState"] == said


def test_one_that_is_asleep_is_as_it_was_when_it_was_proved() -> None:
    kinds = {"units": ["x.service"]}
    before = state_of(kinds, "", {"x.service": unit(MainPID="1", ExecMainStartTimestampMonotonic="0")}, {})
    now = state_of(kinds, "", {"x.service": unit(ActiveState="asleep")}, {})
    assert differences(before, now) == []
    disabled = state_of(kinds, "", {"x.service": unit(ActiveState="asleep", UnitFileState="disabled")}, {})
    assert "enablement is disabled" in differences(before, disabled)[0][2]


def test_of_one_that_rests_its_slowest_start_is_told(keeper: Path, folder: Path) -> None:
    assert agent.rest_of("role", "engine.service", "active") is None
    (keeper.parent / "state-engine/starts").write_text("3.5 12.0 4.1")
    assert agent.rest_of("role", "engine.service", "active") == {"since": 0, "proved": 0, "start_s": 12.0}
    (keeper / "asleep").write_text('{"since": 7}')
    folder.mkdir(parents=True)
    write(folder / "role.json", "{}")
    proved = int((folder / "role.json").stat().st_mtime)
    assert agent.rest_of("role", "engine.service", "asleep") == {"since": 7, "proved": proved, "start_s": 12.0}
    (keeper.parent / "state-engine/starts").write_text("soon")
    assert agent.rest_of("role", "engine.service", "asleep") == {"since": 7, "proved": proved, "start_s": 0.0}


def test_of_a_systemd_that_does_not_answer_yet_no_unit_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "_started", lambda *_: None)
    answers = {"nothing": "", "all": "LoadState=loaded\nActiveState=active\n\nLoadState=not-found\n"}
    system = agent.System([{"units": ["a.service"], "helpers": ["b.service"]}], [])
    monkeypatch.setattr(agent, "_output", lambda _: answers["nothing"])
    assert system.units() == {}
    monkeypatch.setattr(agent, "_output", lambda _: answers["all"])
    assert list(system.units()) == ["a.service"]
