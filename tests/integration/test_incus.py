"""What only a real Incus can tell: kernel-side facts, its traps, and its words when something fails."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from provisioner.hosts.incus import IncusProvider
from provisioner.values.errors import ProviderError, ReadyTimeoutError
from provisioner.values.state import Device, Instance
from tests.lab.incus import LAB, hold_to_limits
from tests.processes import completed

TIMEOUT_S = 300
pytestmark = pytest.mark.incus

NOBODY = 65534
PATIENCE_S = 20.0
"""In which a system that has started is called ready, on a machine that is busy."""


def incus(*arguments: str, check: bool = True) -> str:
    """The output of Incus' own command."""
    done = completed(("incus", *arguments), timeout_s=TIMEOUT_S)
    assert not check or done.returncode == 0, done.stderr
    return done.stdout


def query(path: str) -> Any:
    return json.loads(incus("query", path))


@pytest.fixture(scope="module")
def provider(incus_lab: object) -> IncusProvider:
    """The lab's Incus, which ``incus_lab`` has brought up and named in the environment."""
    assert incus_lab
    found = IncusProvider("box")
    found.check_available()
    return found


@pytest.fixture
def lab(provider: IncusProvider) -> Iterator[str]:
    """The name of a lab of which nothing is left afterwards."""
    name = f"t{secrets.token_hex(4)}"
    yield name
    for one in provider.observe(name).instances:
        provider.delete(one)


@pytest.fixture(scope="module")
def running(provider: IncusProvider) -> Iterator[Instance]:
    """A running container for tests that change nothing in it."""
    lab = f"t{secrets.token_hex(4)}"
    one = Instance(f"{lab}-shared", "box", lab, "debian/12", memory=2**28, disk=2**30)
    provider.create(one)
    provider.start(one)
    yield provider.wait_until_ready(one)
    provider.delete(one)


def instance(lab: str, **attributes: Any) -> Instance:
    return Instance(f"{lab}-one", "box", lab, **{"image": "debian/12", **attributes})


