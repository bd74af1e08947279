"""Module `provision_paths`: what is said of files, folders, links and what is not there."""

from __future__ import annotations

import grp
import hashlib
import os
import pwd
from pathlib import Path

import pytest

from provisioner.ansible.modules import provision_paths

ME, MINE = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(os.getgid()).gr_name
MISSING = {"exists": False, "owner": "", "group": "", "mode": "", "sha256": ""}


def test_what_is_there_is_told_with_owner_mode_and_checksum(tmp_path: Path) -> None:
    file, folder, link = tmp_path / "file", tmp_path / "folder", tmp_path / "link"
    content = b"x" * (3 << 20)
    file.write_bytes(content)
    file.chmod(0o640)
    folder.mkdir()
    folder.chmod(0o2750)
    link.symlink_to(file)
    told = provision_paths.looked_at([str(file), str(folder), str(link)])
    sha256 = hashlib.sha256(content).hexdigest()
    of_file = {"exists": True, "owner": ME, "group": MINE, "mode": "0640", "sha256": sha256}
    of_folder = {"exists": True, "owner": ME, "group": MINE, "mode": "2750", "sha256": ""}
    assert told == {str(file): of_file, str(folder): of_folder, str(link): of_file}


@pytest.mark.parametrize("name", ["nothing", "file/below", "dangling"])
def test_what_is_not_there_has_no_checksum(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    assert provision_paths.looked_at([str(tmp_path / name)]) == {str(tmp_path / name): MISSING}


def test_an_owner_without_a_name_is_told_by_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    (tmp_path / "file").touch()
    assert provision_paths.looked_at([str(tmp_path / "file")])[str(tmp_path / "file")]["owner"] == str(os.getuid())


def test_what_cannot_be_looked_at_is_an_error(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(OSError, match="loop"):
        provision_paths.looked_at([str(loop)])


def test_a_checksum_is_told_only_where_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret")
    path = str(tmp_path / "key")
    assert provision_paths.looked_at([path], checksums=False)[path] == {
        **provision_paths.looked_at([path])[path],
        "sha256": "",
    }


@pytest.mark.parametrize(
    ("status", "missing"), [("installed", []), ("unpacked", ["haproxy"]), ("config-files", ["haproxy"])]
)
def test_a_package_counts_once_its_installation_came_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str, missing: list[str]
) -> None:
    """As dpkg itself answers, with a database of the test's: it ends with 1 where it does not know one of them."""
    (tmp_path / "info").mkdir()
    (tmp_path / "updates").mkdir()
    about = "Package: haproxy\nStatus: install ok {}\nVersion: 1\nArchitecture: all\nMaintainer: x\nDescription: x\n"
    (tmp_path / "status").write_text(about.format(status))
    monkeypatch.setenv("DPKG_ADMINDIR", str(tmp_path))
    assert provision_paths.missing_packages(["haproxy", "nobody"]) == [*missing, "nobody"]
    assert provision_paths.missing_packages([]) == []
