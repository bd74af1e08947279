"""One suite over every driver in the registry: what `hosts/base.py` promises, each driver keeps."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from provisioner.hosts import kinds, provider_for
from provisioner.hosts.base import Provider
from provisioner.values.errors import ProviderError, UnavailableError
from provisioner.values.state import Device, Instance, InstanceKind, Status
from tests.copied_driver import copied_driver

__all__ = ["copied_driver"]  # a fixture

IMAGE = "debian/12"
REAL = {
    "fake": (pytest.mark.core,),
    "copied": (pytest.mark.core,),
    "incus": (pytest.mark.incus, pytest.mark.core),
    "incus-https": (pytest.mark.incus, pytest.mark.slow),
    "proxmox": (pytest.mark.incus, pytest.mark.proxmox),
}
"""What a driver's host needs; that of Proxmox is a double whose containers are the lab's Incus' own."""
WAYS = [*kinds(), "copied", "incus-https"]
"""Each driver, a copy of the fake one, and Incus again: a daemon of its own that is reached as if it were elsewhere."""
LARGE_BYTES = 5_000_000
SHARED: dict[str, Any] = {"shared": b"shared ", "timeout_s": 60.0}


@dataclass(frozen=True)
class Host:
    """One driver and a lab of its own on its host; the fixture removes what bears the lab's mark."""

    provider: Provider
    lab: str
    folder: Path

    def instance(self, name: str, **attributes: object) -> Instance:
        """A container of this lab."""
        wanted = Instance(f"{self.lab}-{name}", "box", self.lab, IMAGE)
        return replace(wanted, **attributes)  # type: ignore[arg-type]

    def running(self, name: str, **attributes: object) -> Instance:
        """A container of this lab that is ready."""
        wanted = self.instance(name, **attributes)
        self.provider.create(wanted)
        self.provider.start(wanted)
        return self.provider.wait_until_ready(wanted)

    def published(self, *devices: Device) -> tuple[Device, ...]:
        """Those of the devices that publish a port, where the host does that; else none."""
        return devices if self.provider.can_publish else ()

    def seen(self, wanted: Instance) -> Instance | None:
        """The container as an observation shows it."""
        return self.provider.observe(wanted.lab).instance(wanted.name)


@pytest.fixture(params=[pytest.param(way, marks=REAL.get(way, ())) for way in WAYS])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Host]:
    settings = {}
    if request.param == "incus":
        request.getfixturevalue("incus_lab")
    elif request.param == "incus-https":
        settings["endpoint"] = request.getfixturevalue("far_incus").endpoint
    elif request.param == "copied":
        request.getfixturevalue("copied_driver")
    elif request.param == "proxmox":
        settings["access"] = request.getfixturevalue("pve_host").access
    provider = provider_for("box", request.param.partition("-")[0], **settings)
    try:
        provider.check_available()
    except UnavailableError as error:
        pytest.skip(str(error))
    host = Host(provider, f"t{secrets.token_hex(4)}", tmp_path)
    yield host
    for lab in (host.lab, f"{host.lab}-other"):
        for one in provider.observe(lab).instances:
            provider.delete(one)
    for volume in (f"{host.lab}-volume", f"{host.lab}-copy"):
        provider.volumes.delete(volume)


def mount(volume: str, *, readonly: bool) -> Device:
    return Device("data", "volume", {"volume": volume, "path": "/srv/data", "readonly": str(readonly).lower()})


def test_a_created_container_is_what_was_asked_for_and_stopped(host: Host) -> None:
    publish = Device("web", "publish", {"listen": "127.0.0.1:18733", "connect": "127.0.0.1:80"})
    wanted = host.instance("one", cpu=1, memory=2**29, disk=2 * 2**30, nesting=True, devices=host.published(publish))
    made = host.provider.create(wanted)
    assert made == wanted
    assert (made.status, made.address) == (Status.STOPPED, None)
    assert host.seen(wanted) == wanted


def test_the_ports_that_a_host_passes_on_are_told(host: Host) -> None:
    publish = Device("web", "publish", {"listen": "127.0.0.1:18734", "connect": "127.0.0.1:80"})
    one = host.provider.create(host.instance("one", devices=host.published(publish)))
    assert host.provider.network.publications(one.name) == host.published(publish)


def test_what_is_left_out_stays_left_out(host: Host) -> None:
    wanted = host.instance("bare")
    assert host.provider.create(wanted) == wanted
    assert host.seen(wanted) == wanted


def test_a_ready_container_has_an_address_and_is_still_what_was_asked_for(host: Host) -> None:
    wanted = host.instance("one", memory=2**29)
    host.provider.create(wanted)
    host.provider.start(wanted)
    ready = host.provider.wait_until_ready(wanted)
    assert ready == wanted
    assert ready.status is Status.RUNNING
    assert ready.address
    assert host.seen(wanted) == ready


