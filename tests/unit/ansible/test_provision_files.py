"""Module `provision_files`: what is made, what is left as it is, and which ways it does not go."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from provisioner.ansible.modules import provision_files

ME, MINE = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(os.getgid()).gr_name


def wanted(path: Path, content: str | None = None, mode: str = "0644", **more: Any) -> dict[str, Any]:
    usual = {"owner": ME, "group": MINE, "mode": mode, "state": "present", "validate": None}
    return {"path": str(path), "content": content, **usual, **more}


def test_folders_and_files_are_made_in_their_order_and_a_second_time_changes_nothing(tmp_path: Path) -> None:
    files = [wanted(tmp_path / "a", mode="0750"), wanted(tmp_path / "a/b", "text ü\n", "0600")]
    assert provision_files.ensured(files, check_mode=False) == {str(tmp_path / "a"): "", str(tmp_path / "a/b"): ""}
    assert (tmp_path / "a/b").read_text(encoding="utf-8") == "text ü\n"
    assert [oct(path.stat().st_mode & 0o7777) for path in (tmp_path / "a", tmp_path / "a/b")] == ["0o750", "0o600"]
    assert provision_files.ensured(files, check_mode=False) == {}
    assert [one.name for one in (tmp_path / "a").iterdir()] == ["b"]


@pytest.mark.parametrize("change", ["content", "mode", "link", "gone"])
def test_what_differs_is_named_in_check_mode_and_mended_after(tmp_path: Path, change: str) -> None:
    file, other = tmp_path / "file", tmp_path / "other"
    files = [wanted(file, "text")]
    provision_files.ensured(files, check_mode=False)
    if change == "content":
        file.write_text("edited")
    elif change == "mode":
        file.chmod(0o666)
    else:
        file.unlink()
    if change == "link":
        other.write_text("text")
        file.symlink_to(other)
    before = {"content": "edited", "mode": "text", "link": "", "gone": ""}[change]
    assert provision_files.ensured(files, check_mode=True) == {str(file): before}
    assert provision_files.ensured(files, check_mode=True) == {str(file): before}
    assert provision_files.ensured(files, check_mode=False) == {str(file): before}
    assert (file.is_symlink(), file.read_text(), file.stat().st_mode & 0o777) == (False, "text", 0o644)


def test_a_way_through_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for one in (wanted(tmp_path / "link/file", "x"), wanted(tmp_path / "link"), wanted(Path("file"), "x")):
        with pytest.raises(ValueError, match="link"):
            provision_files.ensured([one], check_mode=False)
    assert list((tmp_path / "real").iterdir()) == []


def test_an_unknown_owner_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        provision_files.ensured([wanted(tmp_path / "file", "x", owner="nobody-at-all")], check_mode=False)
    assert list(tmp_path.iterdir()) == []


def test_what_should_not_be_there_is_removed_and_never_a_folder(tmp_path: Path) -> None:
    file, other = tmp_path / "file", tmp_path / "other"
    file.write_text("text")
    other.write_text("text")
    files = [wanted(file, "", state="absent")]
    assert provision_files.ensured(files, check_mode=True) == {str(file): "text"}
    assert file.exists()
    assert provision_files.ensured(files, check_mode=False) == {str(file): "text"}
    assert provision_files.ensured(files, check_mode=False) == {}
    file.symlink_to(other)
    provision_files.ensured(files, check_mode=False)
    assert [one.name for one in tmp_path.iterdir()] == ["other"]
    file.mkdir()
    with pytest.raises(OSError, match="file"):
        provision_files.ensured(files, check_mode=False)
    assert file.is_dir()


def test_what_is_shown_of_a_file_that_is_removed_holds_no_text_of_it(tmp_path: Path) -> None:
    written = provision_files.difference(wanted(tmp_path / "a", "new"), "old")
    assert (written["before"], written["after"]) == ("old", "new")
    removed = provision_files.difference(wanted(tmp_path / "a", state="absent"), "canary")
    assert "canary" not in str(removed)
    assert removed["before"] != removed["after"]


def test_what_a_program_does_not_accept_is_not_put_in_place(tmp_path: Path) -> None:
    file = tmp_path / "file"
    asks = ["sh", "-c", 'echo "$0 of $(stat -c %a "$1")" && grep -q good "$1"', "asked"]
    provision_files.ensured([wanted(file, "good", "0600", validate=asks)], check_mode=False)
    with pytest.raises(ValueError, match=r"sh does not accept what shall be .*/file \(1\): asked of 600\Z"):
        provision_files.ensured([wanted(file, "bad", "0600", validate=asks)], check_mode=False)
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("file", "good")]


def test_what_cannot_be_made_as_it_should_be_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fchmod", lambda *_: None)  # as on a file system without modes
    with pytest.raises(ValueError, match="is not as it should be"):
        provision_files.ensured([wanted(tmp_path / "file", "text", "0640")], check_mode=False)
