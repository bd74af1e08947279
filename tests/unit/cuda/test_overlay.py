"""The overlay: a folder of one file, never mixed with anything else, and the line that makes nvcc read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.cuda.overlay import FILE, TEXT, environment_line, write_overlay
from provisioner.values.errors import PreflightError


def test_it_is_written_once(tmp_path: Path) -> None:
    folder = tmp_path / "new/overlay"
    assert write_overlay(folder)
    assert (folder / FILE).read_text() == TEXT
    assert not write_overlay(folder)
    assert [one.relative_to(folder) for one in folder.rglob("*") if one.is_file()] == [FILE]


def test_an_older_or_unfinished_one_is_renewed(tmp_path: Path) -> None:
    write_overlay(tmp_path)
    (tmp_path / FILE).write_text(TEXT.partition("\n")[0] + "\n")
    assert write_overlay(tmp_path)
    assert (tmp_path / FILE).read_text() == TEXT


@pytest.mark.parametrize("name", ["stdio.h", "bits/stdio.h", "bits/mathcalls.h"])
def test_a_folder_with_something_else_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("not ours")
    with pytest.raises(PreflightError, match="there is something else") as caught:
        write_overlay(tmp_path)
    assert name in caught.value.details
    assert (tmp_path / name).read_text() == "not ours"


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name in ("file", "file/below"):
        with pytest.raises(PreflightError, match="Unable to write the overlay"):
            write_overlay(tmp_path / name)


def test_a_path_that_nvcc_would_cut_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="cuts its environment at blanks"):
        write_overlay(tmp_path / "my overlay")
    assert not (tmp_path / "my overlay").exists()


def test_the_line_names_the_whole_path_for_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert environment_line(Path("overlay")) == f"NVCC_PREPEND_FLAGS=-I{tmp_path.resolve()}/overlay"
    assert environment_line(Path("a$b")) == f"NVCC_PREPEND_FLAGS='-I{tmp_path.resolve()}/a$b'"


def test_it_has_no_include_guard() -> None:
    assert "#ifndef" not in TEXT
    assert "#pragma once" not in TEXT
    assert TEXT.count("push_macro") == TEXT.count("pop_macro") == 1
