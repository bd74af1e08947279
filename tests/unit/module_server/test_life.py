"""When a server begins and ends, whom it answers, and that nothing of it is left."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from provisioner.inside.module_server import handing
from provisioner.inside.module_server.handing import stop_command
from tests.module_payloads import PYTHON, payload, written
from tests.module_servers import Box, has_ended
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="a server is root's")

NOBODY = 65534
CANARY = "canary-6f1d2c"
END = "AnsibleModule(argument_spec={}).exit_json(changed=False)\n"


@pytest.fixture(scope="module")
def ping() -> bytes:
    return payload("ping")


def sleeper(folder: Path, name: str) -> tuple[bytes, Path]:
    """A module that says its process's number in a file, and then takes a minute."""
    mark = folder / "number"
    lines = (
        "import os, time, pathlib\n"
        f"pathlib.Path('{mark}.new').write_text(str(os.getpid()))\nos.rename('{mark}.new', '{mark}')\n"
        f"time.sleep(60)\n{END}"
    )
    return payload(written(folder, name, lines)), mark


def client_of(path: str) -> int:
    """The process that runs the client's program for the server of this name."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if words[0] == PYTHON.encode() and path.encode() in words:
            return int(folder.name)
    raise AssertionError("there is no client")


def servers_of(box: Box) -> list[str]:
    """The open sockets below the box's folder, by the kernel's own list."""
    lines = Path("/proc/net/unix").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if str(box.root) in line and "00010000" in line]


def test_the_first_payload_starts_a_server_and_the_next_ones_use_it(box: Box, ping: bytes) -> None:
    for _ in range(3):
        assert box.served(ping)[0] == 0
    assert box.counted.served == 3
    assert box.counted.usual == {}
    assert sum(word == handing.STARTED for word, _ in box.notes.lines()) == 1
    assert box.root.stat().st_mode & 0o777 == 0o700
    assert box.sockets[0].stat().st_mode & 0o777 == 0o700


def test_two_runs_at_once_share_one_server(box: Box, ping: bytes) -> None:
    runs = [replace(box, name=f"web-{number}") for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda run: run.offered(ping), runs * 2))
    assert len(set(results)) == 1
    assert box.counted.served == 8
    assert len(servers_of(box)) == 1


def test_only_one_at_a_time_starts_a_server(box: Box, ping: bytes) -> None:
    box.root.mkdir(0o700)
    folder = os.open(box.root, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    waits = f":{os.fstat(folder).st_ino} "
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(box.served, ping)
        wait_until(lambda: any("->" in line and waits in line for line in locks()))
        assert box.sockets == []
        os.close(folder)
        assert starting.result(timeout=60)[0] == 0


def locks() -> list[str]:
    """The locks of all files, and who waits for them."""
    return Path("/proc/locks").read_text(encoding="utf-8").splitlines()


def test_it_ends_when_it_is_told_to_and_runs_its_children_to_their_end(box: Box, tmp_path: Path) -> None:
    gate, mark = tmp_path / "gate", tmp_path / "begun"
    lines = (
        "import os, time, pathlib\n"
        f"pathlib.Path({str(mark)!r}).touch()\n"
        f"while not os.path.exists({str(gate)!r}):\n    time.sleep(0.02)\n{END}"
    )
    content = payload(written(tmp_path, "waits", lines))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(box.offered, content)
        wait_until(mark.exists)
        pid = box.server()
        assert box.run(stop_command(box.python, str(box.root)), b"")[0] == 0
        wait_until(lambda: not box.root.exists())
        assert not has_ended(pid)()
        gate.touch()
        result = running.result(timeout=60)
    assert result is not None
    assert result[0] == 0
    wait_until(has_ended(pid))


def test_it_ends_by_itself_when_no_task_comes(box: Box, ping: bytes) -> None:
    short = replace(box, idle_s=0.4)
    short.served(ping)
    pid = short.server()
    wait_until(has_ended(pid))
    assert not box.root.exists()


def test_a_killed_server_takes_its_child_along_and_the_next_task_but_one_is_served(
    box: Box, ping: bytes, tmp_path: Path
) -> None:
    content, mark = sleeper(tmp_path, "sleeps_for_a_dead_server")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(box.offered, content)
        wait_until(mark.exists)
        os.kill(box.server(), signal.SIGKILL)
        result = running.result(timeout=60)
    assert result is not None
    assert result[0] == 137
    assert b"module server was killed" in result[2]
    wait_until(has_ended(int(mark.read_text())))
    first = box.offered(ping)
    assert first is not None
    assert first[0] == 0
    assert box.counted.usual == {"no server": 1}
    box.served(ping)


def test_a_killed_client_takes_its_module_along(box: Box, ping: bytes, tmp_path: Path) -> None:
    content, mark = sleeper(tmp_path, "sleeps_for_a_dead_client")
    box.served(ping)
    path = str(box.sockets[0])
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(box.offered, content)
        wait_until(mark.exists)
        os.kill(client_of(path), signal.SIGKILL)
        running.result(timeout=60)
    wait_until(has_ended(int(mark.read_text())))
    box.served(ping)


def test_a_client_that_says_nothing_keeps_nobody_waiting(box: Box, ping: bytes) -> None:
    box.served(ping)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.connect(str(box.sockets[0]))
        box.served(ping)


@pytest.mark.parametrize("request_", [b"", b"\n", b"run\nodd", b"nonsense", b"run\n" + b"x" * 32, b"x" * 100_000])
def test_what_is_no_request_is_refused(box: Box, ping: bytes, request_: bytes) -> None:
    box.served(ping)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(str(box.sockets[0]))
        client.settimeout(60)
        client.send(request_)
        assert client.recv(100) != b"ok"
    box.served(ping)


AS_NOBODY = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
try:
    client.connect(sys.argv[1])
    client.send(b"stop\\n")
    print("answer", client.recv(100))
except OSError as error:
    print(type(error).__name__)
"""


