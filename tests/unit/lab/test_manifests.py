"""Stored models: the hash of the list beside them, by which units name them, and which of them are cached."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import yaml
from jinja2 import Environment, StrictUndefined

from provisioner.lab.artifacts import CACHED_MODEL_BYTES, ModelFile, manifest_digest, stored
from provisioner.models.sources import ModelPart

ROLE = Path(__file__).resolve().parents[3] / "roles/model_store"
FILES = [("a" * 64, "x-00001-of-00002.gguf"), ("b" * 64, "x-00002-of-00002.gguf")]


def written(files: list[tuple[str, str]]) -> str:
    """The content of the manifest as the role's own expressions make it."""
    variables = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))
    tasks = yaml.safe_load((ROLE / "tasks/build.yml").read_text(encoding="utf-8"))
    (content,) = [
        task["ansible.builtin.copy"]["content"] for task in tasks if task["name"] == "build | Write the manifest"
    ]
    templates = Environment(undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True)  # noqa: S701  # no HTML
    templates.filters["zip"] = zip
    entries = [{"sha256": sha256, "filename": name} for sha256, name in files]
    of_lines = variables["__model_store_lines"].strip().removeprefix("{{").removesuffix("}}")
    lines = templates.compile_expression(of_lines)(__model_store_files=entries) or ()
    return templates.from_string(content).render(__model_store_lines=list(lines))


@pytest.mark.parametrize("files", [FILES, FILES[:1]])
def test_it_is_the_hash_of_what_the_role_writes(files: list[tuple[str, str]]) -> None:
    content = written(files)
    assert content.count("\n") == len(files)
    assert manifest_digest(files) == hashlib.sha256(content.encode()).hexdigest()
    assert manifest_digest(files) != manifest_digest(FILES[::-1])


@pytest.mark.parametrize(
    ("size", "rest", "is_copied"),
    [
        (1 << 20, (), True),
        (CACHED_MODEL_BYTES + 1, (), False),
        (None, (), False),
        (1, (ModelPart("/models/2.gguf", "0" * 64),), False),
    ],
    ids=["small", "large", "unknown", "of several files"],
)
def test_only_a_small_model_is_copied_into_the_cache(
    size: int | None, rest: tuple[ModelPart, ...], is_copied: bool
) -> None:
    """A large one would lie on the disk twice."""
    file = ModelFile("/models/m.gguf", "m.gguf", "0" * 64, size, rest=rest)
    assert stored("m", file, "box", "debian/12").cacheable is is_copied
