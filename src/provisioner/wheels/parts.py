"""A set of wheels by package: what was given of each, and what its metadata asks of the others."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from provisioner.wheels.builds import TORCH, Build

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
        return self.asks_for_torch

    @property
    def asks_for_torch(self) -> bool:
        """Whether its metadata, as far as it was read, asks for torch."""
        return bool(self.torch_requirements)

    @property
    def torch_requirements(self) -> tuple[Requirement, ...]:
        """What its metadata, as far as it was read, asks of torch."""
        return tuple(asked for asked in requirements(self.requires or ()) if asked.name == TORCH)


def names_one_version(requirement: Requirement) -> bool:
    """Whether it pins its package; ``==2.9.*`` pins none."""
    return any(clause.operator == "==" and not clause.version.endswith("*") for clause in requirement.specifier)


def requirements(texts: Iterable[str], python: str = "") -> tuple[Requirement, ...]:
    """The requirements that count without extras, for that Python if one is named; unreadable ones are left out."""
    environment = _environment(python)
    counting = []
    for text in texts:
        requirement = _requirement(text)
        if requirement is None:
            continue
        if requirement.marker is None or requirement.marker.evaluate(environment):
            counting.append(requirement)
    return tuple(counting)


def unreadable(texts: Iterable[str]) -> tuple[str, ...]:
    """The requirements that nobody can understand, as they are written."""
    return tuple(text for text in texts if _requirement(text) is None)


def _requirement(text: str) -> Requirement | None:
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return None
    requirement.name = canonicalize_name(requirement.name)
    return requirement


def _environment(python: str) -> dict[str, str]:
    environment = {"extra": "", "sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}
    if python:
        version = python.removesuffix("t")
        environment.update(python_version=version, python_full_version=f"{version}.0")
    return environment


def cuda_major_of(part: Part) -> int | None:
    """The CUDA that a torch without a label was built for, by the runtime that its metadata asks for."""
    for requirement in requirements(part.requires or ()):
        major = _cuda_major_in(requirement)
        if major is not None:
            return major
    return None


def _cuda_major_in(requirement: Requirement) -> int | None:
    """The major version in "cuda-toolkit==13.0.2" or "nvidia-cublas-cu12"."""
    library = _CUDA_PACKAGE.fullmatch(requirement.name)
    if library is not None:
        return int(library[1])
    if requirement.name == _TOOLKIT:
        for clause in requirement.specifier:
            if clause.operator == "==":
                return Version(clause.version.removesuffix(".*")).major
    return None