def test_another_user_is_refused(box: Box, ping: bytes) -> None:
    box.served(ping)
    ask = ["/usr/bin/python3", "-c", AS_NOBODY, str(box.sockets[0])]
    assert subprocess.check_output(ask, timeout=60) == b"PermissionError\n"
    box.folder.chmod(0o755)
    box.root.chmod(0o755)  # even where somebody has opened what was closed
    box.sockets[0].chmod(0o777)
    answer = subprocess.check_output(ask, timeout=60)
    assert answer in {b"answer b''\n", b"ConnectionResetError\n", b"BrokenPipeError\n"}
    assert not has_ended(box.server())()
    box.root.chmod(0o700)
    box.served(ping)


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_folder_that_others_may_enter_is_not_used(box: Box, ping: bytes, mode: int) -> None:
    box.root.mkdir()
    box.root.chmod(mode)
    assert box.offered(ping) is None
    (reason,) = box.counted.usual
    assert "root's alone" in reason
    box.root.rmdir()


def test_a_client_asks_no_server_in_a_folder_that_others_may_enter(box: Box, ping: bytes) -> None:
    box.served(ping)
    box.root.chmod(0o755)
    result = box.offered(ping)
    assert result is not None
    assert result[0] == 0
    assert box.counted.usual == {"the server's folder is not root's alone": 1}
    box.root.chmod(0o700)


def test_a_folder_of_another_user_or_a_link_is_not_used(box: Box, ping: bytes) -> None:
    box.root.mkdir(0o700)
    os.chown(box.root, NOBODY, NOBODY)
    assert box.offered(ping) is None
    box.root.rmdir()
    (box.folder / "elsewhere").mkdir(0o700)
    box.root.symlink_to(box.folder / "elsewhere")
    assert box.offered(ping) is None
    box.root.unlink()
    assert list((box.folder / "elsewhere").iterdir()) == []
    assert servers_of(box) == []


def memory_of(pid: int) -> bytes:
    """All that a process can write to."""
    parts = []
    with Path(f"/proc/{pid}/mem").open("rb") as memory:
        for line in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines():
            words = line.split()
            if "w" in words[1] and "r" in words[1]:
                start, end = (int(part, 16) for part in words[0].split("-"))
                memory.seek(start)
                parts.append(memory.read(end - start))
    return b"".join(parts)


def test_no_secret_is_left_in_the_servers_memory(box: Box) -> None:
    content = payload("command", {"argv": ["echo", CANARY]})
    result = replace(box, environment={"SECRET_OF_ENVIRONMENT": CANARY[::-1]}).served(content)
    assert CANARY.encode() in result[1]
    replace(box, environment={"SECRET_OF_ENVIRONMENT": CANARY[::-1]}).served(content)
    memory = memory_of(box.server())
    assert b"ansible.module_utils.basic" in memory, "this search finds what is there"
    assert CANARY.encode() not in memory
    assert CANARY[::-1].encode() not in memory


def test_nobody_can_look_into_a_server_or_its_children(box: Box, tmp_path: Path) -> None:
    lines = f"import ctypes\nprint('dumpable', ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))\n{END}"
    assert b"dumpable 0" in box.served(payload(written(tmp_path, "dumpable", lines)))[1]


@pytest.fixture
def own_python(box: Box) -> Box:
    """A Python that can be replaced."""
    python = box.folder / "python3"
    shutil.copy2("/usr/bin/python3", python)
    return replace(box, python=str(python))


def test_where_python_was_replaced_a_new_server_begins(own_python: Box) -> None:
    content = payload("ping", python=own_python.python)
    own_python.served(content)
    old = own_python.server()
    new = own_python.folder / "new"
    shutil.copy2("/usr/bin/python3", new)
    new.rename(own_python.python)
    assert own_python.offered(content) is not None
    assert own_python.counted.usual == {handing.STALE: 1}
    wait_until(has_ended(old))
    own_python.served(content)
    assert own_python.server() != old
    own_python.stop()


