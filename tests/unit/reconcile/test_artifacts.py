"""Artifacts on the fake provider: built once, taken from the cache after, and never left half made."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from provisioner.hosts.fake import FakeProvider, Volume
from provisioner.hosts.fake.volumes import Volumes
from provisioner.reconcile import volumes
from provisioner.reconcile.artifacts import ensure_artifacts
from provisioner.reconcile.lock import Lease
from provisioner.reconcile.runner import PlaybookResult, TaskEvent
from provisioner.services.llama_cpp.loads import program_of
from provisioner.serving.engine_memory import keep_program, kept_program
from provisioner.values.errors import LockedError, PlaybookError, ProviderError
from provisioner.values.events import ApplyComplete, ApplyErrored, ApplyProgress, ApplyStart, Diagnostic, Event
from provisioner.values.state import Artifact, Device, Execution, Instance, InstanceKind, Secret, Status

BUILT = Artifact(
    "llama_cpp", "box", "a" * 64, "llama_cpp", "/opt/llama_cpp", "debian/12", mounted_at="/opt/llama_cpp/aa"
)
SAME_MODEL = Artifact(
    "model-spare",
    "box",
    "b" * 64,
    "model_store",
    "/srv/models/spare",
    "debian/12",
    cacheable=False,
    mounted_at="/srv/models/bb/spare",
)
MODEL = Artifact(
    "model-tiny",
    "box",
    "b" * 64,
    "model_store",
    "/srv/models/tiny",
    "debian/12",
    cacheable=False,
    mounted_at="/srv/models/bb/tiny",
)
DOWNLOAD = replace(MODEL, resumable=True)


class Builds:
    """Stands for ansible-runner: fills the builders' volumes of the fake provider, or fails."""

    def __init__(self, provider: FakeProvider, failures: Sequence[TaskEvent] = ()) -> None:
        self.provider = provider
        self.failures = tuple(failures)
        self.runs = 0

    def __call__(
        self, playbook: str, inventory: str, *, on_task: Callable[[TaskEvent], None], secrets: Sequence[Secret] = ()
    ) -> PlaybookResult:
        """Note the run; fill every volume that is empty."""
        assert playbook == "artifacts.yml"
        assert not secrets
        self.runs += 1
        for name in sorted(self.provider.containers):
            assert name in inventory
            on_task(TaskEvent("start", name, "role", "compile"))
        for volume in self.provider.volumes.values():
            volume.content = volume.content or b"built " + volume.digest.encode()
        return PlaybookResult(2 if self.failures else 0, self.failures)


@pytest.fixture
def box() -> FakeProvider:
    return FakeProvider("box")


def _ensure(
    box: FakeProvider,
    artifacts: Sequence[Artifact],
    builds: Builds,
    cache: Path,
    *,
    lab: str = "lab",
    events: list[Event] | None = None,
) -> list[Event]:
    events = [] if events is None else events
    ensure_artifacts(artifacts, {"box": box}, lab, run_playbook=builds, emit=events.append, cache=cache)
    assert box.locks == {}
    return events


def test_built_in_throwaway_containers_and_marked_ready(box: FakeProvider, tmp_path: Path) -> None:
    events = _ensure(box, [BUILT, MODEL], Builds(box), tmp_path)
    assert box.containers == {}
    assert {name for name, volume in box.volumes.items() if volume.ready} == {BUILT.volume, MODEL.volume}
    assert ApplyProgress("llama_cpp", "compile") in events


def test_another_host_takes_it_from_the_cache(box: FakeProvider, tmp_path: Path) -> None:
    _ensure(box, [BUILT, MODEL], Builds(box), tmp_path)
    other = FakeProvider("box")
    again = Builds(other)
    _ensure(other, [BUILT], again, tmp_path)
    assert again.runs == 0
    assert other.volumes[BUILT.volume].content == box.volumes[BUILT.volume].content
    assert other.volumes[BUILT.volume].ready
    assert not [file for file in tmp_path.iterdir() if MODEL.volume in file.name]


class LateImports(Volumes):
    """Volumes of which none is imported before a builder has come up."""

    def __init__(self, host: Imports) -> None:
        super().__init__(host)
        self._imports = host

    def import_from(self, volume: str, digest: str, source: Path) -> None:
        """Import it once there is a build, or fail."""
        assert self._imports.is_building.wait(60), "nothing is built beside the import"
        if self._imports.fails:
            raise ProviderError(f"Unable to import {volume}")
        super().import_from(volume, digest, source)


