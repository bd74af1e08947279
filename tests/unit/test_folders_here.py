"""Models that are folders on this machine (``dir:``): what is taken of them, and what is refused."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from provisioner.lab.opening.model_files import find_models, missing_files
from provisioner.labfile.spec import Model
from provisioner.models import hashes
from provisioner.models.folders import is_needed
from tests.folder_files import CONFIG, SHARDS, config, folder_files, write_folder
from tests.lab_files import hashed_models


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def said_of(folder: Path, form: str | None = "exl3") -> str:
    model = Model.model_validate({"source": f"dir:{folder}", "format": form})
    (problem,) = missing_files({"m": model})
    assert problem.path == ("models", "m", "source")
    return f"{problem.message}; {problem.hint}"


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
    found = hashed_models({"m": model}, {})["m"]
    named = {Path(one.file).name: one.sha256 for one in found.rest}
    assert named["tokenizer_config.json"] == hashlib.sha256(folder_files()["tokenizer.json"]).hexdigest()


NO_MODEL: dict[str, tuple[dict[str, bytes | None] | None, str | None]] = {
    "another format": ({CONFIG: config("gptq")}, "exl3"),
    "no quantisation": ({CONFIG: config(None)}, "exl3"),
    "a quantisation of nobody": ({CONFIG: config("bitsandbytes")}, None),
    "no folder": (None, "exl3"),
    "empty": (dict.fromkeys(folder_files()), "exl3"),
    "a shard is missing": ({SHARDS[1]: None}, "exl3"),
    "no weights": (dict.fromkeys(SHARDS), "exl3"),
    "no configuration": ({CONFIG: None}, "exl3"),
    "a name that is no plain one": ({"model (1).safetensors": b"x"}, "exl3"),
}


@pytest.mark.parametrize(("files", "form"), NO_MODEL.values(), ids=NO_MODEL)
def test_a_folder_that_is_no_model_is_told_with_what_is_there(
    tmp_path: Path, files: dict[str, bytes | None] | None, form: str | None, snapshot: SnapshotAssertion
) -> None:
    folder = tmp_path / "small"
    if files is not None:
        folder.mkdir()
        there = {name: content for name, content in {**folder_files(), **files}.items() if content is not None}
        write_folder(folder, there)
    assert said_of(folder, form) == snapshot


def test_a_folder_in_the_place_of_the_configuration_is_none(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "small", folder_files())
    (folder / CONFIG).unlink()
    (folder / CONFIG).mkdir()
    assert "there is no config.json in it" in said_of(folder)


def test_links_that_lead_to_each_other_are_told(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "small", folder_files())
    (folder / CONFIG).unlink()
    (folder / CONFIG).symlink_to("tokenizer.model")
    (folder / "tokenizer.model").symlink_to(CONFIG)
    assert "small" in said_of(folder)


@pytest.mark.parametrize(
    "name",
    ["pytorch_model.bin", "tokenizer.bin", "vocab.pt", "tokenizer.py", "model.safetensors.gguf", "._a.safetensors"],
)
def test_pickles_code_and_images_are_never_taken(name: str) -> None:
    assert not is_needed(name)


def test_an_untouched_folder_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(source=f"dir:{write_folder(tmp_path / 'small', folder_files())}", format="exl3")
    first = hashed_models({"m": model}, {})
    monkeypatch.setattr(hashes, "open_file", lambda *_: pytest.fail("it was read again"))
    assert hashed_models({"m": model}, {}) == first


def test_a_folder_that_has_changed_since_it_was_looked_at_is_told(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "small", folder_files())
    model = Model(source=f"dir:{folder}", format="exl3")
    assert list(missing_files({"m": model})) == []
    (folder / CONFIG).unlink()
    assert [one.message for one in find_models({"m": model}, {}).problems] == ["there is no config.json in it"]
