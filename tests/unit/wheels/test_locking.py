"""A stack is frozen with all that it asks for, by the real uv from a folder of small wheels with real names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from provisioner.values.errors import PreflightError, ProvisionError
from provisioner.wheels.known import COLUMNS, UNVERIFIED, Stack
from provisioner.wheels.locking import LockRequest, locked
from tests.wheel_files import sha256_of, write_wheel

TORCH = "torch-2.9.0+cu128-cp312-cp312-manylinux_2_28_x86_64.whl"
FLASH = "flash_attn-2.8.3+cu128torch2.9-cp312-cp312-linux_x86_64.whl"
CONV = "causal_conv1d-1.6.2.post1+cu12torch2.9cxx11abiTRUE-cp312-cp312-linux_x86_64.whl"
EINOPS = "einops-0.8.1-py3-none-any.whl"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A mirror: the stack's wheels, what they ask for, and other builds that a resolver would prefer."""
    write_wheel(tmp_path, TORCH, "sympy>=1.13", "filelock ; python_version < '3.11'")
    write_wheel(tmp_path, FLASH, "torch", "einops", "xformers")
    write_wheel(tmp_path, CONV, "torch", version="1.6.2.post1")
    write_wheel(tmp_path, "torch-2.11.0+cu130-cp312-cp312-manylinux_2_28_x86_64.whl")
    write_wheel(tmp_path, "flash_attn-2.8.3+cu130torch2.11-cp312-cp312-linux_x86_64.whl", "torch")
    write_wheel(tmp_path, EINOPS)
    write_wheel(tmp_path, "sympy-1.14.0-py3-none-any.whl")
    write_wheel(tmp_path, "sympy-1.13.0-py3-none-any.whl")
    return tmp_path


def stack(folder: Path, **hashes: str) -> Stack:
    """The stack of torch, flash-attn and causal-conv1d whose wheels lie there, with the hashes of the files."""
    files = {"torch": TORCH, "flash-attn": FLASH, "causal-conv1d": CONV}
    packages: dict[str, Any] = {
        name: {
            "version": file.split("-")[1].lower(),
            "wheels": [
                {
                    "url": f"https://wheels.invalid/{file.replace('+', '%2B')}",
                    "sha256": hashes.get(name.replace("-", "_"), sha256_of(folder / file)),
                }
            ],
        }
        for name, file in files.items()
    }
    missing = {column: "not wanted" for column in COLUMNS if column not in packages}
    return Stack(
        id="mine",
        title="mine",
        source="here",
        cuda="12.8",
        driver="525.60.13",
        python=("3.12",),
        packages=packages,
        missing=missing,
        without=("xformers",),
    )


def test_everything_that_is_asked_for_is_frozen_with_its_hash(folder: Path) -> None:
    found = {one.name: one for one in locked(stack(folder), LockRequest("3.12", source=str(folder)))}
    assert {name: one.version for name, one in found.items()} == {
        "causal-conv1d": "1.6.2.post1+cu12torch2.9cxx11abitrue",
        "einops": "0.8.1",
        "flash-attn": "2.8.3+cu128torch2.9",
        "sympy": "1.14.0",
        "torch": "2.9.0+cu128",
    }
    assert found["torch"].sha256 == sha256_of(folder / TORCH)
    assert found["einops"].sha256 == sha256_of(folder / EINOPS)
    assert found["flash-attn"].url == f"https://wheels.invalid/{FLASH.replace('+', '%2B')}"
    assert found["einops"].url == (folder / EINOPS).as_uri()


def test_a_wheel_without_an_address_is_taken_from_the_index_and_held_to_its_hash(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    monkeypatch.setenv("UV_OFFLINE", "1")
    file = write_wheel(folder, "einops-0.8.99-py3-none-any.whl").name

    def only(sha256: str) -> Stack:
        package = {"version": "0.8.99", "wheels": [{"url": file, "sha256": sha256}]}
        whole = stack(folder).model_dump() | {"packages": {"einops": package}}
        return Stack(**whole | {"missing": dict.fromkeys(COLUMNS, "not wanted")})

    (found,) = locked(only(sha256_of(folder / file)), LockRequest("3.12"))
    assert (found.version, found.url) == ("0.8.99", (folder / file).as_uri())
    with pytest.raises(ProvisionError, match="is not what it should be"):
        locked(only("0" * 64), LockRequest("3.12"))


def test_what_is_wanted_besides_counts(folder: Path) -> None:
    found = locked(stack(folder), LockRequest("3.12", source=str(folder), extra=("sympy<1.14  # older", "")))
    assert {one.name: one.version for one in found}["sympy"] == "1.13.0"


def test_a_hash_that_nobody_knows_has_to_be_accepted(folder: Path) -> None:
    mine = stack(folder, flash_attn=UNVERIFIED)
    with pytest.raises(PreflightError, match="1 of its files") as caught:
        locked(mine, LockRequest("3.12", source=str(folder)))
    assert caught.value.details == FLASH
    assert "--accept-unverified" in caught.value.resolution
    found = locked(mine, LockRequest("3.12", source=str(folder), accept_unverified=True))
    assert {one.name: one.sha256 for one in found}["flash-attn"] == sha256_of(folder / FLASH)


def test_another_file_than_the_page_says_is_refused(folder: Path) -> None:
    with pytest.raises(ProvisionError, match="is not what it should be") as caught:
        locked(stack(folder, torch="0" * 64), LockRequest("3.12", source=str(folder)))
    assert "0" * 64 in caught.value.details
    assert sha256_of(folder / TORCH) in caught.value.details


def test_another_python_lists_those_that_there_are(folder: Path) -> None:
    with pytest.raises(PreflightError, match=r"no wheel for Python 3\.11") as caught:
        locked(stack(folder), LockRequest("3.11", source=str(folder)))
    assert "3.12" in caught.value.details


def test_what_is_not_there_is_told_in_uv_s_words(folder: Path) -> None:
    (folder / EINOPS).unlink()
    with pytest.raises(PreflightError, match="no solution") as caught:
        locked(stack(folder), LockRequest("3.12", source=str(folder)))
    assert "einops" in caught.value.details


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("kill -KILL $$", "uv did not look to the end; It says nothing; signal 9 ended it."),
        ("exit 2", "uv did not look to the end; It says nothing; it ended with 2."),
        ("echo 'no room' >&2; exit 2", "uv did not look to the end; no room"),
        ("exit 1", "uv finds no solution; It says nothing; it ended with 1."),
    ],
)
def test_a_uv_that_does_not_come_to_an_answer_is_told_by_how_it_ended(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: str, told: str
) -> None:
    program = folder / "uv"
    program.write_text(f"#!/bin/sh\n{words}\n")
    program.chmod(0o755)
    monkeypatch.setattr("uv.find_uv_bin", lambda: str(program))
    with pytest.raises(PreflightError) as refused:
        locked(stack(folder), LockRequest("3.12", source=str(folder)))
    assert f"{refused.value.message}; {refused.value.details}" == f"Unable to lock mine for Python 3.12: {told}"


def test_sources_are_not_taken(folder: Path) -> None:
    (folder / EINOPS).unlink()
    (folder / "einops-0.8.1.tar.gz").write_bytes(b"")
    with pytest.raises(PreflightError, match="no solution"):
        locked(stack(folder), LockRequest("3.12", source=str(folder)))
