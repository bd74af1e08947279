"""The files behind the models that a lab's services use, and what those on the controller say of themselves."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from glob import escape
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from provisioner.lab import ModelFile
from provisioner.labfile.spec import Model
from provisioner.models.folders import (
    CONFIG,
    SMALL_BYTES,
    FolderError,
    ModelSourceError,
    contradiction,
    header_of,
    is_needed,
    is_read_whole,
    method_in,
    selected,
    unknown_format,
)
from provisioner.models.header import GgufError, Header
from provisioner.models.sources import (
    TINY,
    TINY_EMBEDDING,
    TINY_HF,
    TINY_RERANK,
    TINY_THINKING,
    ModelPart,
    filename_of,
    hub_place,
    hub_revision,
    is_folder,
    part_count,
    part_names,
)
from provisioner.values import paths
from provisioner.values.declared import Problem, Secret
from provisioner.values.errors import UnavailableError
from provisioner.values.refusals import did_you_mean
from provisioner.values.regular_files import open_file

if TYPE_CHECKING:
    from provisioner.labfile.pins import Pin
    from provisioner.models.hub import Hub
    from provisioner.values.events import Event


_PARTS_HINT = "Give all of them the names that llama-gguf-split gives (x-00001-of-00003.gguf), in one folder."
MOST_BESIDE = 1000
"""Files of a folder among which one is looked for whose name was written wrongly."""
EACH_S = 1.0
"""So often it is said how much of a file was read."""


@dataclass(frozen=True, slots=True)
class Found:
    """The models' files; ``pins`` are those of hubs, ``notes`` say which of them the lock file does not hold yet."""

    files: Mapping[str, ModelFile]
    pins: Mapping[str, Pin]
    notes: tuple[str, ...]
    problems: tuple[Problem, ...]

    def hashed(self, emit: Callable[[Event], None]) -> Found:
        """Return the same with the hashes of all files; ``emit`` is told how far the reading of a large file is."""
        return replace(self, files={name: hashed(file, emit) for name, file in self.files.items()})


def find_models(models: Mapping[str, Model], pins: Mapping[str, Pin]) -> Found:
    """Return a ``ModelFile`` for each model; ``file:`` and ``dir:`` sources are absolute. Writes only into the cache.

    A hub is asked only for what ``pins`` do not tell. Sources that ``missing_files`` names must not be asked for.
    """
    files: dict[str, ModelFile] = {}
    used: dict[str, Pin] = {}
    notes: list[str] = []
    problems: list[Problem] = []
    for name, model in models.items():
        try:
            if model.source.startswith("hf:"):
                pin = used[name] = _pin_of(name, model, pins.get(name))
                files[name] = _hub_file(model, pin)
                if pin is not pins.get(name):
                    notes.append(_note(name, pin))
            elif model.source.startswith("dir:"):
                files[name] = folder_file(model)
            else:
                files[name] = _file_of(model)
        except ModelSourceError as error:
            problems.append(Problem(("models", name, "source"), error.message, error.hint))
    return Found(files, used, tuple(notes), tuple(problems))


def missing_files(models: Mapping[str, Model]) -> Iterable[Problem]:
    """A problem for each ``file:`` or ``dir:`` source that is not there, not all of it, or not what it shall be."""
    for name, model in models.items():
        if model.source.startswith("dir:") and (error := folder_problem(model)):
            yield Problem(("models", name, "source"), error.message, error.hint)
        if model.source.startswith("file:"):
            for message, hint in _missing(_path(model)):
                yield Problem(("models", name, "source"), message, hint)


def _missing(file: Path) -> Iterable[tuple[str, str]]:
    first, *rest = _parts(file)
    if not file.is_file():
        yield f"no file {file}", _not_there(file)
    elif file != first:
        yield "this is not the first file of a model of several", f"Write its path with the name {first.name}."
    else:
        for one in (one for one in rest if not one.is_file()):
            yield f"its model is in {1 + len(rest)} files, and there is no {one.name} beside it", ""