def test_containers_are_unprivileged_and_limited(provider: IncusProvider, running: Instance) -> None:
    uid_map = provider.execute(running.name, ["cat", "/proc/self/uid_map"]).stdout.split()
    assert uid_map[0] == b"0"
    assert uid_map[1] != b"0"
    memory = provider.execute(running.name, ["grep", "MemTotal", "/proc/meminfo"]).stdout.split()
    assert memory[1] == str(2**28 // 1024).encode()


def test_an_image_built_here_has_the_security_updates_of_the_machine(
    provider: IncusProvider, running: Instance
) -> None:
    fetched = subprocess.run(
        ["apt-get", "update", "--print-uris"], capture_output=True, text=True, check=True, timeout=TIMEOUT_S
    ).stdout
    theirs = set(re.findall(r"'(\S+)/dists/\w+-security/InRelease'", fetched))
    sources = provider.execute(running.name, ["sh", "-c", "cat /etc/apt/sources.list.d/*"]).stdout.decode()
    assert set(re.findall(r"deb (\S+) bookworm-security main", sources)) == theirs


def test_a_command_that_takes_too_long_is_killed_with_its_children(provider: IncusProvider, running: Instance) -> None:
    began = time.monotonic()
    with pytest.raises(ProviderError, match="Unable to run sh in container"):
        provider.execute(running.name, ["sh", "-c", "sleep 54321; true"], timeout_s=1)
    assert time.monotonic() - began < 20
    assert provider.execute(running.name, ["pgrep", "-f", "sleep 54321"]).returncode == 1


def test_a_command_that_closes_its_outputs_is_still_waited_for(provider: IncusProvider, running: Instance) -> None:
    found = provider.execute(running.name, ["sh", "-c", "exec >&- 2>&-; sleep 1; exit 7"])
    assert found.returncode == 7
    with pytest.raises(ProviderError):
        provider.execute(running.name, ["sh", "-c", "exec >&- 2>&-; sleep 54322"], timeout_s=1)


def test_a_daemon_in_the_background_holds_nothing_up(provider: IncusProvider, running: Instance) -> None:
    began = time.monotonic()
    found = provider.execute(running.name, ["sh", "-c", "sleep 30 & echo started"])
    assert found.stdout == b"started\n"
    assert time.monotonic() - began < 20


def test_a_command_that_does_not_read_its_input_ends_well(provider: IncusProvider, running: Instance) -> None:
    assert provider.execute(running.name, ["true"], stdin=bytes(3_000_000)).returncode == 0


def test_no_output_is_lost(provider: IncusProvider, running: Instance) -> None:
    """Asked a hundred times, because pylxd's own ``execute`` loses some now and then over https."""
    wanted = [(b"%d\n" % number, b"e%d\n" % number, number % 5) for number in range(100)]
    given = []
    for number in range(100):
        script = f"echo {number}; echo e{number} >&2; exit {number % 5}"
        found = provider.execute(running.name, ["sh", "-c", script])
        given.append((found.stdout, found.stderr, found.returncode))
    assert given == wanted


def test_a_full_disk_is_named(provider: IncusProvider, running: Instance, tmp_path: Path) -> None:
    hold_to_limits(LAB)
    large = tmp_path / "large"
    with large.open("wb") as file:
        for _ in range(1100):
            file.write(os.urandom(2**20))
    with pytest.raises(ProviderError) as caught:
        provider.push(running.name, large, "/root/large")
    provider.execute(running.name, ["rm", "-f", "/root/large"])
    assert "incus storage" in caught.value.resolution


def test_a_large_file_costs_the_memory_of_a_block(running: Instance, tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(300 * 2**20)
    code = f"""
import re, sys
from pathlib import Path
from provisioner.hosts import provider_for
provider = provider_for("box", "incus")
provider.push({running.name!r}, Path({str(large)!r}), "/root/sparse")
provider.pull({running.name!r}, "/root/sparse", Path({str(large)!r} + ".back"))
provider.execute({running.name!r}, ["rm", "/root/sparse"])
kibibytes = re.search("VmHWM: *(.*) kB", Path("/proc/self/status").read_text().expandtabs())[1]
print(kibibytes, "pylxd" in sys.modules)
"""
    done = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True, timeout=TIMEOUT_S)
    kibibytes, has_pylxd = done.stdout.split()
    assert int(kibibytes) < 60 * 1024
    assert has_pylxd == "False", "commands and files must not cost the import of pylxd"
    assert (tmp_path / "large.back").stat().st_size == large.stat().st_size


def test_a_volume_is_shared_read_only_and_keeps_its_content_over_export_and_import(
    provider: IncusProvider, lab: str, tmp_path: Path
) -> None:
    volume, path = f"{lab}-volume", "/srv/data"

    def user(name: str, *, readonly: bool) -> Instance:
        mount = {"volume": volume, "path": path, "readonly": str(readonly).lower()}
        one = Instance(f"{lab}-{name}", "box", lab, "debian/12", devices=(Device("data", "volume", mount),))
        assert provider.create(one) == one
        provider.start(one)
        return provider.wait_until_ready(one)

    def content(one: Instance) -> bytes:
        script = f"cd {path}; ls -lanR --time-style=+; find . -type f -print0 | sort -z | xargs -0 sha256sum"
        return provider.execute(one.name, ["sh", "-c", script]).stdout

    provider.volumes.create(volume, "digest")
    writer = user("writer", readonly=False)
    made = f"cd {path}; mkdir d; head -c 1000000 /dev/urandom > d/large; echo x > d/x; chmod 640 d/x; ln -s x d/link"
    assert provider.execute(writer.name, ["sh", "-c", made]).returncode == 0
    before = content(writer)
    assert b"drwxr-xr-x" in before.splitlines()[2], "every user may list the volume"
    provider.delete(writer)
    provider.volumes.mark_ready(volume)
    provider.volumes.export(volume, tmp_path / "export")
    provider.volumes.delete(volume)
    provider.volumes.import_from(volume, "digest", tmp_path / "export")
    readers = [user(name, readonly=True) for name in ("first", "second")]
    assert [content(one) for one in readers] == [before, before]
    assert provider.execute(readers[0].name, ["touch", f"{path}/new"]).returncode != 0
    for one in readers:
        provider.delete(one)
    provider.volumes.delete(volume)


@pytest.mark.guarantee("unmanaged")
def test_a_volume_that_is_not_ours_is_never_replaced_or_deleted(provider: IncusProvider, lab: str) -> None:
    pool = provider.pool
    incus("storage", "volume", "create", pool, f"{lab}-theirs")
    try:
        for verb in (provider.volumes.delete, lambda name: provider.volumes.create(name, "digest")):
            with pytest.raises(ProviderError, match="Unable to use volume"):
                verb(f"{lab}-theirs")
        assert query(f"/1.0/storage-pools/{pool}/volumes/custom/{lab}-theirs")["name"] == f"{lab}-theirs"
    finally:
        incus("storage", "volume", "delete", pool, f"{lab}-theirs")


def test_a_container_without_an_address_is_told_from_one_that_hangs(provider: IncusProvider, lab: str) -> None:
    one = instance(lab)
    provider.create(one)
    bridge = f"t{secrets.token_hex(4)}"
    incus("network", "create", bridge, "ipv4.address=10.213.77.1/24", "ipv4.dhcp=false", "ipv6.address=none")
    try:
        incus("config", "device", "override", one.name, "eth0", f"network={bridge}")
        provider.start(one)
        with pytest.raises(ReadyTimeoutError) as caught:
            provider.wait_until_ready(one, timeout_s=5)
        assert "running but has no IPv4 address" in caught.value.details
        assert "console" in caught.value.details
        assert "DHCP" in caught.value.resolution
    finally:
        provider.delete(one)
        incus("network", "delete", bridge)


def test_a_system_that_does_not_finish_starting_shows_what_it_waits_for(provider: IncusProvider, lab: str) -> None:
    one = instance(lab)
    provider.create(one)
    slow = b"[Service]\nType=oneshot\nExecStart=/bin/sleep 600\n[Install]\nWantedBy=multi-user.target\n"
    provider.start(one)
    provider.push(one.name, slow, "/etc/systemd/system/slow.service", mode=0o644)
    provider.wait_until_ready(one)
    assert provider.execute(one.name, ["systemctl", "enable", "slow"]).returncode == 0
    provider.stop(one)
    provider.start(one)
    with pytest.raises(ReadyTimeoutError) as caught:
        provider.wait_until_ready(one, timeout_s=8)
    assert "its system is still: starting" in caught.value.details
    assert "systemctl list-jobs" in caught.value.resolution


def test_a_container_without_dbus_is_ready_when_its_system_has_started(provider: IncusProvider, lab: str) -> None:
    one = instance(lab, image="debian/13")
    provider.create(one)
    provider.start(one)
    provider.wait_until_ready(one)
    without = "rm -f /usr/bin/dbus-daemon /usr/lib/systemd/system/dbus.service /usr/lib/systemd/system/dbus.socket"
    assert provider.execute(one.name, ["sh", "-c", without]).returncode == 0
    provider.stop(one)
    provider.start(one)
    assert provider.wait_until_ready(one).address
    ready = time.monotonic()
    assert provider.execute(one.name, ["test", "-e", "/run/dbus/system_bus_socket"]).returncode == 1
    finished = int(provider.execute(one.name, ["systemctl", "show", "-P", "FinishTimestampMonotonic"]).stdout) / 1e6
    assert 0 < finished <= ready, "it had finished starting, by the clock of the kernel that both share"
    assert ready - finished < PATIENCE_S


def test_a_container_that_does_not_start_is_told_with_the_reason_that_lxc_wrote(
    provider: IncusProvider, lab: str
) -> None:
    """Incus itself says only: Failed to run: .../incusd forkstart ...: exit status 1."""
    one = instance(lab)
    provider.create(one)
    incus("config", "set", one.name, "raw.lxc", "lxc.mount.entry = /no/such/folder mnt none bind 0 0")
    with pytest.raises(ProviderError, match=f"^Unable to start container {one.name}") as refused:
        provider.start(one)
    first, *rest = refused.value.details.splitlines()
    assert "forkstart" in first
    assert 1 <= len(rest) <= 5
    assert any("/no/such/folder" in line and "No such file or directory" in line for line in rest)


def test_a_container_that_stops_at_once_is_not_waited_for(provider: IncusProvider, lab: str) -> None:
    one = instance(lab)
    provider.create(one)
    began = time.monotonic()
    with pytest.raises(ReadyTimeoutError, match="It stopped while starting"):
        provider.wait_until_ready(one, timeout_s=60)
    assert time.monotonic() - began < 20


def test_a_full_pool_is_named_and_nothing_is_left(lab: str, provider: IncusProvider) -> None:
    pool = f"t{secrets.token_hex(4)}"
    incus("storage", "create", pool, "btrfs", "size=160MiB")
    try:
        incus("profile", "create", pool)
        incus("profile", "device", "add", pool, "root", "disk", "path=/", f"pool={pool}")
        cramped = IncusProvider("box", profile=pool)
        with pytest.raises(ProviderError) as caught:
            cramped.create(instance(lab))
        assert pool in caught.value.resolution
        assert "grow it" in caught.value.resolution
        assert provider.observe(lab).instances == ()
    finally:
        incus("profile", "delete", pool, check=False)
        incus("storage", "delete", pool)


def test_a_frozen_container_can_be_resumed_and_stopped(provider: IncusProvider, lab: str) -> None:
    one = instance(lab)
    provider.create(one)
    provider.start(one)
    incus("pause", one.name)
    seen = provider.observe(lab).instance(one.name)
    assert seen is not None
    assert seen.status == "frozen"
    provider.start(one)
    assert provider.wait_until_ready(one).status == "running"
    incus("pause", one.name)
    provider.stop(one, timeout_s=30)
    seen = provider.observe(lab).instance(one.name)
    assert seen is not None
    assert seen.status == "stopped"


def test_a_container_that_was_moved_to_another_project_is_named_with_the_way_back(
    provider: IncusProvider, lab: str
) -> None:
    one = instance(lab)
    provider.create(one)
    project = f"{lab}-attic"
    shared = [f"--config=features.{name}=false" for name in ("images", "profiles", "storage.volumes")]
    incus("project", "create", project, *shared)
    try:
        incus("move", one.name, one.name, "--target-project", project)
        seen = provider.observe(lab)
        host = seen.hosts["box"]
        assert (seen.instances, dict(host.moved)) == ((), {one.name: f"in project {project}"})
        assert one.name not in host.unmanaged
        command = host.moved_hints[one.name].partition("&& ")[2].partition(";")[0]
        incus(*command.split()[1:])
        assert provider.observe(lab).instance(one.name) == one
        assert dict(provider.observe(lab).hosts["box"].moved) == {}
    finally:
        incus("delete", "--force", "--project", project, one.name, check=False)
        incus("project", "delete", project)


def test_a_changed_value_is_found(provider: IncusProvider, lab: str) -> None:
    one = instance(lab, memory=2**29)
    provider.create(one)
    incus("config", "set", one.name, "limits.memory=1GiB")
    incus("config", "set", one.name, "limits.cpu=1")
    seen = provider.observe(lab).instance(one.name)
    assert seen is not None
    assert (seen.memory, seen.cpu) == (2**30, 1)


@pytest.mark.slow
def test_ten_containers_take_no_longer_than_ten_launches(provider: IncusProvider, lab: str) -> None:
    """At most 1.3 times, the best of three rounds each: what else the machine does makes both slower."""
    wanted = [Instance(f"{lab}-{number}", "box", lab, "debian/12") for number in range(10)]
    names = [f"{lab}-launched-{number}" for number in range(10)]

    def ours(one: Instance) -> None:
        provider.create(one)
        provider.start(one)

    def seconds(function: Callable[[Any], object], items: Sequence[Any]) -> float:
        began = time.monotonic()
        with ThreadPoolExecutor(10) as pool:
            list(pool.map(function, items))
        return time.monotonic() - began

    rounds = []
    for _ in range(3):
        try:
            theirs = seconds(lambda name: incus("launch", "debian/12", name), names)
        finally:
            incus("delete", "--force", *names, check=False)
        rounds.append((seconds(ours, wanted), theirs))
        seconds(provider.delete, wanted)
    assert min(one for one, _ in rounds) <= 1.3 * min(theirs for _, theirs in rounds), rounds


def as_nobody(*groups: int) -> str:
    """What ``check_available`` says to a user who is in these groups only: an error's text, or nothing."""
    code = f"""
import os
from provisioner.values.errors import UnavailableError
from provisioner.hosts import provider_for
provider = provider_for("box", "incus")
provider.check_available()  # what it imports may lie where only root can read
os.setgroups({list(groups)})
os.setgid({NOBODY})
os.setuid({NOBODY})
try:
    provider_for("box", "incus").check_available()
except UnavailableError as error:
    print(error)
"""
    return subprocess.run(
        (sys.executable, "-c", code), capture_output=True, text=True, check=True, timeout=TIMEOUT_S
    ).stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_the_group_of_the_socket_is_enough_and_needed(provider: IncusProvider) -> None:
    socket = Path(provider.endpoint.address)
    assert as_nobody(socket.stat().st_gid) == ""
    assert f"sudo usermod -aG {socket.group()} $USER" in as_nobody()