class Imports(FakeProvider):
    """A host with such volumes."""

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__("box")
        self.fails = fails
        self.is_building = threading.Event()
        self.volumes = LateImports(self)

    def start(self, instance: Instance) -> None:
        """As it is; and from now on there is a build."""
        super().start(instance)
        self.is_building.set()


def test_what_is_in_the_cache_is_taken_from_it_while_the_rest_is_built(box: FakeProvider, tmp_path: Path) -> None:
    _ensure(box, [BUILT], Builds(box), tmp_path)
    other = Imports()
    _ensure(other, [BUILT, MODEL], Builds(other), tmp_path)
    assert {name for name, volume in other.volumes.items() if volume.ready} == {BUILT.volume, MODEL.volume}
    assert other.volumes[BUILT.volume].content == box.volumes[BUILT.volume].content


def test_what_was_built_is_kept_though_an_import_beside_it_failed(box: FakeProvider, tmp_path: Path) -> None:
    _ensure(box, [BUILT], Builds(box), tmp_path)
    other = Imports(fails=True)
    with pytest.raises(ProviderError, match="Unable to import"):
        _ensure(other, [BUILT, MODEL], Builds(other), tmp_path)
    assert {name for name, volume in other.volumes.items() if volume.ready} == {MODEL.volume}


def test_a_failed_build_is_told_once_the_imports_beside_it_have_ended(box: FakeProvider, tmp_path: Path) -> None:
    _ensure(box, [BUILT], Builds(box), tmp_path)
    other = Imports()
    failure = TaskEvent("failed", MODEL.builder, "model_store", "copy", "no network")
    with pytest.raises(PlaybookError, match="no network"):
        _ensure(other, [BUILT, MODEL], Builds(other, [failure]), tmp_path)
    assert {name for name, volume in other.volumes.items() if volume.ready} == {BUILT.volume}


def test_a_damaged_copy_is_built_anew(box: FakeProvider, tmp_path: Path) -> None:
    _ensure(box, [BUILT], Builds(box), tmp_path)
    (tmp_path / f"{BUILT.volume}.tar").write_bytes(b"damaged")
    other = FakeProvider("box")
    again = Builds(other)
    _ensure(other, [BUILT], again, tmp_path)
    assert again.runs == 1
    assert other.volumes[BUILT.volume].content == box.volumes[BUILT.volume].content


def test_a_copy_without_its_digest_is_not_believed(box: FakeProvider, tmp_path: Path) -> None:
    (tmp_path / f"{BUILT.volume}.tar").write_bytes(b"half a copy")
    builds = Builds(box)
    _ensure(box, [BUILT], builds, tmp_path)
    assert builds.runs == 1
    assert box.volumes[BUILT.volume].content != b"half a copy"


def test_a_failed_build_leaves_nothing(box: FakeProvider, tmp_path: Path) -> None:
    failed = TaskEvent("failed", BUILT.builder, "llama_cpp", "build | Compile", "no space left on device")
    events: list[Event] = []
    builds = Builds(box, [failed])
    with pytest.raises(PlaybookError, match="no space left on device"):
        ensure_artifacts([BUILT], {"box": box}, "lab", run_playbook=builds, emit=events.append, cache=tmp_path)
    assert box.containers == {}
    assert box.volumes == {}
    assert list(tmp_path.iterdir()) == []
    assert any(isinstance(event, ApplyErrored) and event.target == "llama_cpp" for event in events)


def test_a_builder_that_does_not_come_up_fails_alone_and_leaves_nothing(box: FakeProvider, tmp_path: Path) -> None:
    box.never_ready.add(BUILT.builder)
    events: list[Event] = []
    with pytest.raises(Exception, match="not ready"):
        _ensure(box, [BUILT, MODEL], Builds(box), tmp_path, events=events)
    assert box.containers == {}
    assert {name: volume.ready for name, volume in box.volumes.items()} == {MODEL.volume: True}
    assert [event.target for event in events if isinstance(event, ApplyErrored)] == ["llama_cpp"]


def test_an_interruption_leaves_nothing(box: FakeProvider, tmp_path: Path) -> None:
    class Interrupted(Builds):
        def __call__(self, *_: object, **__: object) -> PlaybookResult:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _ensure(box, [BUILT], Interrupted(box), tmp_path)
    assert box.containers == {}
    assert box.volumes == {}


