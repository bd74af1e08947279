"""The Pythons that wheels are made for, and which wheels one of them on one machine takes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from packaging.tags import Tag, compatible_tags, cpython_tags

from provisioner.wheels.builds import Build

OLDEST, NEWEST = 8, 15
"""Minor versions of Python 3 that there are: a wheel with abi3 takes all that will come, too, and none is named."""
_PYTHON = re.compile(r"3\.(\d{1,2})(t?)")
_LEGACY = {"manylinux2014": 17, "manylinux2010": 12, "manylinux1": 5}
"""Old names of platforms, by the glibc 2.x that they mean (PEP 600)."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Where wheels are to run: its architecture as Linux names it, and its glibc."""

    architecture: str = "x86_64"
    glibc: tuple[int, int] = (2, 36)


DEBIAN_12 = Machine()
IMAGES = {
    "debian/12": ("3.11", DEBIAN_12),
    "debian/13": ("3.13", Machine(glibc=(2, 41))),
    "ubuntu/22.04": ("3.10", Machine(glibc=(2, 35))),
    "ubuntu/24.04": ("3.12", Machine(glibc=(2, 39))),
}
"""The Python and the machine of each image whose Python we know, by distribution and release."""


def machine_with(python: str) -> Machine:
    """The machine of the image that has this Python; Debian 12's where no image has it."""
    machines = dict(IMAGES.values())
    return machines.get(python, DEBIAN_12)


def is_python(text: str) -> bool:
    """Whether it is a version of Python as we write it: "3.12", "3.13t" for one without the global lock."""
    return _PYTHON.fullmatch(text) is not None


def every_python() -> tuple[str, ...]:
    """All versions that wheels could be for, oldest first."""
    return tuple(f"3.{minor}{mark}" for minor in range(OLDEST, NEWEST + 1) for mark in ("", "t"))


def takes(python: str, machine: Machine, build: Build) -> bool:
    """Whether that Python on that machine takes the wheel; a pin without a file is taken."""
    if not build.tags:
        return True
    return not build.tags.isdisjoint(_tags(python, machine))


def best_of(python: str, machine: Machine, builds: Iterable[Build]) -> Build | None:
    """The wheel that this Python prefers, None where it takes none."""
    rank = {tag: number for number, tag in enumerate(_ordered(python, machine))}
    best, best_rank = None, len(rank)
    for build in builds:
        build_rank = min((rank.get(tag, len(rank)) for tag in build.tags), default=len(rank))
        if build_rank < best_rank:
            best, best_rank = build, build_rank
    return best


def pythons_of(builds: Iterable[Build], machine: Machine) -> tuple[str, ...]:
    """The Pythons that take at least one of the wheels, oldest first."""
    wheels = tuple(builds)
    return tuple(python for python in every_python() if _takes_any(python, machine, wheels))


def _takes_any(python: str, machine: Machine, builds: Iterable[Build]) -> bool:
    return any(takes(python, machine, build) for build in builds)


def named_pythons(builds: Iterable[Build]) -> tuple[str, ...]:
    """The Pythons that the wheels name, whatever machine they are for."""
    pythons = set()
    for build in builds:
        for tag in build.tags:
            match = re.fullmatch(r"cp3(\d{1,2})", tag.interpreter)
            if match is not None:
                pythons.add(f"3.{match[1]}")
    return tuple(sorted(pythons))


@cache
def _tags(python: str, machine: Machine) -> frozenset[Tag]:
    return frozenset(_ordered(python, machine))


@cache
def _ordered(python: str, machine: Machine) -> tuple[Tag, ...]:
    """What that Python takes, what it prefers first."""
    match = _PYTHON.fullmatch(python)
    if match is None:
        raise ValueError(f"{python} is no version of Python such as 3.12")
    minor, mark = match[1], match[2]
    version, platforms = (3, int(minor)), _platforms(machine)
    interpreter = f"cp3{minor}"
    own = cpython_tags(version, [f"{interpreter}{mark}"], platforms)
    return (*own, *compatible_tags(version, interpreter, platforms))


def _platforms(machine: Machine) -> list[str]:
    major, newest = machine.glibc
    names = [f"manylinux_{major}_{minor}" for minor in range(newest, 4, -1)]
    names += [name for name, minor in _LEGACY.items() if minor <= newest]
    return [f"{name}_{machine.architecture}" for name in (*names, "linux")]
