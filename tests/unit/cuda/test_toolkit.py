"""The files of a toolkit: found through links, replaced both or none, and whole after a kill at any moment."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from provisioner.cuda.headers import examine
from provisioner.cuda.look import look_at
from provisioner.cuda.toolkit import read_toolkit, write_headers
from provisioner.values.errors import PreflightError, ProvisionError
from tests.unit.cuda.synthetic import made, texts, write_toolkit

NEW = (2, 43)
NOBODY = 65534


class Killed(BaseException):
    """What a kill is to the program: nothing of it runs any more."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A toolkit of the generation whose rsqrt conflicts."""
    write_toolkit(tmp_path / "cuda-13.0")
    return tmp_path / "cuda-13.0"


def fix(root: Path) -> tuple[Path, ...]:
    toolkit = read_toolkit(root)
    return write_headers(toolkit, examine(toolkit.headers).mended)


def revert(root: Path) -> tuple[Path, ...]:
    toolkit = read_toolkit(root)
    return write_headers(toolkit, examine(toolkit.headers).original)


@pytest.mark.parametrize("below", ["", "include", "targets/x86_64-linux/include"])
def test_root_and_include_directory_are_the_same_toolkit(root: Path, below: str) -> None:
    toolkit = read_toolkit(root / below)
    assert toolkit.include == (root / "targets/x86_64-linux/include").resolve()
    assert (toolkit.version, toolkit.gcc_limit) == ("13.0", 15)
    assert toolkit.headers == made("13.0")


def test_a_root_without_include_is_found_by_its_target(root: Path) -> None:
    (root / "include").unlink()
    assert read_toolkit(root).version == "13.0"


def test_version_and_limit_may_be_unknown(root: Path) -> None:
    (root / "include/cuda_runtime_api.h").unlink()
    (root / "include/crt/host_config.h").write_text("")
    toolkit = read_toolkit(root)
    assert (toolkit.version, toolkit.gcc_limit) == (None, None)


def test_fix_and_revert_are_each_others_end_and_twice_is_once(root: Path) -> None:
    before = texts(root / "include")
    crt = (root / "include/crt").resolve()
    assert fix(root) == (crt / "math_functions.h", crt / "math_functions.hpp")
    assert look_at(root, NEW)[0].headers.state == "fixed"
    assert fix(root) == ()
    assert revert(root) == (crt / "math_functions.hpp", crt / "math_functions.h")
    assert texts(root / "include") == before
    assert revert(root) == ()
    assert sorted(one.name for one in crt.iterdir()) == ["host_config.h", "math_functions.h", "math_functions.hpp"]


def test_mode_and_owner_are_kept_and_a_build_sees_the_change(root: Path) -> None:
    file = root / "include/crt/math_functions.h"
    file.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(file, 1234, 4321)
    os.utime(file, (1, 1))
    before = file.stat()
    fix(root)
    after = file.stat()
    assert stat.S_IMODE(after.st_mode) == 0o640
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)
    assert after.st_mtime > before.st_mtime


def test_links_are_followed_and_stay_and_a_second_name_of_the_file_keeps_its_content(
    root: Path, tmp_path: Path
) -> None:
    file = root / "include/crt/math_functions.h"
    store = tmp_path / "store"
    store.mkdir()
    shutil.move(file, store / "header")
    file.symlink_to(store / "header")
    os.link(store / "header", tmp_path / "cache")  # as package managers share files between environments
    fix(root)
    assert file.is_symlink()
    assert "BEGIN provisioner" in (store / "header").read_text(encoding="latin-1")
    assert (tmp_path / "cache").read_text(encoding="latin-1") == made("13.0").declarations


@pytest.mark.parametrize("verb", [fix, revert])
@pytest.mark.parametrize("moment", [1, 2])
def test_a_kill_between_the_renames_is_made_good_by_the_next_run(
    root: Path, monkeypatch: pytest.MonkeyPatch, verb: Callable[[Path], object], moment: int
) -> None:
    before = texts(root / "include")
    if verb is revert:
        fix(root)
    left = texts(root / "include")
    count = 0
    replace = Path.replace

    def killed(self: Path, target: Path) -> Path:
        nonlocal count
        count += 1
        if count == moment:
            raise Killed
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        patch.setattr(Path, "unlink", lambda *_args, **_options: None)  # the dead tidy nothing up
        with pytest.raises(Killed):
            verb(root)
    seen = look_at(root, (2, 36))[0]
    if moment == 1:
        assert texts(root / "include") == left
    else:
        assert seen.headers.state == "half"
        assert seen.is_pending
        # The macros are defined wherever they are used: what compiled before still does.
        assert "BEGIN provisioner" in seen.toolkit.headers.declarations
        assert "_SPEC" not in seen.toolkit.headers.definitions
    assert [one for one in (root / "include/crt").iterdir() if one.name.endswith(".provision")]
    fix(root)
    assert look_at(root, NEW)[0].headers.state == "fixed"
    revert(root)
    assert texts(root / "include") == before
    assert not [one for one in (root / "include/crt").iterdir() if one.name.startswith(".")]


def test_an_error_between_the_renames_says_what_is_left_to_do(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = Path.replace

    def refused(self: Path, target: Path) -> Path:
        if target.suffix == ".hpp":
            raise OSError(5, "Input/output error")
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", refused)
        with pytest.raises(ProvisionError, match="the other header was replaced") as caught:
            fix(root)
    assert not isinstance(caught.value, PreflightError)
    assert "again" in caught.value.resolution
    assert len(fix(root)) == 1


def test_a_full_disk_leaves_both_headers_as_they_were(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = texts(root / "include")
    calls = []

    def full(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(PreflightError, match="Unable to write the headers") as caught:
        fix(root)
    assert "No space left" in caught.value.details
    assert texts(root / "include") == before
    assert not [one for one in (root / "include/crt").iterdir() if one.name.startswith(".")]


@pytest.fixture
def readable_only() -> Iterator[Path]:
    """A toolkit that this process may read and not write."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    write_toolkit(folder / "cuda")
    crt = folder / "cuda/include/crt"
    crt.chmod(0o555)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    yield folder / "cuda"
    if is_root:
        os.seteuid(0)
    crt.chmod(0o755)
    shutil.rmtree(folder)


def test_a_read_only_directory_is_refused_with_the_way_out(readable_only: Path) -> None:
    before = texts(readable_only / "include")
    assert look_at(readable_only, NEW)[0].is_pending
    with pytest.raises(PreflightError, match="Unable to write the headers") as caught:
        fix(readable_only)
    assert "Permission denied" in caught.value.details
    assert "--overlay" in caught.value.resolution
    assert texts(readable_only / "include") == before


def test_unreadable_headers_are_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("provisioner.cuda.toolkit.content_of", refused)
    with pytest.raises(PreflightError, match="Unable to read the CUDA toolkit"):
        read_toolkit(root)


def test_what_is_no_toolkit_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "half/include/crt").mkdir(parents=True)
    (tmp_path / "half/include/crt/math_functions.h").write_text("")
    for name, reason in {
        "nothing": "there is no such directory",
        "file": "it is no directory",
        ".": "neither it nor its include directory holds crt/math_functions.h",
        "half": "crt/math_functions.hpp is missing",
    }.items():
        with pytest.raises(PreflightError, match=reason) as caught:
            read_toolkit(tmp_path / name)
        assert "toolkit's root" in caught.value.resolution