def test_of_two_builds_of_one_program_the_failed_one_leaves_nothing(box: FakeProvider, tmp_path: Path) -> None:
    other = replace(BUILT, digest="f" * 64, image="debian/13")
    failed = TaskEvent("failed", other.builder, "llama_cpp", "build | Compile", "no space left on device")
    with pytest.raises(PlaybookError, match="no space left"):
        _ensure(box, [BUILT, other], Builds(box, [failed]), tmp_path)
    assert box.containers == {}
    assert {name: volume.ready for name, volume in box.volumes.items()} == {BUILT.volume: True}


def test_one_failure_of_two_keeps_the_other(box: FakeProvider, tmp_path: Path) -> None:
    failed = TaskEvent("failed", MODEL.builder, "model_store", "build | Copy", "wrong checksum")
    with pytest.raises(PlaybookError, match="Unable to build model-tiny\n"):
        _ensure(box, [BUILT, MODEL], Builds(box, [failed]), tmp_path)
    assert box.containers == {}
    assert {name: volume.ready for name, volume in box.volumes.items()} == {BUILT.volume: True}


def test_what_ansible_was_ended_in_is_not_ready_though_another_one_had_failed(
    box: FakeProvider, tmp_path: Path
) -> None:
    class Ended(Builds):
        def __call__(self, *arguments: Any, **more: Any) -> PlaybookResult:
            return replace(super().__call__(*arguments, **more), finished=False)

    failed = TaskEvent("failed", MODEL.builder, "model_store", "build | Copy", "wrong checksum")
    with pytest.raises(PlaybookError, match="wrong checksum"):
        _ensure(box, [BUILT, MODEL], Ended(box, [failed]), tmp_path)
    assert box.volumes == {}
    assert list(tmp_path.iterdir()) == []


def test_a_volume_that_cannot_be_made_is_told_of_its_artifact_and_left(box: FakeProvider, tmp_path: Path) -> None:
    class Busy(Volumes):
        def create(self, volume: str, digest: str) -> None:
            if volume == BUILT.volume:
                raise ProviderError("Unable to create volume", details="another run is at it")
            super().create(volume, digest)

    busy = FakeProvider("box")
    busy.volumes = Busy(busy)
    busy.volumes[BUILT.volume] = box.volumes.setdefault(BUILT.volume, Volume("theirs"))
    with pytest.raises(ProviderError, match="another run is at it"):
        _ensure(busy, [BUILT, MODEL], Builds(busy), tmp_path)
    assert {name: volume.ready for name, volume in busy.volumes.items()} == {BUILT.volume: False, MODEL.volume: True}
    assert busy.volumes[BUILT.volume].digest == "theirs"
    assert busy.containers == {}


def test_one_content_under_two_names_is_built_side_by_side(box: FakeProvider, tmp_path: Path) -> None:
    _ensure(box, [MODEL, SAME_MODEL], Builds(box), tmp_path)
    assert {name for name, volume in box.volumes.items() if volume.ready} == {MODEL.volume, SAME_MODEL.volume}


def test_two_hosts_that_lack_the_same_have_it_built_on_each(tmp_path: Path) -> None:
    hosts = {name: FakeProvider(name) for name in ("box", "spare")}
    inventories: list[str] = []

    def run(
        playbook: str, inventory: str, *, on_task: Callable[[TaskEvent], None], secrets: Sequence[Secret] = ()
    ) -> PlaybookResult:
        assert (playbook, secrets) == ("artifacts.yml", ())
        inventories.append(inventory)
        for provider in hosts.values():
            (builder,) = provider.containers
            on_task(TaskEvent("start", builder, "role", "compile"))
        return PlaybookResult(0)

    both = [replace(BUILT, host=name) for name in hosts]
    ensure_artifacts(both, hosts, "lab", run_playbook=run, emit=lambda _: None, cache=tmp_path)
    (inventory,) = inventories
    assert inventory.count("artifact_role:") == 2, "one builder stands for both, and the other's volume stays empty"


def test_secrets_of_a_build_go_beside_the_inventory_and_progress_is_told(box: FakeProvider, tmp_path: Path) -> None:
    given: list[Secret] = []

    class Downloads(Builds):
        def __call__(
            self, playbook: str, inventory: str, *, on_task: Callable[[TaskEvent], None], secrets: Sequence[Secret] = ()
        ) -> PlaybookResult:
            given.extend(secrets)
            assert "canary" not in inventory
            assert "hub%3Aaccess" in inventory
            on_task(TaskEvent("retry", MODEL.builder, "model_store", "Download", "1 of 2 GB have come"))
            return super().__call__(playbook, inventory, on_task=on_task)

    secret = Secret("hub:access", "canary")
    model = replace(MODEL, variables={"model_store_access": secret})
    events = _ensure(box, [model], Downloads(box), tmp_path)
    assert given == [secret]
    assert ApplyProgress("model-tiny", "1 of 2 GB have come", goes_on=True) in events


