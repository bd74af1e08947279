"""What only a real Incus can tell of changes in place, snapshots and copies: its traps, and what it says."""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from provisioner.hosts.incus import IncusProvider
from provisioner.hosts.incus import api as client_module
from provisioner.hosts.incus.api import WireError
from provisioner.values.errors import ProviderError
from provisioner.values.state import Device, Instance, Status
from tests.processes import completed, free_port
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.incus

MIB, GIB = 2**20, 2**30


def incus(*arguments: str) -> str:
    """The output of Incus' own command."""
    done = completed(("incus", *arguments), timeout_s=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def query(path: str) -> Any:
    return json.loads(incus("query", path))


def mount(volume: str, *, readonly: bool = True) -> Device:
    return Device("data", "volume", {"volume": volume, "path": "/srv/data", "readonly": str(readonly).lower()})


def publication(listen: str) -> Device:
    return Device("web", "publish", {"listen": listen, "connect": "127.0.0.1:80"})


class Box:
    """The lab's Incus and a running container on it."""

    def __init__(self, provider: IncusProvider, lab: str) -> None:
        self.provider = provider
        self.lab = lab
        self.port = free_port()
        self.one = Instance(f"{lab}-one", "box", lab, "debian/12")

    def start(self, **attributes: Any) -> Instance:
        """The container, ready, with these attributes."""
        self.one = replace(self.one, **attributes)
        self.provider.create(self.one)
        self.provider.start(self.one)
        return self.provider.wait_until_ready(self.one)

    def sh(self, script: str) -> str:
        """The output of a shell in the container."""
        done = self.provider.execute(self.one.name, ["sh", "-c", script])
        assert done.returncode == 0, done.stderr
        return done.stdout.decode().strip()

    def volume(self, name: str) -> str:
        """A volume whose file ``name`` holds ``name``."""
        volume = f"{self.lab}-{name}"
        self.provider.volumes.create(volume, "digest")
        writer = Instance(f"{self.lab}-w", "box", self.lab, "debian/12", devices=(mount(volume, readonly=False),))
        self.provider.create(writer)
        self.provider.start(writer)
        self.provider.push(writer.name, name.encode(), f"/srv/data/{name}", mode=0o644)
        self.provider.delete(writer)
        return volume

    def seen(self) -> Instance:
        """The container as it is observed."""
        found = self.provider.observe(self.lab).instance(self.one.name)
        assert found is not None
        return found


@pytest.fixture
def box(incus_lab: object) -> Iterator[Box]:
    assert incus_lab
    box = Box(IncusProvider("box"), f"t{secrets.token_hex(4)}")
    yield box
    for one in box.provider.observe(box.lab).instances:
        box.provider.delete(one)
    for name in ("first", "second"):
        box.provider.volumes.delete(f"{box.lab}-{name}")


def test_a_volume_is_exchanged_under_a_service_that_has_a_file_of_it_open(box: Box) -> None:
    first, second = box.volume("first"), box.volume("second")
    one = box.start(devices=(mount(first),))
    box.sh("systemd-run --unit=reader -p ProtectSystem=strict tail -f /srv/data/first")
    wait_until(lambda: "/first" in box.sh("ls -l /proc/$(systemctl show -P MainPID reader)/fd"))
    wanted = replace(one, devices=(mount(second),))
    assert box.provider.update(wanted) == wanted
    assert box.sh("cat /srv/data/*; systemctl is-active reader").split() == ["second" + "active"]
    assert box.sh("ls /proc/$(systemctl show -P MainPID reader)/root/srv/data") == "second", "also in its own mounts"


TELL = """
import socket
server = socket.create_server(("127.0.0.2", 80))
while True:
    client, _ = server.accept()
    with client:
        client.sendall(client.recv(200))
"""


@pytest.mark.guarantee("keys")
def test_who_comes_through_a_port_of_the_host_is_said_by_the_host_alone(box: Box) -> None:
    """A limit for each address, and what is written of one, means who came; a client's own words come behind."""
    listen = f"0.0.0.0:{box.port}"
    told = {"listen": listen, "connect": "127.0.0.2:80", "proxy_protocol": "true"}
    one = box.start(devices=(Device("web", "publish", told),))
    assert box.seen().devices == one.devices, "it is read back as it was wanted"
    box.provider.push(one.name, TELL.encode(), "/root/tell.py", mode=0o644)
    box.sh("systemd-run --unit=tell python3 /root/tell.py")
    wait_until(lambda: "127.0.0.2:80" in box.sh("ss -Hltn"))
    forged = b"PROXY TCP4 198.51.100.7 10.0.0.2 40000 80\r\n"
    for source in ("127.0.0.1", "127.0.7.7"):
        with socket.create_connection(("127.0.0.1", box.port), PATIENCE_S, (source, 0)) as client:
            client.sendall(forged)
            first, rest = client.recv(400).split(b"\r\n", 1)
        assert first.split()[:3] == [b"PROXY", b"TCP4", source.encode()]
        assert rest in (b"", forged)


def test_a_port_of_the_host_is_opened_and_closed(box: Box) -> None:
    one = box.start()
    box.sh("systemd-run --unit=web python3 -m http.server 80")

    def answers() -> bool:
        with socket.socket() as client:
            client.settimeout(5)
            return client.connect_ex(("127.0.0.1", box.port)) == 0

    assert not answers()
    box.provider.update(replace(one, devices=(publication(f"127.0.0.1:{box.port}"),)))
    wait_until(answers)
    box.provider.update(one)
    assert not answers()


def test_limits_count_at_once_and_the_disk_grows(box: Box) -> None:
    one = box.start(memory=GIB, disk=GIB)
    said: list[str] = []
    box.provider.on_progress = lambda _name, message: said.append(message)
    shown = box.sh("df -P -T -k / | tail -1").split()
    assert (shown[1], int(shown[2]) * 1024 > 2 * GIB) == ("btrfs", True), "df shows the pool and no quota"
    box.provider.update(replace(one, cpu=1, memory=GIB // 2, disk=3 * GIB))
    assert said == [], "that it shows nothing of the growth is no fault"
    assert box.sh("grep MemTotal /proc/meminfo").split()[1] == str(GIB // 2 // 1024)
    wait_until(lambda: box.sh("nproc") == "1")
    box.sh("head -c 1500000000 /dev/zero > /root/large && sync && rm /root/large")
    box.provider.update(replace(one, memory=None, disk=None))
    assert "root" not in query(f"/1.0/instances/{one.name}")["devices"]
    box.sh("head -c 1500000000 /dev/zero > /root/large && sync && rm /root/large")


def test_processors_count_each_time_they_are_changed_beside_another_limit(box: Box) -> None:
    """Incus spreads them by what it has written down, which may still be the old number."""
    one = box.start(memory=GIB)
    for cpu, memory in ((1, 2), (2, 1)) * 3:
        box.provider.update(replace(one, cpu=cpu, memory=memory * GIB))
        wait_until(lambda cpu=cpu: box.sh("nproc") == str(cpu))  # type: ignore[misc]


def test_nesting_counts_from_the_next_start(box: Box) -> None:
    one = box.start()
    wanted = replace(one, nesting=True)
    assert box.provider.update(wanted) == wanted
    assert query(f"/1.0/instances/{one.name}")["config"]["security.nesting"] == "true"


@pytest.mark.parametrize("runs", [True, False], ids=["running", "stopped"])
def test_a_disk_that_is_smaller_than_what_is_in_it_is_refused_and_the_container_lives(box: Box, runs: bool) -> None:
    """Told so by btrfs itself it could neither write nor be given its old size again, not even after a deletion."""
    # After deletions btrfs now and then says of its quotas that they are "inconsistent", and then keeps none of them.
    pool = Path(box.provider.endpoint.address).parent / "storage-pools" / box.provider.pool
    subprocess.run(("btrfs", "quota", "rescan", "-w", str(pool)), check=True, capture_output=True, timeout=300)
    one = box.start(disk=2 * GIB)
    box.sh("head -c 600000000 /dev/urandom > /root/large; sync")
    if not runs:
        box.provider.stop(one)
    with pytest.raises(ProviderError, match="more on its disk than") as caught:
        box.provider.update(replace(one, disk=512 * MIB))
    assert "larger `disk`" in caught.value.resolution
    assert box.seen() == one
    assert len(box.provider.observe(box.lab).instances) == 1, "the trial is gone"
    box.provider.start(one)
    box.sh("head -c 600000000 /dev/urandom > /root/more; sync; rm /root/*")
    wanted = replace(one, disk=GIB)
    assert box.provider.update(wanted) == wanted
    box.sh("echo x > /root/x; sync")


def test_memory_that_is_in_use_cannot_be_taken_and_nothing_else_is_changed(box: Box) -> None:
    """Incus changes the devices first, fails, and forgets that it did."""
    first, second = box.volume("first"), box.volume("second")
    one = box.start(memory=GIB // 2, devices=(mount(first),))
    box.sh("systemd-run --unit=hog python3 -c 'import time; b = bytearray(250 << 20); print(len(b)); time.sleep(600)'")
    wait_until(lambda: int(box.sh("free -m | awk '/Mem:/ {print $3}'")) > 240)
    wanted = replace(one, memory=128 * MIB, devices=(mount(second), publication(f"127.0.0.1:{box.port}")))
    with pytest.raises(ProviderError, match="Unable to change container") as caught:
        box.provider.update(wanted)
    assert "It uses more than that now" in caught.value.resolution
    assert box.seen() == one
    assert box.sh("ls /srv/data; systemctl is-active hog").split() == ["first", "active"]
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", box.port))


def test_a_device_that_fails_takes_no_other_with_it(box: Box) -> None:
    """Incus unplugs what is to go before it plugs what is to come, and leaves it unplugged when that fails."""
    first = box.volume("first")
    one = box.start(memory=GIB // 2, disk=GIB, devices=(mount(first),))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", box.port))
        taken.listen()
        wanted = replace(one, memory=GIB, disk=2 * GIB, devices=(publication(f"127.0.0.1:{box.port}"),))
        with pytest.raises(ProviderError, match="Unable to change container"):
            box.provider.update(wanted)
    assert box.seen() == one
    assert box.sh("ls /srv/data") == "first"
    assert box.sh("grep MemTotal /proc/meminfo").split()[1] == str(GIB // 2 // 1024)


def test_what_a_user_added_is_kept_also_while_we_change_it(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    one = box.start()
    incus("config", "device", "add", one.name, "fuse", "unix-char", "path=/dev/fuse")
    incus("config", "device", "override", one.name, "eth0", "host_name=")
    incus("config", "set", one.name, "user.theirs=kept", "boot.autostart=true")
    client = box.provider.client
    tagged = client.get_tagged

    def late(*path: str) -> tuple[Any, str]:
        found = tagged(*path)
        monkeypatch.undo()  # once
        incus("config", "set", one.name, "user.meanwhile=kept")
        return found

    monkeypatch.setattr(client, "get_tagged", late)
    wanted = replace(one, cpu=1, disk=4 * GIB)
    assert box.provider.update(wanted) == wanted
    found = query(f"/1.0/instances/{one.name}")
    assert {"fuse", "eth0", "root"} == set(found["devices"])
    keys = ("user.theirs", "user.meanwhile", "boot.autostart", "user.provisioner.lab")
    assert [found["config"][key] for key in keys] == ["kept", "kept", "true", box.lab]


def test_what_is_just_starting_or_stopping_is_observed_with_its_mark_and_its_snapshots(box: Box) -> None:
    one = box.start()
    box.provider.snapshots.take(one, "a")

    def restart() -> None:
        for _ in range(5):
            box.provider.stop(one, timeout_s=1)
            box.provider.start(one)

    with ThreadPoolExecutor(1) as pool:
        restarts = pool.submit(restart)
        looks = 0
        while not restarts.done():
            seen = box.seen()
            assert (seen, [kept.name for kept in seen.snapshots]) == (one, ["a"])
            looks += 1
        restarts.result(PATIENCE_S)
    assert looks > 10


def test_a_start_that_lacks_a_volume_is_an_error(box: Box) -> None:
    """Incus' code for it is that of a missing thing, which an ended operation of which nothing is known has too."""
    volume = box.volume("first")
    one = replace(box.one, devices=(mount(volume),))
    box.provider.create(one)
    box.provider.snapshots.take(one, "a")
    box.provider.update(replace(one, devices=()))
    incus("storage", "volume", "delete", box.provider.pool, volume)
    with pytest.raises(ProviderError, match="back to snapshot a") as caught:
        box.provider.snapshots.rollback(one, "a")
    assert f"volume {volume}, which is no longer there" in caught.value.details
    incus("snapshot", "restore", one.name, "a")
    with pytest.raises(ProviderError, match="Unable to start container"):
        box.provider.start(one)


def test_a_snapshot_does_not_expire_and_is_not_taken_by_a_schedule_of_ours(box: Box) -> None:
    one = box.start()
    incus("config", "set", one.name, "snapshots.expiry=1M")
    box.provider.snapshots.take(one, "a")
    found = query(f"/1.0/instances/{one.name}/snapshots/a")
    assert found["expires_at"].startswith("0001-01-01")
    assert not any(key.startswith("snapshots.") for key in query("/1.0/profiles/default")["config"])


def test_a_snapshot_from_before_the_mark_is_refused(box: Box) -> None:
    one = box.start()
    incus("config", "unset", one.name, "user.provisioner.lab")
    incus("snapshot", "create", one.name, "before")
    incus("config", "set", one.name, f"user.provisioner.lab={box.lab}")
    with pytest.raises(ProviderError, match="back to snapshot before") as caught:
        box.provider.snapshots.rollback(one, "before")
    assert "mark" in caught.value.details
    assert box.seen().status is Status.RUNNING


def test_what_is_written_outside_of_a_snapshot_is_named(box: Box) -> None:
    volume = box.volume("first")
    one = box.start(devices=(mount(volume, readonly=False),))
    assert volume in box.provider.snapshots.obstacle(one)
    assert "/srv/data" in box.provider.snapshots.obstacle(one)
    box.provider.update(replace(one, devices=(mount(volume),)))
    assert box.provider.snapshots.obstacle(one) == ""


def test_a_clone_has_an_identity_of_its_own(box: Box) -> None:
    one = box.start(devices=(publication(f"127.0.0.1:{box.port}"),))
    copy = box.provider.clone(one, f"{box.lab}-two")
    box.provider.start(copy)
    ready = box.provider.wait_until_ready(copy)
    found = [query(f"/1.0/instances/{name}") for name in (one.name, copy.name)]
    for key in ("volatile.eth0.hwaddr", "volatile.uuid"):
        assert found[0]["config"][key] != found[1]["config"][key]
    ids = [box.provider.execute(name, ["cat", "/etc/machine-id"]).stdout for name in (one.name, copy.name)]
    assert ids[0] != ids[1]
    assert len(ids[1]) == len(ids[0])
    assert box.provider.execute(copy.name, ["hostname"]).stdout.decode().strip() == copy.name
    assert ready.address != one.address


@pytest.fixture
def plain(box: Box) -> Iterator[Box]:
    """The same on a pool of plain folders, whose snapshots are copies."""
    usual, pool = box.provider, f"t{secrets.token_hex(4)}"
    incus("storage", "create", pool, "dir")
    try:
        incus("profile", "copy", "default", pool)
        incus("profile", "device", "set", pool, "root", f"pool={pool}")
        box.provider = IncusProvider("box", profile=pool)
        yield box
    finally:
        for one in box.provider.observe(box.lab).instances:
            box.provider.delete(one)
        box.provider = usual
        incus("profile", "delete", pool)
        incus("storage", "delete", pool)


@pytest.mark.slow
def test_a_pool_of_plain_folders_keeps_newer_snapshots_too(plain: Box) -> None:
    one = plain.start()
    for word in ("first", "second"):
        plain.sh(f"echo {word} > /root/word")
        plain.provider.snapshots.take(one, word)
    back = plain.provider.snapshots.rollback(one, "first")
    assert [kept.name for kept in back.snapshots] == ["first", "second"]
    plain.provider.wait_until_ready(one)
    assert plain.sh("cat /root/word") == "first"
    plain.provider.snapshots.rollback(one, "second")
    plain.provider.wait_until_ready(one)
    assert plain.sh("cat /root/word") == "second"
    copy = plain.provider.clone(one, f"{plain.lab}-two")
    assert copy == replace(one, name=copy.name)


def exec_body(*words: str) -> dict[str, Any]:
    """An operation of Incus that lasts as long as the command."""
    return {"command": list(words), "environment": {}, "wait-for-websocket": False, "interactive": False}


@pytest.mark.parametrize("is_bare", [False, True])
def test_what_takes_longer_than_one_request_waits_is_waited_for(
    box: Box, monkeypatch: pytest.MonkeyPatch, is_bare: bool
) -> None:
    """Incus 6.0 ends such a request with an error, "context deadline exceeded", as if the operation had failed."""
    box.start()
    monkeypatch.setattr(client_module, "_WAIT_S", 1)
    client = client_module.Client(box.provider.endpoint)
    if is_bare:
        monkeypatch.setattr(client, "_request", client._bare_request)
    before = time.monotonic()
    client.change("post", "instances", box.one.name, "exec", body=exec_body("sleep", "4"))
    assert time.monotonic() - before > 3
    with pytest.raises(WireError, match="not found"):
        client.change("post", "instances", box.one.name, "exec", body=exec_body("/no/such/command"))
