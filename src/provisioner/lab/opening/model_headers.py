"""What the models' files on the controller say of themselves, read when a lab's file is opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from provisioner.labfile.spec import Model
from provisioner.models.folders import CONFIG, SMALL_BYTES, FolderError, header_of
from provisioner.models.header import GgufError, Header
from provisioner.models.sources import (
    TINY,
    TINY_EMBEDDING,
    TINY_HF,
    TINY_RERANK,
    TINY_THINKING,
    is_folder,
    part_count,
    part_names,
)
from provisioner.values.declared import Problem
from provisioner.values.regular_files import open_file

PARTS_HINT = "Give all of them the names that llama-gguf-split gives (x-00001-of-00003.gguf), in one folder."


def read_headers(models: Mapping[str, Model]) -> tuple[dict[str, Header], list[Problem]]:
    """What each file that is here says of its model, and a problem for each that cannot be read. Writes nothing."""
    headers: dict[str, Header] = {}
    broken: list[Problem] = []
    for name, model in models.items():
        if is_folder(model.source):
            header = _of_folder(model)
            headers |= {name: header} if header else {}
            continue
        file = Path(model.source.removeprefix("file:"))
        try:
            header = _header_of(model, file)
        except (GgufError, OSError) as error:
            said = (error.strerror if isinstance(error, OSError) else None) or str(error)
            hint = "Fetch the file again, and compare its sha256 with its makers'."
            broken.append(Problem(("models", name, "source"), f"{file} is no usable GGUF file: {said}", hint))
            continue
        count = part_count(file.name)
        if header and header.parts != count:
            message = f"its head says that it is one of {header.parts} files, its name of {count}"
            broken.append(Problem(("models", name, "source"), message, PARTS_HINT))
        else:
            headers |= {name: header} if header else {}
    return headers, broken


def _of_folder(model: Model) -> Header | None:
    """What its config.json says; None where that is not here, or is what ``folder_problem`` refuses."""
    if model.source == TINY_HF:
        from provisioner.models.tiny_hf import tiny_config

        return header_of(tiny_config())
    if not model.source.startswith("dir:"):
        return None
    try:
        with open_file(Path(model.source.removeprefix("dir:")) / CONFIG) as stream:
            return header_of(stream.read(SMALL_BYTES))
    except (OSError, FolderError):
        return None


def _header_of(model: Model, file: Path) -> Header | None:
    if model.source in (TINY, TINY_THINKING):
        from provisioner.models.tiny import CONTEXT, EMBEDDING, FEED_FORWARD, HEADS, LAYERS, THOUGHT, TOKENS

        size = EMBEDDING // HEADS
        numbers = {"block_count": LAYERS, "context_length": CONTEXT, "embedding_length": EMBEDDING}
        numbers |= {"attention.head_count": HEADS, "attention.head_count_kv": HEADS}
        numbers |= {"feed_forward_length": FEED_FORWARD}
        values = {"general.architecture": "llama", **{f"llama.{name}": one for name, one in numbers.items()}}
        tokens = {TINY: TOKENS, TINY_THINKING: TOKENS + len(THOUGHT)}
        return Header("llama", LAYERS, CONTEXT, size, size, values=values, tokens=tokens[model.source])
    if model.source in (TINY_EMBEDDING, TINY_RERANK):
        from provisioner.models.tiny_bert import TINY_BERTS

        return TINY_BERTS[model.source].header
    if model.source.startswith("file:") and file.is_file():
        return _whole(file)
    return None


def _whole(file: Path) -> Header:
    """What the first file says, with the tensors of all that are there."""
    from provisioner.models.gguf import read_header

    first, *rest = (read_header(one) for one in map(file.with_name, part_names(file.name)) if one.is_file())
    tensors = dict(first.tensors)
    for one in rest:
        tensors |= one.tensors
    return replace(first, tensors=tensors, parameters=sum(one.parameters for one in (first, *rest)))