def test_start_stop_and_delete_may_be_repeated(host: Host) -> None:
    one = host.running("one")
    host.provider.start(one)
    host.provider.stop(one)
    host.provider.stop(one)
    stopped = host.seen(one)
    assert stopped is not None
    assert (stopped.status, stopped.address) == (Status.STOPPED, None)
    host.provider.start(one)
    host.provider.delete(one)
    assert host.seen(one) is None
    host.provider.delete(one)
    host.provider.stop(one)


def test_starting_what_is_missing_is_an_error(host: Host) -> None:
    with pytest.raises(ProviderError, match="Unable to start container"):
        host.provider.start(host.instance("missing"))


@pytest.mark.guarantee("unmanaged")
def test_a_stranger_is_seen_and_never_touched(host: Host) -> None:
    theirs = replace(host.instance("theirs"), lab=f"{host.lab}-other")
    host.provider.create(theirs)
    host.provider.start(theirs)
    ours = replace(theirs, lab=host.lab)
    fleet = host.provider.observe(host.lab)
    assert fleet.instance(theirs.name) is None
    assert theirs.name in fleet.hosts["box"].unmanaged
    for verb in (host.provider.start, host.provider.stop, host.provider.delete, host.provider.create):
        with pytest.raises(ProviderError):
            verb(ours)
    still = host.seen(theirs)
    assert still is not None
    assert still.status is Status.RUNNING


@pytest.mark.guarantee("unmanaged")
def test_a_taken_name_is_refused_and_its_owner_keeps_it(host: Host) -> None:
    one = host.instance("one", memory=2**29)
    host.provider.create(one)
    with pytest.raises(ProviderError, match="Unable to create container"):
        host.provider.create(replace(one, memory=2**28))
    assert host.seen(one) == one


def test_a_missing_image_lists_those_that_are_there(host: Host) -> None:
    wanted = host.instance("one", image="debian/0")
    assert IMAGE in host.provider.observe(host.lab).hosts["box"].images
    with pytest.raises(ProviderError) as caught:
        host.provider.create(wanted)
    assert "debian/0" in caught.value.message
    assert IMAGE in caught.value.details
    assert host.seen(wanted) is None


def test_a_failed_creation_leaves_nothing(host: Host) -> None:
    wanted = host.instance("one", devices=(mount("no-such-volume", readonly=True),))
    with pytest.raises(ProviderError, match="Unable to create container"):
        host.provider.create(wanted)
    assert host.seen(wanted) is None
    assert wanted.name not in host.provider.observe(host.lab).hosts["box"].unmanaged


def test_commands(host: Host) -> None:
    name = host.running("one").name
    every_byte = bytes(range(256))
    assert host.provider.execute(name, ["cat"], stdin=every_byte).stdout == every_byte
    assert host.provider.execute(name, ["cat"]).stdout == b""
    assert host.provider.execute(name, ["false"]).returncode == 1
    assert host.provider.execute(name, ["printenv", "WORD"], environment={"WORD": "a b"}).stdout == b"a b\n"
    missing = host.provider.execute(name, ["no-such-command"])
    assert missing.returncode == 127
    assert missing.stderr


def test_several_are_looked_into_at_once(host: Host) -> None:
    names = [host.running(name).name for name in ("one", "two")]
    looked = host.provider.look(["cat"], {one: one.encode() for one in names}, **SHARED)
    assert {name: (one.returncode, one.stdout) for name, one in looked.executions.items()} == {
        name: (0, b"shared " + name.encode()) for name in names
    }
    host.provider.stop(host.instance("two"))
    looked = host.provider.look(["cat"], dict.fromkeys(names, b""), **SHARED)
    assert list(looked.executions) == names[:1]
    assert {name: names[1] in str(error) for name, error in looked.failures.items()} == {names[1]: True}


def test_large_input_and_output_arrive_whole(host: Host) -> None:
    name = host.running("one").name
    large = secrets.token_bytes(LARGE_BYTES)
    assert host.provider.execute(name, ["cat"], stdin=large).stdout == large


def test_a_command_needs_a_running_container(host: Host) -> None:
    one = host.instance("one")
    with pytest.raises(ProviderError, match="Unable to run true in container"):
        host.provider.execute(one.name, ["true"])
    host.provider.create(one)
    with pytest.raises(ProviderError, match="Unable to run true in container"):
        host.provider.execute(one.name, ["true"])


def test_files_go_in_and_out(host: Host) -> None:
    name = host.running("one").name
    source, target = host.folder / "source", host.folder / "target"
    source.write_bytes(secrets.token_bytes(LARGE_BYTES))
    host.provider.push(name, source, "/root/large")
    host.provider.pull(name, "/root/large", target)
    assert target.read_bytes() == source.read_bytes()
    host.provider.push(name, b"", "/root/empty")
    host.provider.pull(name, "/root/empty", target)
    assert target.read_bytes() == b""