FAILED = TaskEvent("failed", DOWNLOAD.builder, "model_store", "download | Download the model", "the connection was cut")


class Cut(Builds):
    """Receives a part, then fails; the part is what the fake's ``find`` finds from then on."""

    def __init__(self, provider: FakeProvider) -> None:
        super().__init__(provider, [FAILED])

    def __call__(self, *arguments: object, **more: object) -> PlaybookResult:
        """Have a part, and fail."""
        self.provider.programs["find"] = lambda *_: Execution(0, b"/srv/models/tiny/.tiny.gguf.part\n", b"")
        return super().__call__(*arguments, **more)  # type: ignore[arg-type]  # only handed on


def _cut(box: FakeProvider, folder: Path, lab: str = "lab") -> list[Event]:
    events: list[Event] = []
    with pytest.raises(PlaybookError, match="the connection was cut"):
        ensure_artifacts([DOWNLOAD], {"box": box}, lab, run_playbook=Cut(box), emit=events.append, cache=folder)
    return events


def test_a_cut_download_goes_on_in_the_same_builder(box: FakeProvider, tmp_path: Path) -> None:
    assert Diagnostic("note", "What has come of model-tiny stays on host box: the next up goes on there") in _cut(
        box, tmp_path
    )
    assert box.containers[DOWNLOAD.builder].instance.status is Status.STOPPED
    assert not box.volumes[DOWNLOAD.volume].ready
    part = box.volumes[DOWNLOAD.volume]
    events = _ensure(box, [DOWNLOAD], Builds(box), tmp_path)
    assert ApplyProgress("model-tiny", "go on where the download stopped") in events
    assert box.volumes[DOWNLOAD.volume] is part, "it was made anew"
    assert part.ready
    assert box.containers == {}


def test_an_interrupted_download_is_kept_too(box: FakeProvider, tmp_path: Path) -> None:
    class Interrupted(Cut):
        def __call__(self, *arguments: object, **more: object) -> PlaybookResult:
            super().__call__(*arguments, **more)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _ensure(box, [DOWNLOAD], Interrupted(box), tmp_path)
    assert (set(box.containers), set(box.volumes)) == ({DOWNLOAD.builder}, {DOWNLOAD.volume})


def test_of_a_download_that_received_nothing_nothing_is_left(box: FakeProvider, tmp_path: Path) -> None:
    with pytest.raises(PlaybookError):
        _ensure(box, [DOWNLOAD], Builds(box, [FAILED]), tmp_path)
    assert (box.containers, box.volumes) == ({}, {})


def test_what_was_kept_and_is_of_no_use_is_made_anew(box: FakeProvider, tmp_path: Path) -> None:
    _cut(box, tmp_path)
    part = box.volumes[DOWNLOAD.volume]
    box.programs["find"] = lambda *_: Execution(0, b"", b"")
    _ensure(box, [DOWNLOAD], Builds(box), tmp_path)
    assert box.volumes[DOWNLOAD.volume] is not part
    assert box.volumes[DOWNLOAD.volume].ready


def test_a_builder_that_no_longer_starts_is_made_anew_and_that_is_told(tmp_path: Path) -> None:
    class Stubborn(FakeProvider):
        def create(self, instance: Instance) -> Instance:
            self.never_ready.discard(instance.name)
            return super().create(instance)

    stubborn = Stubborn("box")
    _cut(stubborn, tmp_path)
    stubborn.never_ready.add(DOWNLOAD.builder)
    events = _ensure(stubborn, [DOWNLOAD], Builds(stubborn), tmp_path)
    assert any(isinstance(one, ApplyProgress) and one.message.startswith("begin anew: ") for one in events)
    assert stubborn.volumes[DOWNLOAD.volume].ready


def test_what_another_lab_has_begun_and_given_up_is_begun_anew(box: FakeProvider, tmp_path: Path) -> None:
    _cut(box, tmp_path, "theirs")
    part = box.volumes[DOWNLOAD.volume]
    _ensure(box, [DOWNLOAD], Builds(box), tmp_path)
    assert box.volumes[DOWNLOAD.volume] is not part
    assert box.volumes[DOWNLOAD.volume].ready
    assert box.containers == {}


