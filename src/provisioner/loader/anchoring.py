"""What a file says of this machine's files and folders, as the same thing from everywhere."""

from __future__ import annotations

from pathlib import Path

from provisioner.spec import Model, Spec
from provisioner.spec.folders import CONFIG, SMALL_BYTES, FolderError, format_by_name, format_of, method_of
from provisioner.values.regular_files import open_file


def anchored(spec: Spec, path: Path) -> Spec:
    """The spec with each ``file:`` and ``dir:`` absolute: they were written relative to the lab's file.

    The format of a folder, where the file does not say it, is the one that its config.json or its name tells.
    """
    folder = path.resolve().parent
    models = {
        name: _anchored(model, folder)
        for name, model in spec.models.items()
        if model.source.startswith(("file:", "dir:"))
    }
    return spec.model_copy(update={"models": {**spec.models, **models}}) if models else spec


def _anchored(model: Model, folder: Path) -> Model:
    kind, _, written = model.source.partition(":")
    place = folder / Path(written).expanduser()
    form = model.format or _format_in(place)
    return model.model_copy(update={"source": f"{kind}:{place}", "format": form})


def _format_in(place: Path) -> str | None:
    """None where nothing tells it; what is wrong with the folder is told by those who need its files."""
    try:
        with open_file(place / CONFIG) as stream:
            return format_of(method_of(stream.read(SMALL_BYTES)), place.name)
    except (OSError, FolderError):
        return format_by_name(place.name)
