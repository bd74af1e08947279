"""Artifact volumes on a node: when they are ready, what they hold, and what is refused."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from provisioner.hosts.base import Volumes
from provisioner.hosts.proxmox import ProxmoxProvider, volumes
from provisioner.hosts.proxmox.access import Access
from provisioner.hosts.proxmox.ssh import Shell
from provisioner.values.errors import ProviderError
from tests.unit.hosts.proxmox.nearby import Nearby, nearby, shell

__all__ = ["nearby", "shell"]  # fixtures

MOUNTING_PCT = """#!/bin/sh
case $1 in
  exec) shift 3; exec "$@" ;;
  config) echo 'hostname: build' ;;
  mount) [ -e "{folder}/mounted" ] && {{ echo 'CT is locked (mounted)' >&2; exit 255; }}
    : >"{folder}/mounted"; echo "mounted CT $2 in '{folder}/rootfs'" ;;
  unmount) rm "{folder}/mounted" ;;
esac
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the volumes lie."""
    monkeypatch.setattr(volumes, "ROOT", str(tmp_path / "volumes"))
    return tmp_path / "volumes"


@pytest.fixture
def builders(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[int, str]]:
    """The number of each volume's builder and the folder in it, on a node whose containers use no volumes."""
    made: dict[str, tuple[int, str]] = {}
    monkeypatch.setattr(volumes, "_builder_of", lambda _host, volume: made.get(volume))
    monkeypatch.setattr(volumes, "_volumes_in_use", lambda _host: frozenset())
    return made


@pytest.fixture
def node(shell: Shell, builders: dict[str, tuple[int, str]]) -> Volumes:
    """The node's volumes."""
    assert builders is not None
    provider = ProxmoxProvider("box", access=Access("https://pve:8006", "root@pam"))
    provider.ssh = shell
    return provider.volumes


@pytest.fixture
def builder(nearby: Nearby, tmp_path: Path, builders: dict[str, tuple[int, str]]) -> Path:
    """The folder of a stopped builder of volume ``one``."""
    (nearby.folder / "pct").write_text(MOUNTING_PCT.format(folder=tmp_path), encoding="ascii")
    folder = tmp_path / "rootfs" / "srv" / "data"
    folder.mkdir(parents=True)
    (folder / "small").write_text("one", encoding="ascii")
    (folder / "large").write_bytes(b"\0" * 2_000_000)
    (folder / "lost+found").mkdir()
    builders["one"] = (105, "/srv/data")
    return folder


def test_a_volume_is_ready_when_it_is_said_to_be(node: Volumes, shell: Shell, place: Path) -> None:
    assert volumes.ready(shell) == frozenset()
    node.create("one", "digest")
    node.create("one", "another")
    assert (place / "one" / "digest").read_text(encoding="ascii") == "another\n"
    assert volumes.ready(shell) == frozenset()
    node.mark_ready("one")
    node.mark_ready("one")
    assert volumes.ready(shell) == {"one"}
    with pytest.raises(ProviderError, match="Unable to create volume one") as caught:
        node.create("one", "digest")
    assert "complete" in caught.value.details
    node.delete("one")
    node.delete("one")
    assert list(place.iterdir()) == []


def test_what_a_builder_has_made_is_packed_and_unpacked(
    node: Volumes, shell: Shell, builder: Path, tmp_path: Path, place: Path
) -> None:
    node.create("one", "digest")
    before = volumes.size(shell, "one")
    node.mark_ready("one")
    assert before + 2_000_000 < volumes.size(shell, "one") < before + 3_000_000
    assert not (tmp_path / "mounted").exists()
    content, *others = sorted(one.name for one in (place / "one").iterdir())
    assert content.startswith("content.tar.")
    assert others == ["digest", "ready"]
    disk = tmp_path / "disk"
    disk.mkdir()
    (disk / "lost+found").mkdir()
    (disk / "old").touch()
    assert volumes.fill(shell, 105, "one", str(disk))
    assert sorted(one.name for one in disk.iterdir()) == [".provisioner-volume", "large", "lost+found", "small"]
    (disk / "mine").touch()
    assert not volumes.fill(shell, 105, "one", str(disk))
    assert (disk / "mine").exists(), "a copy that is there is left alone"
    assert builder.exists()


def test_a_volume_that_is_not_ready_leaves_the_disk_alone(node: Volumes, shell: Shell, builder: Path) -> None:
    node.create("one", "digest")
    assert not volumes.fill(shell, 105, "one", str(builder))
    assert (builder / "small").exists()


