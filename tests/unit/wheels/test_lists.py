"""Lists of packages and files of wheels, read into one set."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from provisioner.values.errors import InputError
from provisioner.wheels.given import ListError, of_torch, parts_given, parts_of_pylock, parts_of_requirements
from provisioner.wheels.rule import Part
from tests.wheel_files import write_wheel

REQUIREMENTS = """
--index-url https://download.pytorch.org/whl/cu128
# what it computes with
torch==2.9.0+cu128 \\
    --hash=sha256:0000 --hash=sha256:1111
exllamav3 @ https://github.com/turboderp-org/exllamav3/releases/download/v1.4.2/exllamav3-1.4.2%2Bcu128.torch2.9.0-cp312-cp312-linux_x86_64.whl
./wheels/flash_attn-2.8.3+cu128torch2.9-cp312-cp312-linux_x86_64.whl
numpy==2.1.0 ; python_version >= "3.10"
triton==3.5.0; python_version < "3.10"
fastapi>=0.110
causal-conv1d @ git+https://github.com/Dao-AILab/causal-conv1d
"""
PYLOCK = b"""
lock-version = "1.0"
created-by = "uv"
[[packages]]
name = "torch"
version = "2.9.0+cu128"
wheels = [
  { url = "https://download.pytorch.org/whl/cu128/torch-2.9.0%2Bcu128-cp311-cp311-manylinux_2_28_x86_64.whl" },
  { url = "https://download.pytorch.org/whl/cu128/torch-2.9.0%2Bcu128-cp312-cp312-manylinux_2_28_x86_64.whl" },
]
[[packages]]
name = "Flash_Attn"
archive = { path = "flash_attn-2.8.3+cu128torch2.9-cp312-cp312-linux_x86_64.whl" }
[[packages]]
name = "causal-conv1d"
sdist = { name = "causal_conv1d-1.7.0.tar.gz" }
"""


def names(parts: tuple[Part, ...]) -> list[str]:
    """The packages of a set."""
    return [part.package for part in parts]


def test_requirements_give_wheels_pins_and_what_is_neither() -> None:
    parts = {part.package: part for part in parts_of_requirements(REQUIREMENTS, "3.12")}
    assert list(parts) == ["torch", "causal-conv1d", "exllamav3", "fastapi", "flash-attn", "numpy"]
    assert str(parts["torch"].builds[0].version) == "2.9.0+cu128"
    assert parts["exllamav3"].builds[0].torch == (2, 9)
    assert parts["flash-attn"].builds[0].tags
    assert "no exact version" in parts["fastapi"].trouble
    assert "from its source" in parts["causal-conv1d"].trouble


def test_of_a_list_only_what_has_to_do_with_torch_is_judged() -> None:
    found = of_torch(parts_of_requirements(REQUIREMENTS, "3.12"))
    assert names(found) == ["torch", "causal-conv1d", "exllamav3", "flash-attn"]


def test_a_lock_gives_all_wheels_of_each_package() -> None:
    torch, conv, flash = parts_of_pylock(PYLOCK)
    assert [len(part.builds) for part in (torch, conv, flash)] == [2, 0, 1]
    assert flash.package == "flash-attn"
    assert "from its source" in conv.trouble


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("torch==2.9.0\ntorch==2.9.1", "two versions of torch are named: 2.9.0 and 2.9.1"),
        ("-r others.txt", "line 1 names another file"),
        ("torch==2.9.0\ntorch 2.9 !!", "line 2 is no requirement"),
        ("torch @ https://user:hunter2@example.org/torch-2.9.whl", "line 1 is no requirement"),
    ],
)
def test_a_list_that_nobody_can_read_names_the_line(text: str, says: str) -> None:
    with pytest.raises(ListError) as caught:
        parts_of_requirements(text)
    assert says in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "content", [b"[[packages]]\nversion = 1", b"packages = 3", b"x = [", b"\xff\xfe", b"[project]"]
)
def test_what_is_no_lock_is_refused(content: bytes) -> None:
    with pytest.raises(ListError):
        parts_of_pylock(content)


def test_a_wheel_that_is_there_is_asked_for_its_metadata(tmp_path: Path) -> None:
    file = write_wheel(tmp_path, "torchvision-0.24.0-cp312-cp312-manylinux_2_28_x86_64.whl", "torch==2.9.0", "numpy")
    (part,) = parts_given([str(file)])
    assert part.requires == ("torch==2.9.0", "numpy")
    (absent,) = parts_given([file.name])
    assert absent.requires is None


@pytest.mark.parametrize("content", [b"no archive", None])
def test_a_file_that_is_no_wheel_is_named(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "torch-2.9.0-cp312-cp312-linux_x86_64.whl"
    if content is None:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("torch/METADATA", "Name: torch")
    else:
        file.write_bytes(content)
    with pytest.raises(InputError, match="as a wheel") as caught:
        parts_given([str(file)])
    assert caught.value.details


@pytest.mark.parametrize("name", ["nothing.txt", "folder", "torch.whl", "torch-2.9.0.whl"])
def test_what_is_not_there_or_no_list_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="Unable to read") as caught:
        parts_given([str(tmp_path / name)])
    assert caught.value.details


def test_several_lists_are_one_set(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("torch==2.9.0+cu128")
    (tmp_path / "b.toml").write_bytes(PYLOCK)
    assert names(parts_given([str(tmp_path / "a.txt"), str(tmp_path / "b.toml")])) == [
        "torch",
        "causal-conv1d",
        "flash-attn",
    ]
    (tmp_path / "a.txt").write_text("torch==2.10.0")
    with pytest.raises(InputError, match="Unable to judge"):
        parts_given([str(tmp_path / "a.txt"), str(tmp_path / "b.toml")])
