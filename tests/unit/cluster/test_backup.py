"""What a node sends as its backup: only the files that belong there, whole, private; and the guests in it."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from provisioner.cluster.backup import require_whole, saved_guests, sums_of, unpack
from provisioner.values.errors import ProviderError

CONTAINER = (
    "arch: amd64\nhostname: web\nrootfs: local-lvm:vm-101-disk-0,size=8G\n[before]\nhostname: old\nmp0: a:b,mp=/x\n"
)
MACHINE = "name: db\nscsi0: ceph:vm-102-disk-0,size=32G\nide2: none,media=cdrom\n"


def archive(files: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o644
            tar.addfile(info, io.BytesIO(content))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            tar.addfile(info)
    return buffer.getvalue()


def backup(folder: Path, files: dict[str, bytes]) -> Path:
    sums = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items())
    for name, content in {**files, "SHA256SUMS": sums.encode()}.items():
        (folder / name).write_bytes(content)
    return folder


def test_only_what_belongs_into_a_backup_is_taken_out_and_it_is_private(tmp_path: Path) -> None:
    sent = archive(
        {"./authkey": b"key", "./../../escape": b"x", "/etc/cron.d/evil": b"x", "./other": b"x", "sub/authkey": b"x"},
        {"./config.db": "/etc/shadow"},
    )
    (tmp_path / "sent.tar").write_bytes(sent)
    target = tmp_path / "backup"
    target.mkdir()
    unpack(tmp_path / "sent.tar", target)
    assert {one.name: one.read_bytes() for one in target.iterdir()} == {"authkey": b"key"}
    assert (target / "authkey").stat().st_mode & 0o777 == 0o600
    assert sorted(one.name for one in tmp_path.iterdir()) == ["backup", "sent.tar"]


def test_a_file_sent_twice_does_not_replace_the_first(tmp_path: Path) -> None:
    buffer = io.BytesIO(archive({"authkey": b"one"})[:1024] + archive({"authkey": b"two"}))
    (tmp_path / "sent.tar").write_bytes(buffer.getvalue())
    with pytest.raises(FileExistsError):
        unpack(tmp_path / "sent.tar", tmp_path)


def test_a_whole_backup_is_trusted(tmp_path: Path) -> None:
    folder = backup(tmp_path, {"etc-pve.tar": b"tar", "config.db": b"db"})
    require_whole(folder)
    assert set(sums_of(folder)) == {"etc-pve.tar", "config.db"}


@pytest.mark.parametrize("change", ["cut", "missing", "no sums", "no tree"])
def test_a_backup_that_is_not_as_on_the_node_is_refused(tmp_path: Path, change: str) -> None:
    tree = {} if change == "no tree" else {"etc-pve.tar": b"tar"}
    folder = backup(tmp_path, {**tree, "config.db": b"db"})
    if change == "cut":
        (folder / "config.db").write_bytes(b"d")
    elif change == "missing":
        (folder / "config.db").unlink()
    elif change == "no sums":
        (folder / "SHA256SUMS").unlink()
    with pytest.raises(ProviderError, match="Unable to trust the backup") as caught:
        require_whole(folder)
    assert ("config.db" if change in ("cut", "missing") else "etc-pve.tar") in caught.value.details


def test_the_guests_of_a_node_are_read_from_its_saved_tree(tmp_path: Path) -> None:
    files = {
        "pve/nodes/pve3/lxc/101.conf": CONTAINER.encode(),
        "pve/nodes/pve3/qemu-server/102.conf": MACHINE.encode(),
        "pve/nodes/pve2/lxc/103.conf": CONTAINER.encode(),
        "pve/nodes/pve3/lxc/notes.conf": b"x",
    }
    (tmp_path / "etc-pve.tar").write_bytes(archive(files))
    web, db = saved_guests(tmp_path, "pve3")
    assert (web.vmid, web.kind, web.name, web.volumes) == (101, "lxc", "web", ("local-lvm:vm-101-disk-0",))
    assert web.digest == hashlib.sha256(CONTAINER.encode()).hexdigest()
    assert (db.vmid, db.kind, db.name, db.volumes) == (102, "qemu", "db", ("ceph:vm-102-disk-0",))
    assert saved_guests(tmp_path, "pve9") == ()
