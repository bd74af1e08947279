"""The set that a user names to have it judged: wheels, and lists of packages as people write them."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from email.parser import BytesParser
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from provisioner.values.errors import InputError
from provisioner.values.plain_data import toml_value
from provisioner.values.regular_files import content_of, open_file
from provisioner.wheels.builds import LINKED, MODULES, TORCH, Build, WheelNameError, build_of, pinned_build
from provisioner.wheels.rule import Part

# Lists of packages: `requirements.txt` and `pylock.toml`, understood as parts of a set.

_HASH = re.compile(r"\s--hash[= ]\S+")
_COMMENT = re.compile(r"(^|\s)#.*$")
_OPTION_OF_OTHERS = ("-r", "-c", "--requirement", "--constraint")
_NOT_PINNED = "it names no exact version"
_SOURCE = "it is built from its source, against whatever torch is there then"


class ListError(ValueError):
    """A list that nobody can read; its text says where and why."""


def parts_of_requirements(text: str, python: str = "") -> tuple[Part, ...]:
    """The packages of a ``requirements.txt`` for that Python; ``ListError`` names the line that is none."""
    joined = text.replace("\\\n", " ")
    parts = []
    for number, line in enumerate(joined.splitlines(), 1):
        part = _required(number, line, python)
        if part is not None:
            parts.append(part)
    return merged(parts)


def parts_of_pylock(content: bytes) -> tuple[Part, ...]:
    """The packages of a ``pylock.toml`` (PEP 751), each with all its wheels; ``ListError`` for anything else."""
    try:
        lock = toml_value(content.decode("utf-8"))
    except ValueError as error:
        raise ListError(f"it is no TOML: {error}") from error
    try:
        return merged(_locked(package) for package in lock["packages"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ListError("it is no pylock.toml: that has [[packages]], each with its name") from error


def merged(parts: Iterable[Part]) -> tuple[Part, ...]:
    """The parts with each package once; ``ListError`` when one is there in two versions."""
    by_package: dict[str, Part] = {}
    for part in parts:
        known = by_package.get(part.package)
        by_package[part.package] = _joined(known, part) if known else _checked(part)
    return tuple(sorted(by_package.values(), key=lambda part: (part.package != TORCH, part.package)))


def _joined(known: Part, part: Part) -> Part:
    builds = tuple(dict.fromkeys((*known.builds, *part.builds)))
    requires = known.requires if part.requires is None else part.requires
    return _checked(Part(known.package, builds, requires, known.trouble or part.trouble))


def _checked(part: Part) -> Part:
    """The part itself; ``ListError`` when its wheels are of two versions."""
    versions = {build.version for build in part.builds}
    if len(versions) > 1:
        names = " and ".join(map(str, sorted(versions)))
        raise ListError(f"two versions of {part.package} are named: {names}")
    return part


def _required(number: int, written: str, python: str) -> Part | None:
    """What a line asks for, None where it asks for nothing to be installed (an index, a switch)."""
    line = _HASH.sub("", _COMMENT.sub("", written)).strip()
    if line.startswith(_OPTION_OF_OTHERS):
        raise ListError(f"line {number} names another file: name that one, too, or make one list of both")
    if not line or line.startswith("-"):
        return None
    try:
        first_word = line.partition(" ")[0]
        if first_word.endswith(".whl"):
            return _part_of(build_of(first_word))
        return _pinned(Requirement(line), python)
    except (InvalidRequirement, WheelNameError) as error:
        raise ListError(f"line {number} is no requirement: {_why_unreadable(line, error)}") from error


def _why_unreadable(line: str, error: Exception) -> str:
    """The reason in one line. An address may hold a password: neither the line nor what quotes it is said."""
    if "://" in line:
        return "it names an address, and not as NAME @ URL"
    return str(error).partition("\n")[0]


def _pinned(requirement: Requirement, python: str) -> Part | None:
    name = canonicalize_name(requirement.name)
    if not _counts_for(requirement, python):
        return None
    if requirement.url:
        is_wheel = ".whl" in requirement.url
        return _part_of(build_of(requirement.url)) if is_wheel else Part(name, trouble=_SOURCE)
    version = _exact_version(requirement)
    if not version:
        return Part(name, trouble=_NOT_PINNED)
    return _part_of(pinned_build(name, version))


def _counts_for(requirement: Requirement, python: str) -> bool:
    """Whether its marker, if it has one, is true for that Python, else for the one that runs here."""
    if requirement.marker is None:
        return True
    environment = {"extra": ""}
    if python:
        version = python.removesuffix("t")
        environment.update(python_version=version, python_full_version=f"{version}.0")
    return requirement.marker.evaluate(environment)


def _exact_version(requirement: Requirement) -> str:
    """The version that it pins, empty without one; ``==2.9.*`` pins none."""
    versions = [clause.version for clause in requirement.specifier if clause.operator in ("==", "===")]
    if len(versions) != 1 or versions[0].endswith("*"):
        return ""
    return versions[0]


def _part_of(build: Build) -> Part:
    return Part(build.package, (build,))


def _locked(package: Mapping[str, Any]) -> Part:
    name = canonicalize_name(package["name"])
    builds = tuple(_locked_build(wheel) for wheel in package.get("wheels", ()))
    if builds:
        return Part(name, builds)
    archive = package.get("archive") or {}
    if _is_wheel(archive):
        return Part(name, (_locked_build(archive),))
    return Part(name, trouble=_SOURCE)


def _is_wheel(archive: Mapping[str, Any]) -> bool:
    address = archive.get("url") or archive.get("path") or ""
    return ".whl" in address


def _locked_build(wheel: Mapping[str, Any]) -> Build:
    try:
        return build_of(wheel.get("name") or wheel.get("url") or wheel["path"])
    except WheelNameError as error:
        raise ListError(str(error)) from error


def of_torch(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """The parts of a list that something can be said of: torch, and what is compiled against it or asks for it."""
    return tuple(part for part in parts if part.is_of_torch or part.package in {*MODULES, *LINKED})


# All that is named, read from its files into one set.

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