def test_a_file_gets_the_mode_that_was_asked_for_also_over_another(host: Host) -> None:
    name = host.running("one").name
    host.provider.push(name, b"open", "/root/file", mode=0o644)
    host.provider.push(name, b"closed", "/root/file", mode=0o600)
    assert host.provider.execute(name, ["stat", "-c", "%a", "/root/file"]).stdout == b"600\n"


def test_a_file_that_is_missing_is_an_error_and_leaves_nothing(host: Host) -> None:
    name = host.running("one").name
    target = host.folder / "target"
    with pytest.raises(ProviderError, match="Unable to copy /root/missing"):
        host.provider.pull(name, "/root/missing", target)
    assert list(host.folder.iterdir()) == []


def test_a_volume_is_ready_when_it_is_said_to_be(host: Host) -> None:
    volume = f"{host.lab}-volume"

    def is_ready() -> bool:
        return volume in host.provider.observe(host.lab).hosts["box"].volumes

    host.provider.volumes.create(volume, "digest")
    assert not is_ready()
    host.provider.volumes.create(volume, "digest")
    host.provider.volumes.mark_ready(volume)
    assert is_ready()
    with pytest.raises(ProviderError, match="Unable to create volume"):
        host.provider.volumes.create(volume, "digest")
    assert is_ready()
    assert volume in host.provider.volumes.ready()
    host.provider.volumes.delete(volume)
    assert not is_ready()
    assert volume not in host.provider.volumes.ready()
    host.provider.volumes.delete(volume)


@pytest.mark.guarantee("unmanaged")
def test_a_volume_in_use_is_left(host: Host) -> None:
    volume = f"{host.lab}-volume"
    host.provider.volumes.create(volume, "digest")
    host.provider.volumes.mark_ready(volume)
    wanted = host.instance("one", devices=(mount(volume, readonly=True),))
    assert host.provider.create(wanted) == wanted
    host.provider.volumes.delete(volume)
    assert volume in host.provider.observe(host.lab).hosts["box"].volumes


def test_a_stopped_builder_keeps_what_it_has_made(host: Host) -> None:
    volume, copy = f"{host.lab}-volume", mount(f"{host.lab}-volume", readonly=True)
    host.provider.volumes.create(volume, "digest")
    assert host.provider.volumes.builder(volume) == ""
    builder = host.running("builder", kind=InstanceKind.BUILDER, devices=(mount(volume, readonly=False),))
    host.provider.push(builder.name, b"half", "/srv/data/part", mode=0o644)
    host.provider.stop(builder)
    left = host.provider.read(host.provider.volumes.builder(volume))
    assert left is not None
    assert left.name == builder.name
    assert (left.lab, left.kind, left.image) == (host.lab, InstanceKind.BUILDER, IMAGE)
    assert left.status is Status.STOPPED
    assert volume not in host.provider.observe(host.lab).hosts["box"].volumes
    host.provider.start(builder)
    host.provider.wait_until_ready(builder)
    host.provider.pull(builder.name, "/srv/data/part", host.folder / "part")
    assert (host.folder / "part").read_bytes() == b"half"
    host.provider.stop(builder)
    host.provider.volumes.mark_ready(volume)
    host.provider.delete(builder)
    assert host.running("one", devices=(copy,)).status is Status.RUNNING


def test_an_exported_volume_can_be_imported(host: Host) -> None:
    volume, copy, file = f"{host.lab}-volume", f"{host.lab}-copy", host.folder / "export"
    host.provider.volumes.create(volume, "digest")
    host.provider.volumes.mark_ready(volume)
    host.provider.volumes.export(volume, file)
    assert [one.name for one in host.folder.iterdir()] == ["export"]
    host.provider.volumes.import_from(copy, "digest", file)
    assert {volume, copy} <= host.provider.observe(host.lab).hosts["box"].volumes


def test_a_missing_volume_cannot_be_exported(host: Host) -> None:
    with pytest.raises(ProviderError, match="Unable to export volume"):
        host.provider.volumes.export(f"{host.lab}-volume", host.folder / "export")
    assert list(host.folder.iterdir()) == []


def test_ten_threads_share_one_provider(host: Host) -> None:
    one = host.running("one")
    with ThreadPoolExecutor(10) as pool:
        outputs = list(pool.map(lambda n: host.provider.execute(one.name, ["cat"], stdin=b"%d" % n).stdout, range(100)))
        seen = list(pool.map(lambda _: host.seen(one), range(20)))
    assert outputs == [b"%d" % n for n in range(100)]
    assert seen == [one] * 20


def test_ansible_is_told_how_to_reach_a_container(host: Host) -> None:
    assert host.provider.connection_variables("one")["provision_instance"] == "one"
