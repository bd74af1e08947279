"""A set of wheels by package: what was given of each, and what its metadata asks of the others."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from provisioner.stacks.builds import TORCH, Build

_CUDA_PACKAGE = re.compile(r"nvidia-[a-z0-9-]+-cu(\d{2})")
_TOOLKIT = "cuda-toolkit"


@dataclass(frozen=True, slots=True)
class Part:
    """One package of a set: its wheels (one, or one for each Python), and its ``Requires-Dist`` where it was read.

    ``trouble`` says why there is no wheel to judge (a source, no exact version); then ``builds`` may be empty.
    """

    package: str
    builds: tuple[Build, ...] = ()
    requires: tuple[str, ...] | None = None
    trouble: str = ""

    @property
    def is_of_torch(self) -> bool:
        """Whether it is torch, is compiled against it, or asks for it."""
        if self.package == TORCH or any(build.is_linked for build in self.builds):
            return True
        return any(one.name == TORCH for one in requirements(self.requires or ()))


def requirements(texts: Iterable[str], python: str = "") -> tuple[Requirement, ...]:
    """The requirements that count without extras, for that Python if one is named; unreadable ones are left out."""
    read = (_requirement(text) for text in texts)
    values = _environment(python)
    return tuple(one for one in read if one and (one.marker is None or one.marker.evaluate(values)))


def unreadable(texts: Iterable[str]) -> tuple[str, ...]:
    """The requirements that nobody can understand, as they are written."""
    return tuple(text for text in texts if _requirement(text) is None)


def _requirement(text: str) -> Requirement | None:
    try:
        one = Requirement(text)
    except InvalidRequirement:
        return None
    one.name = canonicalize_name(one.name)
    return one


def _environment(python: str) -> dict[str, str]:
    linux = {"extra": "", "sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}
    version = python.removesuffix("t")
    return {**linux, "python_version": version, "python_full_version": f"{version}.0"} if version else linux


def cuda_major_of(part: Part) -> int | None:
    """The CUDA that a torch without a label was built for, by the runtime that its metadata asks for."""
    for one in requirements(part.requires or ()):
        if one.name == _TOOLKIT:
            pinned = next((clause.version for clause in one.specifier if clause.operator == "=="), "")
            if pinned:
                return Version(pinned.removesuffix(".*")).major
        if found := _CUDA_PACKAGE.fullmatch(one.name):
            return int(found[1])
    return None
