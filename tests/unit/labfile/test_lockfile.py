"""The lock file is written as it is read, keeps what others wrote into it, and is refused when it is damaged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.labfile.pins import Pin, read_pins, write_pins
from provisioner.models.sources import ModelPart
from provisioner.values.errors import InputError, ProvisionError
from provisioner.values.paths import lock_file

PIN = Pin("hf:acme/Small-GGUF:Q4_K_M", "1e10" * 10, "Small-Q4_K_M.gguf", "1" * 64, 5)
GOOD = f"""version: 1
models:
  small:
    source: {PIN.source}
    revision: "{PIN.revision}"
    file: {PIN.file}
    sha256: "{PIN.sha256}"
    size: 5
"""


LAUGHS = (
    "a: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    + "".join(f"b{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 30))
    + "version: 1\nmodels: { m: *a29 }\n"
)


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "homelab.lock"


def test_it_lies_beside_the_file() -> None:
    assert lock_file(Path("lab/homelab.yml")) == Path("lab/homelab.lock")


def test_what_is_written_is_read_again(lock: Path) -> None:
    assert read_pins(lock) == {}
    write_pins(lock, {"small": PIN})
    assert read_pins(lock) == {"small": PIN}
    assert "To take what a repository of models holds now" in lock.read_text()
    assert [one.name for one in lock.parent.iterdir()] == ["homelab.lock"]
    assert lock.stat().st_mode & 0o777 == 0o644
    before = lock.read_bytes()
    write_pins(lock, read_pins(lock))
    assert lock.read_bytes() == before


def test_what_is_not_of_models_stays(lock: Path) -> None:
    lock.write_text(GOOD + "stacks: { exl3: [a] }\n")
    write_pins(lock, {})
    assert "exl3" in lock.read_text()
    assert read_pins(lock) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "version is None"),
        ("version: 2\n", "version is 2"),
        ("- a\n", "version is None"),
        ("a: [", "while parsing"),
        ("version: 1\nmodels: [a]\n", ""),
        ("version: 1\nmodels: { a: b }\n", "A model there has"),
        (GOOD.replace("    size: 5\n", ""), "A model there has"),
        (GOOD.replace("size: 5", "size: five"), "no text, or a size no number"),
        (GOOD.replace("size: 5", "size: true"), "no text, or a size no number"),
        (GOOD.replace('"' + "1" * 64 + '"', "1" * 64), "no text, or a size no number"),
        (GOOD.replace("1" * 64, "xyz"), "xyz is no sha256"),
        (GOOD.replace(PIN.revision, "../main"), "../main is no commit"),
        (GOOD.replace(PIN.file, "sub/.."), "sub/.. is no model's file"),
        (GOOD.replace(PIN.file, "../../x-Q4_K_M.gguf"), "../../x-Q4_K_M.gguf is no model's file"),
        (GOOD.replace("size: 5", "size: -5"), "no text, or a size no number"),
        ("version: !!python/object:os.system {}\n", "could not determine a constructor"),
        ("[" * 20_000, "nested too deeply"),
        ("version: [[1]]\n", "version is no number"),
        ("version: 1\nmodels: !!bool maybe\n", ""),
        ("version: !!float x\n", ""),
        ("version: 2020-99-99\n", ""),
        ("version: 1\n" + "# " + "x" * 2_100_000, "more than 2000000 bytes"),
        (LAUGHS, "A model there has"),
    ],
)
def test_a_damaged_one_is_refused_and_named(lock: Path, text: str, words: str) -> None:
    lock.write_text(text)
    with pytest.raises(InputError) as caught:
        read_pins(lock)
    assert str(caught.value).startswith(f"Unable to use {lock}")
    assert words in caught.value.details
    assert "Restore it" in caught.value.resolution


def test_a_folder_that_cannot_be_written_is_told(lock: Path) -> None:
    with pytest.raises(ProvisionError, match="Unable to write"):
        write_pins(lock.parent / "missing" / "homelab.lock", {"small": PIN})


PARTS = [ModelPart(f"q/Small-Q8_0-0000{number}-of-00003.gguf", f"{number}" * 64, number) for number in (1, 2, 3)]
SPLIT = Pin("hf:acme/Small-GGUF:Q8_0", "1e10" * 10, PARTS[0].file, PARTS[0].sha256, 1, tuple(PARTS[1:]))


def test_a_model_of_several_files_is_read_as_it_was_written(lock: Path) -> None:
    write_pins(lock, {"small": PIN, "split": SPLIT})
    assert read_pins(lock) == {"small": PIN, "split": SPLIT}
    assert lock.read_text().count("rest:") == 1


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        (PARTS[1:2], "is in 3 files, and others are there"),
        ((PARTS[2], PARTS[1]), "is in 3 files, and others are there"),
        ((PARTS[1], replace(PARTS[2], sha256="x")), "x is no sha256"),
        ((PARTS[1], replace(PARTS[2], size=None)), "a size no number"),
        (("a", "b"), "A further file of a model there has file, sha256, size"),
    ],
)
def test_a_model_that_lacks_a_part_is_refused(lock: Path, rest: Sequence[ModelPart], words: str) -> None:
    write_pins(lock, {"split": SPLIT})
    content = yaml.safe_load(lock.read_text())
    content["models"]["split"]["rest"] = [asdict(one) if isinstance(one, ModelPart) else one for one in rest]
    lock.write_text(yaml.safe_dump(content))
    with pytest.raises(InputError) as caught:
        read_pins(lock)
    assert words in caught.value.details


def test_further_files_that_are_no_list_are_refused(lock: Path) -> None:
    lock.write_text(GOOD + "    rest: 7\n")
    with pytest.raises(InputError, match="Unable to use"):
        read_pins(lock)


WORDS = ("config.json", "model.safetensors", "tokenizer.json")
FILES = tuple(ModelPart(name, f"{number}" * 64, number) for number, name in enumerate(WORDS, 1))
FOLDER = Pin("hf:acme/Small-exl3@4.00bpw", "1e10" * 10, FILES[0].file, FILES[0].sha256, 1, FILES[1:], "exl3")


def test_a_folder_is_read_as_it_was_written(lock: Path) -> None:
    write_pins(lock, {"small": PIN, "folder": FOLDER})
    assert read_pins(lock) == {"small": PIN, "folder": FOLDER}
    assert lock.read_text().count("method: exl3") == 1
    assert [one.file for one in FOLDER.files] == list(WORDS)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"rest": FILES[2:]}, "there is no *.safetensors in it"),
        ({"rest": (FILES[2], FILES[1])}, "has files that no model has, or no method"),
        ({"rest": (*FILES[1:], FILES[2])}, "has files that no model has, or no method"),
        ({"rest": (*FILES[1:], replace(FILES[2], file="weights.bin"))}, "has files that no model has"),
        ({"rest": (replace(FILES[1], file="sub/model.safetensors"), FILES[2])}, "cannot be the name of a model's file"),
        ({"rest": (replace(FILES[1], file="../model.safetensors"), FILES[2])}, "model.safetensors is no model's file"),
        ({"file": "model.gguf"}, "there is no config.json in it"),
        ({"method": ""}, "or no method"),
        ({"method": "a b"}, "or no method"),
        ({"source": "hf:acme/Small-GGUF:Q8_0"}, "config.json is no model's file"),
    ],
)
def test_a_folder_that_is_no_whole_model_is_refused(lock: Path, changed: dict[str, Any], words: str) -> None:
    write_pins(lock, {"folder": replace(FOLDER, **changed)})
    with pytest.raises(InputError) as caught:
        read_pins(lock)
    assert words in caught.value.details


def test_a_method_is_text_and_a_gguf_has_none(lock: Path) -> None:
    for line in ("method: 7", "method: exl3"):
        lock.write_text(GOOD + f"    {line}\n")
        with pytest.raises(InputError, match="Unable to use"):
            read_pins(lock)
