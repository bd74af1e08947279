"""No file that a user, a repository or a toolkit brings can hold us up: a FIFO, a device, a file without an end."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from provisioner.cli.options import container_names
from provisioner.cuda.toolkit import read_toolkit
from provisioner.lab.opening import open_lab
from provisioner.labfile.pins import read_pins, read_stacks
from provisioner.models.gguf import read_header
from provisioner.models.header import GgufError
from provisioner.values.errors import ProvisionError
from provisioner.values.limits import within
from provisioner.values.regular_files import content_of, open_file
from provisioner.wheels.given import parts_given
from tests.gguf_bytes import model_bytes

LAB = """\
name: lab
models:
  local: { source: "file:local.gguf" }
  folder: { source: "dir:folder", format: fp8 }
containers:
  engine: { services: { llama_cpp: { model: local } } }
  gateway: { services: { litellm: { master_key: !secret k, aliases: { fast: [local] } } } }
"""
BUDGET_S = 20.0
READERS: dict[str, Callable[[Path], object]] = {
    "homelab.yml": open_lab,
    "secrets.env": lambda file: open_lab(file.with_name("homelab.yml")),
    "local.gguf": lambda file: open_lab(file.with_name("homelab.yml")),
    "folder/config.json": lambda file: open_lab(file.parents[1] / "homelab.yml"),
    "folder/model.safetensors": lambda file: open_lab(file.parents[1] / "homelab.yml"),
    "homelab.lock": read_pins,
    "other.lock": read_stacks,
    "requirements.txt": lambda file: parts_given([str(file)]),
    "pylock.toml": lambda file: parts_given([str(file)]),
    "torch-2.9.0-cp312-cp312-linux_x86_64.whl": lambda file: parts_given([str(file)]),
    "include/crt/math_functions.h": lambda file: read_toolkit(file.parents[2]),
}
"""Each file that comes from outside, with what reads it."""


def _fifo(path: Path) -> None:
    os.mkfifo(path, 0o600)


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _sparse(path: Path) -> None:
    path.touch(0o600)
    os.truncate(path, 1 << 42)


def _folder(path: Path) -> None:
    path.mkdir(0o700)


def _circle(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A folder in which every file is as it should be."""
    (tmp_path / "homelab.yml").write_text(LAB)
    (tmp_path / "secrets.env").write_text("PROVISION_SECRET_K=sk-1\n")
    (tmp_path / "secrets.env").chmod(0o600)
    (tmp_path / "local.gguf").write_bytes(model_bytes())
    (tmp_path / "folder").mkdir()
    config = {"quantization_config": {"quant_method": "fp8"}}
    (tmp_path / "folder" / "config.json").write_text(json.dumps(config))
    (tmp_path / "folder" / "model.safetensors").write_bytes(b"x")
    (tmp_path / "include" / "crt").mkdir(parents=True)
    (tmp_path / "include" / "crt" / "math_functions.hpp").touch()
    return tmp_path


def test_the_folder_is_valid(lab: Path) -> None:
    assert open_lab(lab / "homelab.yml").name == "lab"


KINDS = (_fifo, _endless, _sparse, _folder, _circle)
CASES = {(name, kind) for name in READERS for kind in KINDS}
CASES -= {("folder/model.safetensors", _sparse)}  # weights may be large
CASES -= {("torch-2.9.0-cp312-cp312-linux_x86_64.whl", _circle)}  # a wheel that is not there is judged by its name


@pytest.mark.parametrize(("name", "kind"), sorted(CASES, key=str))
def test_what_is_no_file_is_refused_in_words_and_in_time(lab: Path, name: str, kind: Callable[[Path], None]) -> None:
    (lab / name).unlink(missing_ok=True)
    kind(lab / name)
    with pytest.raises(ProvisionError) as caught:
        within(BUDGET_S, lambda: READERS[name](lab / name))
    assert len(str(caught.value)) < 3000
    assert str(caught.value).startswith("Unable to ")


@pytest.mark.parametrize("kind", KINDS)
def test_a_shell_that_completes_is_not_held_up(lab: Path, kind: Callable[[Path], None]) -> None:
    (lab / "homelab.yml").unlink()
    kind(lab / "homelab.yml")
    assert within(BUDGET_S, lambda: container_names(lab / "homelab.yml")) == []


@pytest.mark.parametrize("kind", [_fifo, _endless, _folder])
def test_only_regular_files_are_opened(tmp_path: Path, kind: Callable[[Path], None]) -> None:
    kind(tmp_path / "it")
    with pytest.raises(OSError, match="no regular file"):
        within(BUDGET_S, lambda: open_file(tmp_path / "it"))


def test_a_file_has_its_limit(tmp_path: Path) -> None:
    (tmp_path / "it").write_bytes(b"12345")
    assert content_of(tmp_path / "it", 5) == b"12345"
    with pytest.raises(OSError, match="more than 4 bytes"):
        content_of(tmp_path / "it", 4)


def test_a_sparse_model_is_no_model(tmp_path: Path) -> None:
    _sparse(tmp_path / "it.gguf")
    with pytest.raises(GgufError, match="begins with"):
        read_header(tmp_path / "it.gguf")
