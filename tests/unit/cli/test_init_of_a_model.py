"""``init --model``: a first file that serves what ``suggest`` has first, or nothing at all."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.file_server import FileServer
from tests.unit.cli.conftest import World
from tests.unit.cli.test_suggest import head, hub
from tests.unit.cli.test_suggest_folders import AWQ, EXL3, write_model
from tests.unit.test_hub import REPOSITORY

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


def test_the_file_serves_what_is_suggested(bare: World, hub: FileServer) -> None:
    answer = bare.command("init", "--model", REPOSITORY, "--gpu", "8GiB")
    assert answer.code == 0, answer.err
    assert len(hub.seen) > 0
    assert "Eight-Q5_K_M: llama_cpp, " in answer.out + answer.err
    text = Path("homelab.yml").read_text()
    block = bare.command("suggest", REPOSITORY, "--gpu", "8GiB").out
    assert block[block.index("models:") :].strip() in text
    assert text.startswith("# yaml-language-server: $schema=.provision/homelab.schema.json")
    validated = bare.command("validate")
    assert validated.code == 0, validated.err
    assert Path(".provision/homelab.schema.json").is_file()


def test_the_use_decides(bare: World, hub: FileServer) -> None:
    answer = bare.command("init", "--model", REPOSITORY, "--gpu", "16GiB", "--use", "long", "--json")
    (result,) = answer.of("result")
    assert (result["written"], result["suggested"]["quant"]) == (True, "Q5_K_M")
    assert result["suggested"]["context"] >= 100_000
    assert len(hub.seen) > 0


@pytest.mark.parametrize("form", ["exl3", "awq"])
def test_a_folder_and_its_keys_make_a_whole_file(bare: World, tmp_path: Path, form: str) -> None:
    folder = write_model(tmp_path / "models/Eight", 5000, **{"exl3": EXL3, "awq": AWQ}[form])
    answer = bare.command("init", "--secrets", "--model", str(folder), "--gpu", "RTX 3060 12GB")
    assert answer.code == 0, answer.err
    validated = bare.command("validate")
    assert validated.code == 0, validated.err
    said = yaml.safe_load(Path("homelab.yml").read_text().replace("!secret ", ""))
    assert list(said["containers"]["eight"]["services"]) == [{"exl3": "tabbyapi", "awq": "vllm"}[form]]
    assert "eight-api-key=" in Path("secrets.env").read_text()


def test_nothing_that_fits_writes_nothing(bare: World, hub: FileServer, tmp_path: Path) -> None:
    before = files(tmp_path)
    answer = bare.command("init", "--secrets", "--model", REPOSITORY, "--gpu", "2GiB")
    assert answer.code == 4
    assert "a dense model is not split" in answer.err
    assert files(tmp_path) == before
    assert len(hub.seen) > 0


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
    answer = world.command("init", "--model", "one.gguf", "--gpu", "8GiB")
    assert (answer.code, "It is there already." in answer.err) == (64, True)
    assert lab.read_text() == before


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--gpu", "8GiB"), "no model is named"),
        (("--use", "code"), "no model is named"),
        (("--model", "acme/Small"), "--gpu 8GiB"),
        (("--model", "nobody", "--gpu", "8GiB"), "no folder and no repository"),
        (("--model", "acme/Small", "--gpu", "none"), "--gpu"),
        (("--model", "acme/Small", "--gpu", "8GiB", "--use", "fun"), "--use"),
    ],
)
def test_what_cannot_be_chosen_is_refused(bare: World, tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    before = files(tmp_path)
    answer = bare.command("init", *words)
    assert (answer.code, told in answer.err) == (64, True), answer.err
    assert files(tmp_path) == before


def test_too_short_a_context_is_said(bare: World) -> None:
    Path("one.gguf").write_bytes(head(15))
    answer = bare.command("init", "--model", "one.gguf", "--gpu", "4GiB", "--use", "long")
    assert answer.code == 0, answer.err
    assert "It has less than the 131,072 tokens that long should have." in answer.out + answer.err
