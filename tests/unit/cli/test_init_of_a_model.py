"""``init --model``: a first file that serves what ``suggest`` has first, or nothing at all."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.snapshots import case_name
from tests.unit.cli.conftest import World
from tests.unit.cli.test_suggest import head, hub
from tests.unit.cli.test_suggest_folders import AWQ, EXL3, write_model
from tests.unit.models.test_hub import REPOSITORY

__all__ = ["hub"]
KEPT = {"cache", "state"}


@pytest.fixture
def bare(world: World, lab: Path) -> World:
    """No file."""
    lab.unlink()
    return world


def files(folder: Path) -> set[str]:
    """What lies there, beside what this program remembers."""
    return {path.name for path in folder.iterdir()} - KEPT


@pytest.mark.usefixtures("hub")
def test_the_file_serves_what_is_suggested(bare: World) -> None:
    assert bare.command("init", "--model", REPOSITORY, "--gpu", "8GiB").ended(0) == bare.snapshot
    text = Path("homelab.yml").read_text()
    block = bare.command("suggest", REPOSITORY, "--gpu", "8GiB").out
    served = block[block.index("models:") :].strip().replace("containers:\n  ", "containers:\n  homelab-")
    assert served in text
    assert text.startswith("# yaml-language-server: $schema=.provision/homelab.schema.json")
    bare.done("validate")
    assert Path(".provision/homelab.schema.json").is_file()


@pytest.mark.usefixtures("hub")
def test_the_use_decides(bare: World) -> None:
    (result,) = bare.command("init", "--model", REPOSITORY, "--gpu", "16GiB", "--use", "long", "--json").of("result")
    assert (result["written"], result["suggested"]["quant"]) == (True, "Q5_K_M")
    assert result["suggested"]["context"] >= 100_000


@pytest.mark.parametrize("form", ["exl3", "awq"])
def test_a_folder_and_its_keys_make_a_whole_file(bare: World, tmp_path: Path, form: str) -> None:
    folder = write_model(tmp_path / "models/Eight", 5000, **{"exl3": EXL3, "awq": AWQ}[form])
    bare.done("init", "--secrets", "--model", str(folder), "--gpu", "RTX 3060 12GB")
    bare.done("validate")
    said = yaml.safe_load(Path("homelab.yml").read_text().replace("!secret ", ""))
    assert list(said["containers"]["homelab-eight"]["services"]) == [{"exl3": "tabbyapi", "awq": "vllm"}[form]]
    assert "eight-api-key=" in Path("secrets.env").read_text()


@pytest.mark.usefixtures("hub")
def test_nothing_that_fits_writes_nothing(bare: World, tmp_path: Path) -> None:
    before = files(tmp_path)
    assert bare.command("init", "--secrets", "--model", REPOSITORY, "--gpu", "2GiB").ended(4) == bare.snapshot
    assert files(tmp_path) == before


def test_a_hub_that_does_not_answer_writes_nothing(
    bare: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    before = files(tmp_path)
    assert bare.command("init", "--model", REPOSITORY, "--gpu", "8GiB").code == 4
    assert files(tmp_path) == before


def test_a_file_that_is_there_is_kept(world: World, lab: Path) -> None:
    before = lab.read_text()
    Path("one.gguf").write_bytes(head(15))
    assert world.command("init", "--model", "one.gguf", "--gpu", "8GiB").ended(64) == world.snapshot
    assert lab.read_text() == before


@pytest.mark.parametrize(
    "line",
    [
        *("--gpu 8GiB", "--use code", "--model acme/Small", "--model nobody --gpu 8GiB"),
        *("--model acme/Small --gpu none", "--model acme/Small --gpu 8GiB --use fun"),
    ],
    ids=case_name,
)
def test_what_cannot_be_chosen_is_refused(bare: World, tmp_path: Path, line: str) -> None:
    before = files(tmp_path)
    assert bare.command("init", *line.split()).ended(64) == bare.snapshot
    assert files(tmp_path) == before


def test_too_short_a_context_is_said(bare: World) -> None:
    Path("one.gguf").write_bytes(head(15))
    assert bare.command("init", "--model", "one.gguf", "--gpu", "4GiB", "--use", "long").ended(0) == bare.snapshot