def test_where_a_package_was_installed_a_new_server_begins(box: Box, ping: bytes) -> None:
    home = replace(box, environment={"HOME": str(box.folder)})
    home.served(ping)
    old = home.server()
    code = "import site; print(site.getusersitepackages())"
    packages = home.run([PYTHON, "-c", code], b"")[1].decode().strip()
    assert packages.startswith(str(box.folder))
    Path(packages).mkdir(parents=True)
    home.offered(ping)
    assert home.counted.usual == {handing.STALE: 1}
    wait_until(has_ended(old))
    home.served(ping)


@pytest.fixture
def full_disk(box: Box) -> Iterator[Path]:
    """A file system on which only small files find room."""
    place = box.folder / "full"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "none", place], check=True, timeout=60)
    subprocess.run(
        ["dd", "if=/dev/zero", f"of={place}/filling", "bs=4k", "count=12"], check=True, timeout=60, capture_output=True
    )
    yield place
    subprocess.run(["umount", place], check=True, timeout=60)


def test_where_no_file_can_be_made_all_goes_the_usual_way(box: Box, ping: bytes) -> None:
    box.root.mkdir()
    options = "nr_inodes=1,mode=0700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", box.root], check=True, timeout=60)
    try:
        assert box.offered(ping) is None
        (reason,) = box.counted.usual
        assert "No space left on device" in reason
    finally:
        subprocess.run(["umount", box.root], check=True, timeout=60)
        box.root.rmdir()
    assert servers_of(box) == []


def test_a_full_disk_fails_a_module_as_it_always_did(box: Box, ping: bytes, full_disk: Path) -> None:
    full = replace(box, environment={"TMPDIR": str(full_disk)})
    usual, served = full.usual(ping), full.served(ping)
    assert served[0] == usual[0] == 1
    assert b"No space left on device" in served[2]
    assert usual[2].splitlines()[-1] == served[2].splitlines()[-1]
    assert [path.name for path in full_disk.iterdir()] == ["filling"]
    box.served(ping)


@pytest.mark.parametrize("variable", ["LANG", "LC_ALL", "PYTHONPATH", "LD_PRELOAD"])
def test_a_process_that_differs_from_its_very_start_goes_the_usual_way(box: Box, ping: bytes, variable: str) -> None:
    box.served(ping)
    value = "/usr/lib/python3/dist-packages" if variable == "PYTHONPATH" else "C" if variable != "LD_PRELOAD" else ""
    result = replace(box, environment={variable: value}).offered(ping)
    assert result is not None
    assert (result[0], result[2]) == (0, b"")
    assert box.counted.usual == {"another environment": 1}


def test_a_process_with_other_rights_goes_the_usual_way(box: Box, ping: bytes) -> None:
    box.served(ping)
    command = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-all"]
    limited = replace(box)
    run = limited.run

    def with_fewer(argv: list[str], stdin: bytes) -> tuple[int, bytes, bytes]:
        return run([*command, *argv], stdin)

    server = handing.ModuleServer(with_fewer, box.notes, root=str(box.root))  # type: ignore[arg-type]
    result = handing.hand_over(box.command, ping, version="2.19.1", server=server)
    assert result is not None
    assert result[0] == 0
    assert box.counted.usual == {"other rights, or another place": 1}


def test_another_library_goes_the_usual_way(box: Box, ping: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    box.served(ping)
    original = handing.library_of

    def changed(archive: bytes) -> handing.Library:
        library = original(archive)
        digests = {**library.digests, "ansible/module_utils/basic.py": b"x" * 32}
        return handing.Library(archive, digests)

    monkeypatch.setattr(handing, "library_of", changed)
    result = box.offered(ping)
    assert result is not None
    assert result[0] == 0
    assert box.counted.usual == {"its library is another one": 1}


def test_a_server_that_cannot_begin_says_why(box: Box, ping: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    original = handing.library_of

    def broken(archive: bytes) -> handing.Library:
        library = original(archive)
        return handing.Library(archive, {name: b"x" * 32 for name in library.digests if "basic" not in name})

    monkeypatch.setattr(handing, "library_of", broken)
    for _ in range(handing.MOST_STARTS + 2):
        assert box.offered(ping) is None
    reasons = box.counted.usual
    assert sum(reasons.values()) == handing.MOST_STARTS + 2
    assert any("basic" in reason for reason in reasons)
    assert box.sockets == []
    assert servers_of(box) == []


def test_a_stale_socket_is_no_hindrance(box: Box, ping: bytes) -> None:
    box.served(ping)
    pid = box.server()
    os.kill(pid, signal.SIGKILL)
    wait_until(has_ended(pid))
    assert len(box.sockets) == 1
    fresh = replace(box, name="another-run")
    fresh.served(ping)
    assert box.server() != pid