def _file_of(model: Model) -> ModelFile:
    if model.source == TINY:
        from provisioner.models.tiny import SHA256, ensure_tiny_model

        file = ensure_tiny_model(paths.cache() / "models")
        return ModelFile(str(file), file.name, SHA256, file.stat().st_size)
    if model.source == TINY_THINKING:
        from provisioner.models.tiny import THINKING_SHA256, ensure_tiny_thinking

        file = ensure_tiny_thinking(paths.cache() / "models")
        return ModelFile(str(file), file.name, THINKING_SHA256, file.stat().st_size)
    if model.source in (TINY_EMBEDDING, TINY_RERANK):
        from provisioner.models.tiny_bert import TINY_BERTS

        tiny = TINY_BERTS[model.source]
        file = tiny.ensure(paths.cache() / "models")
        return ModelFile(str(file), file.name, tiny.sha256, file.stat().st_size)
    if model.source == TINY_HF:
        return _tiny_folder()
    if model.source.startswith("https:"):
        return ModelFile(model.source, filename_of(model.source), str(model.sha256), access=_access("download", None))
    file = _path(model)
    rest = tuple(ModelPart(str(one), "", one.stat().st_size) for one in _parts(file)[1:])
    size = file.stat().st_size if file.is_file() else None  # with a hash in the file it may be missing still
    return ModelFile(str(file), file.name, model.sha256 or "", size, rest=rest)


def hashed(file: ModelFile, emit: Callable[[Event], None]) -> ModelFile:
    """Return the model's file with the hashes of all of its parts; says how far it is where that takes long."""
    first = file.sha256 or _hash(Path(file.path), emit)
    rest = tuple(part if part.sha256 else replace(part, sha256=_hash(Path(part.file), emit)) for part in file.rest)
    return replace(file, sha256=first, rest=rest)


def _hash(file: Path, emit: Callable[[Event], None]) -> str:
    from provisioner.models.hashes import sha256_of  # nothing that models of hubs need
    from provisioner.values.events import ApplyComplete, ApplyProgress

    began = told = time.monotonic()
    size, said = file.stat().st_size, 0

    def on_read(count: int) -> None:
        nonlocal told, said
        now = time.monotonic()
        if now - told >= EACH_S:
            told, said = now, said + 1
            emit(
                ApplyProgress(file.name, f"reading all of it for its sha256: {100 * count // size} %", goes_on=said > 1)
            )

    digest = sha256_of(file, on_read)
    if said:
        emit(ApplyComplete(file.name, "read", time.monotonic() - began))
    return digest


def _tiny_folder() -> ModelFile:
    """The built-in folder as one of ``dir:`` would be: the same files are the same volume."""
    from provisioner.models.tiny_hf import HASHES, ensure_tiny_folder

    folder = ensure_tiny_folder(paths.cache() / "models")
    parts = []
    for name, sha256 in HASHES.items():
        file = folder / name
        parts.append(ModelPart(str(file), sha256, file.stat().st_size))
    first, *rest = parts
    return ModelFile(first.file, first.filename, first.sha256, first.size, rest=tuple(rest), is_folder=True)


def _pin_of(name: str, model: Model, pin: Pin | None) -> Pin:
    """Return which file of a hub the model is: what ``pin`` says, else what the hub answers.

    Raises ``ModelSourceError`` where that cannot be the model, ``UnavailableError`` where the hub does not answer.
    """
    if pin is None or pin.source != model.source or model.sha256 not in (None, pin.sha256):
        from provisioner.models.hub import UnreachableHubError, hub_of_environment

        try:
            pin = _asked(hub_of_environment(), model)
        except UnreachableHubError as error:
            what = f"Unable to find out which file model {name} is ({model.source})"
            raise UnavailableError(what, details=error.message, resolution=error.hint) from error
    if model.sha256 not in (None, pin.sha256):
        hint = "Correct sha256, or leave it out: the lock file holds what was found."
        raise ModelSourceError(f"{pin.file} hashes to {pin.sha256} there, and sha256 is {model.sha256}", hint)
    if pin.method and model.format and (other := contradiction(model.format, pin.method)):
        raise other
    return pin


def _hub_file(model: Model, pin: Pin) -> ModelFile:
    from provisioner.models.hub import hub_of_environment

    hub, repository = hub_of_environment(), _repository(model.source)
    first, *rest = (replace(one, file=hub.address(repository, pin.revision, one.file)) for one in pin.files)
    access = _access("hub", hub.token)
    filename = pin.file.rpartition("/")[2]
    return ModelFile(first.file, filename, pin.sha256, pin.size, access, tuple(rest), is_folder=is_folder(model.source))