def test_a_copy_that_breaks_off_is_no_copy(
    node: Volumes, shell: Shell, builder: Path, tmp_path: Path, place: Path
) -> None:
    node.create("one", "digest")
    node.mark_ready("one")
    (content,) = (place / "one").glob("content.tar.*")
    content.write_bytes(content.read_bytes()[:-20])
    disk = tmp_path / "disk"
    disk.mkdir()
    with pytest.raises(ProviderError, match="Unable to fill"):
        volumes.fill(shell, 105, "one", str(disk))
    assert not (disk / ".provisioner-volume").exists()
    assert builder.exists()


def test_a_link_in_a_builder_does_not_lead_into_the_node(
    node: Volumes, builders: dict[str, tuple[int, str]], shell: Shell, builder: Path, tmp_path: Path
) -> None:
    node.create("one", "digest")
    (builder.parent / "link").symlink_to("/etc")
    builders["one"] = (105, "/srv/link")
    with pytest.raises(ProviderError, match="Unable to mark volume one") as caught:
        node.mark_ready("one")
    assert "leads elsewhere" in caught.value.details
    assert volumes.ready(shell) == frozenset()
    assert not (tmp_path / "mounted").exists()


def test_an_exported_volume_can_be_imported(node: Volumes, shell: Shell, builder: Path, tmp_path: Path) -> None:
    node.create("one", "digest")
    with pytest.raises(ProviderError, match="Unable to export volume one"):
        node.export("one", tmp_path / "file")
    node.mark_ready("one")
    node.export("one", tmp_path / "file")
    node.create("two", "half-made")
    node.import_from("two", "digest", tmp_path / "file")
    assert volumes.ready(shell) == {"one", "two"}
    assert volumes.size(shell, "one") == volumes.size(shell, "two")
    assert builder.exists()


def test_a_file_from_elsewhere_changes_nothing(node: Volumes, tmp_path: Path, place: Path) -> None:
    node.create("one", "digest")
    node.mark_ready("one")
    foreign = tmp_path / "foreign"
    with tarfile.open(foreign, "w:gz") as file:
        file.add("/etc/hostname", "backup/index.yaml")
    for source, content in ((tmp_path / "text", b"text"), (tmp_path / "torn", b"\x1f\x8b\x08\0torn"), (foreign, b"")):
        if content:
            source.write_bytes(content)
        with pytest.raises(ProviderError, match="Unable to import volume one"):
            node.import_from("one", "another", source)
    assert (place / "one" / "digest").read_text(encoding="ascii") == "digest\n"
    assert [one.name for one in place.iterdir()] == ["one"]


def test_without_zstd_it_is_gzip(node: Volumes, shell: Shell, builder: Path, nearby: Nearby, place: Path) -> None:
    for program in Path("/usr/bin").iterdir():
        if program.name != "zstd" and not (nearby.folder / program.name).exists():
            (nearby.folder / program.name).symlink_to(program)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(nearby.folder))
        node.create("one", "digest")
        node.mark_ready("one")
        assert (place / "one" / "content.tar.gz").exists()
        assert volumes.size(shell, "one") > 2_000_000
    assert builder.exists()


def test_a_missing_volume_is_an_error_and_a_bad_name_too(node: Volumes, shell: Shell, tmp_path: Path) -> None:
    with pytest.raises(ProviderError, match="Unable to use volume one") as caught:
        volumes.size(shell, "one")
    assert "no such volume" in caught.value.details
    with pytest.raises(ProviderError, match="Unable to fill"):
        volumes.fill(shell, 105, "one", str(tmp_path))
    with pytest.raises(ProviderError, match="Unable to mark volume one"):
        node.mark_ready("one")
    for name in ("../etc", ".hidden", "a/b", ""):
        with pytest.raises(ProviderError, match="Unable to delete volume") as caught:
            node.delete(name)
        assert "no name of a volume" in caught.value.details


def test_what_an_incus_has_exported_is_read(
    node: Volumes, shell: Shell, tmp_path: Path, nearby: Nearby, builder: Path
) -> None:
    """Incus writes an index, and the volume's files below backup/volume."""
    exported = tmp_path / "exported"
    (tmp_path / "index.yaml").write_text("name: one", encoding="ascii")
    (builder / "program").write_bytes(b"x" * 5000)
    (builder / "program").chmod(0o755)
    builder.chmod(0o750)
    with tarfile.open(exported, "w:gz") as file:
        file.add(tmp_path / "index.yaml", "backup/index.yaml")
        file.add(builder, "backup/volume")
    node.import_from("one", "digest", exported)
    assert volumes.ready(shell) == {"one"}
    disk = tmp_path / "disk"
    disk.mkdir()
    assert volumes.fill(shell, 105, "one", str(disk))
    assert (disk / "program").read_bytes() == b"x" * 5000
    assert (disk / "program").stat().st_mode & 0o777 == 0o755
    assert disk.stat().st_mode & 0o777 == 0o750
    assert not (disk / "index.yaml").exists()
    assert nearby.folder.exists()
