"""What a user names to have it judged: wheels (there or not), lists of packages; read into parts of one set."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from email.parser import BytesParser
from pathlib import Path

from provisioner.values.errors import InputError
from provisioner.values.regular_files import content_of, open_file
from provisioner.wheels.builds import WheelNameError, build_of
from provisioner.wheels.lists import ListError, merged, of_torch, parts_of_pylock, parts_of_requirements
from provisioner.wheels.parts import Part

METADATA_LIMIT = 4 * 2**20
"""Bytes of a wheel's METADATA that are read: real ones have some 10 kB."""
_HINT = "Name a stack (provision stacks), wheels (files, or only their names), requirements.txt or pylock.toml."


def parts_given(names: Sequence[str], python: str = "") -> tuple[Part, ...]:
    """One set of all that is named, of lists what has to do with torch.

    Raises ``InputError`` for what cannot be read, and for a package in two versions.
    """
    parts: list[Part] = []
    for name in names:
        parts.extend(_parts(name, python))
    try:
        return merged(parts)
    except ListError as error:
        raise InputError(f"Unable to judge {', '.join(names)}", details=str(error), resolution=_HINT) from error


def _parts(name: str, python: str) -> tuple[Part, ...]:
    if name.partition("#")[0].endswith(".whl"):
        return (_wheel(name),)
    try:
        listed = _listed(Path(name), python)
    except (OSError, UnicodeDecodeError, ListError) as error:
        raise InputError(f"Unable to read {name}", details=_words(error), resolution=_HINT) from error
    return of_torch(listed)


def _listed(path: Path, python: str) -> tuple[Part, ...]:
    content = content_of(path)
    if path.suffix == ".toml":
        return parts_of_pylock(content)
    return parts_of_requirements(content.decode(), python)


def _wheel(name: str) -> Part:
    """The wheel of that name, with its metadata where the file is there."""
    file = Path(name)
    try:
        build = build_of(name)
        requires = _requires(file) if file.exists() else None
    except (OSError, zipfile.BadZipFile, WheelNameError, LookupError) as error:
        raise InputError(f"Unable to read {name} as a wheel", details=_words(error), resolution=_HINT) from error
    return Part(build.package, (build,), requires)


def _requires(file: Path) -> tuple[str, ...]:
    """``Requires-Dist`` of a wheel that is there; nothing of it is run or unpacked."""
    with open_file(file) as opened, zipfile.ZipFile(opened) as wheel, wheel.open(_metadata_entry(wheel)) as stream:
        message = BytesParser().parsebytes(stream.read(METADATA_LIMIT), headersonly=True)
    return tuple(map(str, message.get_all("Requires-Dist", ())))


def _metadata_entry(wheel: zipfile.ZipFile) -> zipfile.ZipInfo:
    for entry in wheel.infolist():
        if _is_metadata(entry.filename):
            return entry
    raise LookupError("there is no METADATA in it")


def _is_metadata(name: str) -> bool:
    folder, _, file = name.rpartition("/")
    return file == "METADATA" and folder.endswith(".dist-info") and "/" not in folder


def _words(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or ""
    return str(error)
