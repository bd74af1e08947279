"""Models that are folders on this machine: ``dir:``."""

from __future__ import annotations

from pathlib import Path

from provisioner.lab import ModelFile
from provisioner.labfile.spec import Model
from provisioner.models.folders import (
    SMALL_BYTES,
    FolderError,
    contradiction,
    is_needed,
    is_read_whole,
    method_in,
    selected,
    unknown_format,
)
from provisioner.models.sources import ModelPart
from provisioner.values.regular_files import open_file

_LINK_HINT = "Copy the folder with what its links lead to: cp -rL {folder} NEW"


def folder_of(model: Model) -> Path:
    """The folder of a ``dir:`` source."""
    return Path(model.source.removeprefix("dir:"))


def folder_file(model: Model) -> ModelFile:
    """Return all files of the folder, config.json first; none that ``folder_problem`` refuses."""
    folder = folder_of(model)
    first, *rest = [folder / name for name in selected(_names(folder))]
    parts = tuple(ModelPart(str(one), "", one.stat().st_size) for one in rest)
    return ModelFile(str(first), first.name, "", first.stat().st_size, rest=parts, is_folder=True)


def folder_problem(model: Model) -> FolderError | None:
    """Why the folder cannot be the model that the file says it is; reads its small files only."""
    folder = folder_of(model)
    if not folder.is_dir():
        return FolderError(f"no folder {folder}")
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