def test_what_is_in_the_way_and_no_builder_is_refused_and_left(box: FakeProvider, tmp_path: Path) -> None:
    box.create(Instance(BUILT.builder, "box", "theirs", "debian/12"))
    with pytest.raises(ProviderError, match="is in the way") as caught:
        _ensure(box, [BUILT], Builds(box), tmp_path)
    assert caught.value.resolution.startswith("Rename or delete it")
    assert (set(box.containers), box.volumes) == ({BUILT.builder}, {})


class Slow(Builds):
    """A build that goes on until it is told to end."""

    def __init__(self, provider: FakeProvider, failures: Sequence[TaskEvent] = ()) -> None:
        super().__init__(provider, failures)
        self.begun, self.goes_on = threading.Event(), threading.Event()

    def __call__(self, *arguments: Any, **more: Any) -> PlaybookResult:
        """Say that it has begun, and wait for the word."""
        self.begun.set()
        assert self.goes_on.wait(60)
        return super().__call__(*arguments, **more)


class Waited(list[Event]):
    """Events of a run, of which one says that it waits for another run."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = threading.Event()

    def append(self, event: Event) -> None:
        """Note the event."""
        super().append(event)
        if isinstance(event, ApplyProgress) and " builds it since " in event.message:
            self.waits.set()


def _beside(box: FakeProvider, first: Slow, second: Builds, cache: Path) -> Waited:
    """Let lab "theirs" begin a build, and lab "lab" want the same until it waits; then let the first end."""
    events = Waited()
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(_ensure_unchecked, box, "theirs", first, [], cache / "theirs")
        assert first.begun.wait(60)
        other = pool.submit(_ensure_unchecked, box, "lab", second, events, cache / "ours")
        try:
            assert events.waits.wait(60) or other.result(60)
        finally:
            first.goes_on.set()
        if first.failures:
            with pytest.raises(PlaybookError, match="no space left"):
                one.result(60)
        else:
            one.result(60)
        other.result(60)
    assert box.locks == {}
    assert box.containers == {}
    return events


def _ensure_unchecked(box: FakeProvider, lab: str, builds: Builds, events: list[Event], cache: Path) -> None:
    ensure_artifacts([BUILT], {"box": box}, lab, run_playbook=builds, emit=events.append, cache=cache)


def test_what_another_lab_builds_at_that_moment_is_waited_for_and_taken(box: FakeProvider, tmp_path: Path) -> None:
    again = Builds(box)
    events = _beside(box, Slow(box), again, tmp_path)
    assert again.runs == 0
    assert box.volumes[BUILT.volume].ready
    start, progress, complete = events
    assert start == ApplyStart("llama_cpp", "build")
    assert isinstance(progress, ApplyProgress)
    assert re.fullmatch(r"lab theirs builds it since \d\d:\d\d", progress.message)
    assert isinstance(complete, ApplyComplete)


def test_what_another_lab_failed_to_build_is_built_by_who_has_waited(box: FakeProvider, tmp_path: Path) -> None:
    failed = TaskEvent("failed", BUILT.builder, "llama_cpp", "build | Compile", "no space left on device")
    again = Builds(box)
    _beside(box, Slow(box, [failed]), again, tmp_path)
    assert again.runs == 1
    assert box.volumes[BUILT.volume].ready


@pytest.mark.parametrize("host", ["box", "spare"], ids=["one name", "another name of the host"])
def test_what_a_killed_run_of_another_lab_has_left_is_built_anew(box: FakeProvider, tmp_path: Path, host: str) -> None:
    theirs = replace(BUILT, host=host)
    lease = volumes.locked(box, "theirs", "build", BUILT.volume, print)
    (name, written), *_ = box.locks.items()
    lease.release()
    box.locks[name] = {**written, "pid": str(2**22 + 1)}  # more than Linux counts to
    mount = {"volume": theirs.volume, "path": theirs.path, "readonly": "false"}
    devices = (Device("artifact", "volume", mount),)
    box.volumes.create(theirs.volume, theirs.digest)
    left = Instance(theirs.builder, "box", "theirs", "debian/12", devices=devices, kind=InstanceKind.BUILDER)
    box.create(left)
    builds = Builds(box)
    _ensure(box, [BUILT], builds, tmp_path)
    assert builds.runs == 1
    assert box.containers == {}
    assert box.volumes[BUILT.volume].ready


def test_other_labs_need_not_wait_for_what_is_there(box: FakeProvider, tmp_path: Path) -> None:
    _ensure(box, [MODEL], Builds(box), tmp_path)
    slow = Slow(box)
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(_ensure, box, [BUILT, MODEL], slow, tmp_path, lab="theirs")
        assert slow.begun.wait(60)
        locked = [written["volume"] for written in box.locks.values()]
        slow.goes_on.set()
        run.result(60)
    assert locked == [BUILT.volume]


def test_what_was_taken_over_meanwhile_is_neither_marked_nor_deleted(
    box: FakeProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class TakenOver(Builds):
        def __call__(self, *arguments: Any, **more: Any) -> PlaybookResult:
            done = super().__call__(*arguments, **more)
            (lock,) = box.locks.values()
            lock["nonce"] = "another run's"
            deadline = time.monotonic() + 60
            while not any(lease.is_lost for lease in leases) and time.monotonic() < deadline:
                time.sleep(0.05)
            return done

    leases: list[Lease] = []
    locked = volumes.locked

    def noted(*arguments: Any) -> Lease:
        leases.append(locked(*arguments))
        return leases[-1]

    monkeypatch.setattr(volumes, "locked", noted)
    with pytest.raises(LockedError, match="was lost"):
        _ensure(box, [BUILT], TakenOver(box), tmp_path)
    assert not box.volumes[BUILT.volume].ready
    assert set(box.containers) == {BUILT.builder}


def test_what_a_run_has_claimed_or_makes_no_other_deletes(box: FakeProvider, tmp_path: Path) -> None:
    _ensure(box, [BUILT, MODEL], Builds(box), tmp_path)
    volumes.claim([BUILT], "theirs", {"box": box})
    lease = volumes.locked(box, "theirs", "build", MODEL.volume, print)
    volumes.delete_unused([BUILT.volume, MODEL.volume], "lab", box)
    assert set(box.volumes) == {BUILT.volume, MODEL.volume}
    lease.release()
    volumes.release("theirs", [box])
    volumes.delete_unused([BUILT.volume, MODEL.volume], "lab", box)
    assert (box.volumes, box.locks) == ({}, {})


def test_what_a_killed_run_has_begun_goes_with_its_lock(box: FakeProvider) -> None:
    box.volumes.create(BUILT.volume, BUILT.digest)
    box.volumes.create(MODEL.volume, MODEL.digest)
    for artifact, lab in ((BUILT, "lab"), (MODEL, "theirs")):
        lease = volumes.locked(box, lab, "build", artifact.volume, print)
        left = {name: {**written, "pid": str(2**22 + 1)} for name, written in box.locks.items()}
        lease.release()
        box.locks.update(left)
    volumes.delete_begun("lab", [box])
    assert set(box.volumes) == {MODEL.volume}
    assert [written["lab"] for written in box.locks.values()] == ["theirs"]


@pytest.mark.parametrize(
    ("written", "words"),
    [({}, "lab unknown builds it"), ({"lab": "a", "work": "delete", "since": "noon"}, "lab a deletes it")],
)
def test_a_lock_that_somebody_has_written_on_is_told_as_far_as_known(written: dict[str, str], words: str) -> None:
    assert volumes.maker(written) == words


def copy_with(folder: Path, **files: str) -> Path:
    """An artifact's copy as hosts export it: its files in a folder, packed."""
    for name, content in files.items():
        file = folder / "backup/volume/bin" / name.replace("_", "-")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
    packed = folder / "copy.tar"
    subprocess.run(["tar", "-c", "-f", packed, "-C", folder, "backup"], check=True, timeout=60)
    return packed


def test_the_program_that_can_be_asked_is_taken_out_of_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    built = replace(BUILT, variables={"llama_cpp_source": "pypi:x==1", "llama_cpp_source_sha256": "ab"})
    name = program_of("pypi:x==1", "ab")
    keep_program(built, copy_with(tmp_path / "none", llama_server="x"))
    keep_program(built, tmp_path / "gone.tar")
    keep_program(MODEL, copy_with(tmp_path / "model", llama_memory_1="x"))
    assert kept_program(name) is None
    keep_program(built, copy_with(tmp_path / "whole", llama_server="x", llama_memory_1="it"))
    kept = kept_program(name)
    assert kept is not None
    assert (kept.read_text(), kept.stat().st_mode & 0o777) == ("it", 0o700)
    assert kept_program(program_of("pypi:x==2", "ab")) is None
    assert [file.name for file in kept.parent.iterdir()] == [name]
