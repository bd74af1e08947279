"""Models that are folders on this machine (``dir:``): what is taken of them, and what is refused."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from provisioner.lab.opening.model_files import find_models, missing_files
from provisioner.labfile.spec import Model
from provisioner.models.folders import is_needed
from tests.folder_files import CONFIG, INDEX, SHARDS, config, folder_files, write_folder


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def said_of(folder: Path, form: str | None = "exl3") -> str:
    model = Model.model_validate({"source": f"dir:{folder}", "format": form})
    (problem,) = missing_files({"m": model})
    assert problem.path == ("models", "m", "source")
    return f"{problem.message}; {problem.hint}"


def test_both_are_told_where_they_contradict_each_other(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "small", folder_files("gptq"))
    assert said_of(folder) == "its config.json says gptq, and its format is exl3; Write format: gptq"
    (folder / CONFIG).write_bytes(config(None))
    assert "names no quantisation, and its format is exl3; Write format: safetensors" in said_of(folder)
    (folder / CONFIG).write_bytes(config("bitsandbytes"))
    assert "its config.json says bitsandbytes; Write format: exl3 | exl2" in said_of(folder, None)


def test_what_is_missing_is_told_with_what_is_there(tmp_path: Path) -> None:
    assert said_of(tmp_path / "none") == f"no folder {tmp_path}/none; "
    folder = tmp_path / "small"
    folder.mkdir()
    assert "there is no config.json in it; it is empty" in said_of(folder)
    write_folder(folder, folder_files())
    (folder / SHARDS[1]).unlink()
    assert f"its {INDEX} names {SHARDS[1]}, which is not there" in said_of(folder)
    (folder / SHARDS[0]).unlink()
    said = said_of(folder)
    assert "there is no *.safetensors in it; there: .gitattributes, README.md" in said
    (folder / CONFIG).unlink()
    (folder / CONFIG).mkdir()
    assert "there is no config.json in it" in said_of(folder)


def test_a_link_out_of_the_folder_is_refused_and_one_within_is_followed(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "small", folder_files())
    (tmp_path / "elsewhere").write_bytes(b"{}")
    (folder / "tokenizer_config.json").unlink()
    (folder / "tokenizer_config.json").symlink_to("../elsewhere")
    assert "tokenizer_config.json is a link out of it; Copy the folder with what its links lead to" in said_of(folder)
    (folder / "tokenizer_config.json").unlink()
    (folder / "tokenizer_config.json").symlink_to("tokenizer.json")
    (folder / "README.md").unlink()
    (folder / "README.md").symlink_to("/etc/hostname")
    (tmp_path / "link").symlink_to(folder)
    model = Model(source=f"dir:{tmp_path}/link", format="exl3")
    assert list(missing_files({"m": model})) == []
    found = find_models({"m": model}, {}).files["m"]
    named = {Path(one.file).name: one.sha256 for one in found.rest}
    assert named["tokenizer_config.json"] == hashlib.sha256(folder_files()["tokenizer.json"]).hexdigest()


def test_links_that_lead_to_each_other_are_told(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "small", folder_files())
    (folder / CONFIG).unlink()
    (folder / CONFIG).symlink_to("tokenizer.model")
    (folder / "tokenizer.model").symlink_to(CONFIG)
    assert "small" in said_of(folder)


def test_a_name_that_is_no_plain_one_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "small", {**folder_files(), "model (1).safetensors": b"x"})
    assert "'model (1).safetensors' cannot be the name of a model's file" in said_of(folder)


@pytest.mark.parametrize(
    "name",
    ["pytorch_model.bin", "tokenizer.bin", "vocab.pt", "tokenizer.py", "model.safetensors.gguf", "._a.safetensors"],
)
def test_pickles_code_and_images_are_never_taken(name: str) -> None:
    assert not is_needed(name)


def test_an_untouched_folder_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(source=f"dir:{write_folder(tmp_path / 'small', folder_files())}", format="exl3")
    first = find_models({"m": model}, {}).files
    monkeypatch.setattr(hashlib, "file_digest", lambda *_: pytest.fail("it was read again"))
    assert find_models({"m": model}, {}).files == first


def test_a_folder_that_has_changed_since_it_was_looked_at_is_told(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "small", folder_files())
    model = Model(source=f"dir:{folder}", format="exl3")
    assert list(missing_files({"m": model})) == []
    (folder / CONFIG).unlink()
    assert [one.message for one in find_models({"m": model}, {}).problems] == ["there is no config.json in it"]