def _asked(hub: Hub, model: Model) -> Pin:
    from provisioner.labfile.pins import Pin
    from provisioner.models.hub import find_file, find_folder

    source = model.source
    seen = find_folder(hub, *hub_revision(source)) if is_folder(source) else find_file(hub, *hub_place(source))
    return Pin(source, seen.revision, seen.file, seen.sha256, seen.size, seen.rest, seen.method)


def _repository(source: str) -> str:
    return (hub_revision(source) if is_folder(source) else hub_place(source))[0]


def _note(name: str, pin: Pin) -> str:
    size = sum(one.size or 0 for one in pin.files) / 1e9
    files = f"{pin.file} and {len(pin.rest)} more" if pin.rest else pin.file
    return f"Model {name} is {files} ({size:.2f} GB) of {_repository(pin.source)}, commit {pin.revision[:12]}"


def _access(kind: str, token: Secret | None) -> Secret | None:
    """What a download needs to know and nobody else: the token, and the proxies, whose addresses may hold passwords."""
    from provisioner.models.hub import proxies_of

    proxies = proxies_of(os.environ)
    if token is None and not proxies:
        return None
    return Secret(f"{kind}:access", json.dumps({"token": token.reveal() if token else None, "proxies": proxies}))


def _path(model: Model) -> Path:
    return Path(model.source.removeprefix("file:"))


def _parts(file: Path) -> list[Path]:
    return [file.with_name(name) for name in part_names(file.name)]


# Models that are folders on this machine: `dir:`.


_LINK_HINT = "Copy the folder with what its links lead to: cp -rL {folder} NEW"


def _folder_of(model: Model) -> Path:
    """The folder of a ``dir:`` source."""
    return Path(model.source.removeprefix("dir:"))


def folder_file(model: Model) -> ModelFile:
    """Return all files of the folder, config.json first; none that ``folder_problem`` refuses."""
    folder = _folder_of(model)
    first, *rest = [folder / name for name in selected(_names(folder))]
    parts = tuple(ModelPart(str(one), "", one.stat().st_size) for one in rest)
    return ModelFile(str(first), first.name, "", first.stat().st_size, rest=parts, is_folder=True)


def _not_there(path: Path) -> str:
    """Return what to do about a path at which nothing is: a name beside it that is much like its own, or its rule."""
    alike = path.parent.glob(f"*{escape(path.suffix)}")
    beside = sorted(one.name for one in islice(alike, MOST_BESIDE))
    close = did_you_mean(path.name, beside)
    return close if close.startswith("did you mean") else "A path begins at the folder of the lab's file, or with /."


def folder_problem(model: Model) -> FolderError | None:
    """Why the folder cannot be the model that the file says it is; reads its small files only."""
    folder = _folder_of(model)
    if not folder.is_dir():
        return FolderError(f"no folder {folder}", _not_there(folder))
    try:
        names = selected(_names(folder))
        method = method_in({name: _content(folder / name) for name in names if is_read_whole(name)}, names)
    except FolderError as error:
        return FolderError(f"{folder} is no model that is a folder: {error.message}", error.hint)
    except (OSError, RuntimeError) as error:  # links that lead to each other are no error of the system
        return FolderError(f"{folder} cannot be read: {getattr(error, 'strerror', None) or error}")
    return unknown_format(method) if model.format is None else contradiction(model.format, method)


def _names(folder: Path) -> list[str]:
    """The names of its files; a link that leads out of it is no file of it."""
    whole, names = folder.resolve(), []
    for one in folder.iterdir():
        if is_needed(one.name) and not one.resolve().is_relative_to(whole):
            raise FolderError(f"{one.name} is a link out of it", _LINK_HINT.format(folder=folder))
        if one.is_file():
            names.append(one.name)
    return names


def _content(file: Path) -> bytes:
    with open_file(file) as stream:
        content = stream.read(SMALL_BYTES + 1)
    if len(content) > SMALL_BYTES:
        raise FolderError(f"its {file.name} has more than {SMALL_BYTES // 10**6} MB")
    return content


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
            broken.append(Problem(("models", name, "source"), message, _PARTS_HINT))
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
