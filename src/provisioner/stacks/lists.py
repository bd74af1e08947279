"""Lists of packages as people write them: ``requirements.txt`` and ``pylock.toml``, understood as parts of a set."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from provisioner.plain_data import toml_value
from provisioner.stacks.builds import LINKED, MODULES, TORCH, Build, WheelNameError, build_of, pinned_build
from provisioner.stacks.parts import Part

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
    found = [_required(number, line, python) for number, line in enumerate(joined.splitlines(), 1)]
    return merged(part for part in found if part is not None)


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


def merged(parts: Iterator[Part]) -> tuple[Part, ...]:
    """The parts with each package once; ``ListError`` when one is there in two versions."""
    by_package: dict[str, Part] = {}
    for part in parts:
        known = by_package.get(part.package)
        versions = {build.version for one in (known, part) if one for build in one.builds}
        if len(versions) > 1:
            said = " and ".join(str(one) for one in sorted(versions))
            raise ListError(f"two versions of {part.package} are named: {said}")
        by_package[part.package] = _joined(known, part) if known else part
    return tuple(sorted(by_package.values(), key=lambda part: (part.package != TORCH, part.package)))


def _joined(one: Part, other: Part) -> Part:
    builds = tuple(dict.fromkeys((*one.builds, *other.builds)))
    requires = one.requires if other.requires is None else other.requires
    return Part(one.package, builds, requires, one.trouble or other.trouble)


def _required(number: int, written: str, python: str) -> Part | None:
    line = _HASH.sub("", _COMMENT.sub("", written)).strip()
    if not line or (line.startswith("-") and not line.startswith(_OPTION_OF_OTHERS)):
        return None  # an index, a switch: nothing that is installed
    try:
        if line.startswith(_OPTION_OF_OTHERS):
            raise ListError(f"line {number} names another file: name that one, too, or make one list of both")
        if line.partition(" ")[0].endswith(".whl"):
            return _part_of(build_of(line.partition(" ")[0]))
        return _pinned(Requirement(line), python)
    except (InvalidRequirement, WheelNameError) as error:
        # An address may hold a password: neither the line nor what quotes it is said.
        has_address = "://" in line
        why = "it names an address, and not as NAME @ URL" if has_address else str(error).partition("\n")[0]
        raise ListError(f"line {number} is no requirement: {why}") from error


def _pinned(one: Requirement, python: str) -> Part | None:
    name = canonicalize_name(one.name)
    version = python.removesuffix("t")
    values = {"python_version": version, "python_full_version": f"{version}.0"} if version else {}
    if one.marker is not None and not one.marker.evaluate({"extra": "", **values}):
        return None
    if one.url:
        return _part_of(build_of(one.url)) if ".whl" in one.url else Part(name, trouble=_SOURCE)
    exact = [clause.version for clause in one.specifier if clause.operator in ("==", "===")]
    if len(exact) == 1 and not exact[0].endswith("*"):
        return _part_of(pinned_build(name, exact[0]))
    return Part(name, trouble=_NOT_PINNED)


def _part_of(build: Build) -> Part:
    return Part(build.package, (build,))


def _locked(package: Mapping[str, Any]) -> Part:
    name = canonicalize_name(package["name"])
    builds = tuple(_locked_build(wheel) for wheel in package.get("wheels", ()))
    if builds:
        return Part(name, builds)
    archive = package.get("archive") or {}
    if ".whl" in (archive.get("url") or archive.get("path") or ""):
        return Part(name, (_locked_build(archive),))
    return Part(name, trouble=_SOURCE)


def _locked_build(wheel: Mapping[str, Any]) -> Build:
    try:
        return build_of(wheel.get("name") or wheel.get("url") or wheel["path"])
    except WheelNameError as error:
        raise ListError(str(error)) from error


def of_torch(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """The parts of a list that something can be said of: torch, and what is compiled against it or asks for it."""
    return tuple(part for part in parts if part.is_of_torch or part.package in {*MODULES, *LINKED})
