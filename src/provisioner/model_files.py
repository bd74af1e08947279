"""The files behind the models that a lab's services use: found, or written (``builtin:``), on the controller."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from provisioner import paths
from provisioner.gguf import GgufError, Header, read_header
from provisioner.resolve import ModelFile
from provisioner.spec import Model
from provisioner.state import Problem

BUILTIN_TINY = "builtin:tiny"


def local_models(models: Mapping[str, Model]) -> dict[str, ModelFile]:
    """A ``ModelFile`` for each model; ``file:`` sources are absolute by now. Writes only into the cache.

    Sources that ``missing_files`` names must not be asked for.
    """
    return {name: _file_of(model) for name, model in models.items()}


def missing_files(models: Mapping[str, Model]) -> Iterable[Problem]:
    """A problem for each ``file:`` source that is not there."""
    for name, model in models.items():
        if model.source.startswith("file:") and not _path(model).is_file():
            yield Problem(("models", name, "source"), f"no file {_path(model)}")


def read_headers(models: Mapping[str, Model]) -> tuple[dict[str, Header], list[Problem]]:
    """What each model's file that is here says of itself, and a problem for each that cannot be read. Writes nothing."""
    headers: dict[str, Header] = {}
    broken: list[Problem] = []
    for name, model in models.items():
        try:
            header = _header_of(model)
        except (GgufError, OSError) as error:
            said = (error.strerror if isinstance(error, OSError) else None) or str(error)
            hint = "Fetch the file again, and compare its sha256 with its makers'."
            broken.append(Problem(("models", name, "source"), f"{_path(model)} is no usable GGUF file: {said}", hint))
        else:
            headers |= {name: header} if header else {}
    return headers, broken


def _header_of(model: Model) -> Header | None:
    if model.source == BUILTIN_TINY:
        from provisioner.tiny_model import CONTEXT, EMBEDDING, HEADS, LAYERS

        return Header("llama", LAYERS, CONTEXT, EMBEDDING // HEADS, EMBEDDING // HEADS)
    if model.source.startswith("file:") and _path(model).is_file():
        return read_header(_path(model))
    return None


def _file_of(model: Model) -> ModelFile:
    if model.source == BUILTIN_TINY:
        from provisioner.tiny_model import SHA256, ensure_tiny_model

        file = ensure_tiny_model(paths.cache() / "models")
        return ModelFile(str(file), file.name, SHA256)
    file = _path(model)
    return ModelFile(str(file), file.name, model.sha256 or _sha256(file))


def _path(model: Model) -> Path:
    return Path(model.source.removeprefix("file:"))


def _sha256(file: Path) -> str:
    """The file's sha256; one that was not touched since it was hashed is not read again (10 s for 6 GiB)."""
    seen = file.stat()
    identity = f"{file}\0{seen.st_size} {seen.st_mtime_ns} {seen.st_ctime_ns} {seen.st_ino} {seen.st_dev}"
    note = paths.cache() / "hashes" / hashlib.sha256(identity.encode()).hexdigest()
    if note.is_file():
        return note.read_text(encoding="ascii")
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = note.with_suffix(f".{os.getpid()}")
    partial.write_text(digest, encoding="ascii")
    partial.replace(note)
    return digest
