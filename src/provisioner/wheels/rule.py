"""The rule: which wheels go with a torch, by names and metadata; what they do not say is unknown, never fine. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from provisioner.wheels.builds import (
    DEBIAN_12,
    SILENT,
    TORCH,
    UNLINKED,
    Build,
    Machine,
    every_python,
    named_pythons,
    pythons_of,
    takes,
)

# A set of wheels by package: what was given of each, and what its metadata asks of the others.

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


# Objections to one wheel beside a torch: versions, CUDA, the C++ ABI, metadata; or what is not known of it.

DRIVERS = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
"""The oldest driver for each major version of CUDA (NVIDIA's release notes, minor version compatibility)."""
NEW_ABI, OLD_ABI = (2, 7), (2, 5)
"""From which torch on all its wheels for Linux have the new C++ ABI, and up to which the old one (release notes)."""
_OF_CARDS = ("cuda", "rocm", "xpu")
_CUDA_OR_UNSAID = ("", "cuda")
"""Backends of a wheel that may need CUDA: a name without a label says nothing of it."""


class Fit(StrEnum):
    """What is known of one wheel among the others."""

    FITS = "fits"
    UNFIT = "does not fit"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Objection:
    """One reason why a wheel does not fit, or is not known to; and which other one would do."""

    fit: Fit
    reason: str
    advice: str = ""


def is_compiled_against_torch(part: Part, build: Build) -> bool:
    """Whether it has to agree with torch's binaries: by its name, or as a compiled wheel that asks for torch."""
    if part.package in UNLINKED:
        return False
    if build.is_linked:
        return True
    is_compiled_file = bool(build.tags) and build.is_compiled
    return is_compiled_file and part.asks_for_torch


def is_silent(part: Part, build: Build) -> bool:
    """Whether it is machine code of which nobody knows what it is linked with.

    Metadata that does not ask for torch tells that it is not, but for code that was built for a card's runtime:
    several of its makers leave torch out.
    """
    if not build.is_compiled or part.package in UNLINKED:
        return False
    if build.backend in _OF_CARDS:
        return True
    is_file = bool(build.tags)
    return is_file and part.requires is None


def of_metadata(part: Part, chosen: Mapping[str, Build | None], python: str) -> Iterator[Objection]:
    """What its metadata asks of the others, which are not that."""
    texts = part.requires or ()
    for text in unreadable(texts):
        yield Objection(Fit.UNKNOWN, f"its metadata asks for {text!r}, which nobody can read")
    for requirement in requirements(texts, python):
        other = chosen.get(requirement.name)
        if other is None or requirement.specifier.contains(other.version, prereleases=True):
            continue
        asked = f"{requirement.name}{requirement.specifier}"
        yield Objection(Fit.UNFIT, f"its metadata asks for {asked}, beside it is {other.version}")


def of_torch(part: Part, build: Build, driver: str) -> Iterator[Objection]:
    """A torch whose CUDA nobody knows, or too new a CUDA for the driver ("" for one that is not known)."""
    major = cuda_of(part, build)
    if major is not None:
        if driver:
            yield from _of_driver(major, driver)
    elif build.backend in _CUDA_OR_UNSAID:
        advice = "Name the file once it is there, as its metadata says it; or take one with a label (+cu130)."
        yield Objection(Fit.UNKNOWN, "its name does not say for which CUDA it was built", advice)


def _of_driver(major: int, driver: str) -> Iterator[Objection]:
    """A driver that is older than this major version of CUDA needs."""
    floor = DRIVERS.get(major)
    if floor is None:
        yield Objection(Fit.UNKNOWN, f"which driver CUDA {major} needs is not known here")
    elif Version(driver) < Version(floor):
        words = f"CUDA {major} needs driver {floor} or newer, there is {driver}"
        yield Objection(Fit.UNFIT, words, "Upgrade the host's driver.")


def cuda_of(part: Part, build: Build) -> int | None:
    """The major version of CUDA that this torch was built for, by its label, else by its metadata; None: not known."""
    if build.cuda:
        return build.cuda[0]
    return None if build.backend else cuda_major_of(part)


def of_link(part: Part, build: Build, torch: Build) -> Iterator[Objection]:
    """What its name says of the torch that it was compiled against, and of that torch's C++ ABI."""
    release = ".".join(map(str, torch.version.release[:2]))
    advice = f"Take a wheel of {part.package} that says torch{release}."
    if part.package in SILENT:
        advice = f"No wheel of {part.package} says it in its name, its metadata may: name the file once it is there."
        if part.requires is not None:
            advice = f"No wheel of {part.package} says it, nor does this one's metadata: look on its makers' pages."
    if not build.is_compiled:
        words = "it brings no compiled module: it compiles at its first import, which needs nvcc and a compiler"
        yield Objection(Fit.UNKNOWN, words, advice)
        return
    if build.torch is not None:
        yield from _of_release(part, build, build.torch, torch, advice)
    elif not _is_pinned(part):
        yield Objection(Fit.UNKNOWN, "its name does not say for which torch it was built", advice)
    if build.cxx11abi is not None:
        yield from _of_abi(build.cxx11abi, torch, release)


def _of_release(part: Part, build: Build, built_for: tuple[int, int], torch: Build, advice: str) -> Iterator[Objection]:
    """A wheel for another release of torch, or beside a build of NVIDIA's that is none of the releases."""
    release = torch.version.release[:2]
    takes_later = build.and_higher and built_for < release
    if built_for != release and not takes_later:
        words = f"built for torch {built_for[0]}.{built_for[1]}, beside it is torch {torch.version}"
        yield Objection(Fit.UNFIT, words, advice)
    elif torch.is_nvidias:
        words = f"torch {torch.version} is NVIDIA's own build of a commit between releases"
        yield Objection(Fit.UNKNOWN, words, f"Take the {part.package} of the same container.")


def _of_abi(built: bool, torch: Build, release: str) -> Iterator[Objection]:
    has = _has_new_abi(torch)
    if has is None:
        yield Objection(Fit.UNKNOWN, f"which C++ ABI this torch {release} has does not stand in its name")
    elif built != has:
        label, wanted = str(built).upper(), str(has).upper()
        words = f"built with cxx11abi{label}, torch {release} has cxx11abi{wanted}"
        yield Objection(Fit.UNFIT, words, f"Take the one with cxx11abi{wanted}.")


def _is_pinned(part: Part) -> bool:
    """Whether its metadata takes one version of torch only (the metadata is held against it elsewhere)."""
    return any(map(names_one_version, part.torch_requirements))


def _has_new_abi(torch: Build) -> bool | None:
    """Whether this torch has the new C++ ABI; None where its name does not tell."""
    release = torch.version.release[:2]
    if torch.is_nvidias:
        return None
    if release >= NEW_ABI:
        return True
    if release <= OLD_ABI:
        return False
    if not torch.tags:
        return None
    # 2.6 was built both ways; those for the new platform have the new one (its release notes).
    return any("manylinux_2_28" in tag.platform for tag in torch.tags)


def of_cuda(build: Build, torch: Build, major: int | None) -> Iterator[Objection]:
    """What its name says of CUDA; ``major`` is that of the torch beside it, None when nobody knows."""
    if build.backend not in _CUDA_OR_UNSAID:
        yield from _of_other_backend(build, torch)
        return
    if build.cuda is None:
        yield Objection(Fit.UNKNOWN, "its name does not say for which CUDA it was built")
        return
    built_for = build.cuda[0]
    if torch.backend not in _CUDA_OR_UNSAID:
        words = f"built for CUDA {built_for}, beside it is torch {torch.version}, which has none"
        yield Objection(Fit.UNFIT, words, "Take a torch with CUDA (+cu128, +cu130).")
    elif major is None:
        yield Objection(Fit.UNKNOWN, "for which CUDA the torch beside it was built is not known")
    elif built_for != major:
        words = f"built for CUDA {built_for} (libcudart.so.{built_for}), beside it is torch for CUDA {major}"
        yield Objection(Fit.UNFIT, words, f"Take a wheel that says cu{major}.")


def _of_other_backend(build: Build, torch: Build) -> Iterator[Objection]:
    """What a wheel for something else than CUDA needs of its torch."""
    if build.backend != torch.backend:
        yield Objection(Fit.UNFIT, f"built for {build.backend}, beside it is torch {torch.version}")
    elif build.backend == "rocm":
        yield from _of_rocm(build, torch)


def _of_rocm(build: Build, torch: Build) -> Iterator[Objection]:
    """ROCm's libraries change their names with each major version, as CUDA's do."""
    if build.rocm is None:
        yield Objection(Fit.UNKNOWN, "its name does not say for which ROCm it was built")
    elif torch.rocm is None:
        yield Objection(Fit.UNKNOWN, f"torch {torch.version} does not say for which ROCm it was built")
    elif build.rocm != torch.rocm:
        words = f"built for ROCm {build.rocm}, beside it is torch for ROCm {torch.rocm}"
        yield Objection(Fit.UNFIT, words, f"Take a wheel that says rocm{torch.rocm}.")


# The judgement of a whole set on one Python.

_SHOWN = 6
_SEVERITY = (Fit.FITS, Fit.UNKNOWN, Fit.UNFIT)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One package of a set, judged: why, in words, and which other wheel would do."""

    package: str
    version: str
    fit: Fit
    reason: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A set judged for one Python."""

    python: str
    verdicts: tuple[Verdict, ...]

    @property
    def fit(self) -> Fit:
        """The worst of the verdicts."""
        return _worst_fit(verdict.fit for verdict in self.verdicts)


def python_for(parts: Sequence[Part], machine: Machine = DEBIAN_12) -> str:
    """The newest Python that takes a wheel of each package; torch's own, or the first wheel's, where there is none.

    Empty where nothing is a wheel.
    """
    with_files = [part for part in parts if _has_files(part)]
    if not with_files:
        return ""
    common = _common_pythons(with_files, machine)
    if common:
        return _newest(common)
    torch_first = sorted(with_files, key=lambda part: part.package != TORCH)
    for part in torch_first:
        pythons = pythons_of(part.builds, machine) or named_pythons(part.builds)
        if pythons:
            return _newest(pythons)
    return ""


def _has_files(part: Part) -> bool:
    """Whether a wheel of the package is more than a pin, which has no tags."""
    return any(build.tags for build in part.builds)


def _common_pythons(parts: Iterable[Part], machine: Machine) -> set[str]:
    common = set(every_python())
    for part in parts:
        common.intersection_update(pythons_of(part.builds, machine))
    return common


def _newest(pythons: Iterable[str]) -> str:
    """The newest Python; one without the global lock ("3.13t") only where there is no other."""
    return max(pythons, key=lambda python: (not python.endswith("t"), Version(python.removesuffix("t"))))


def judge(parts: Sequence[Part], python: str = "", machine: Machine = DEBIAN_12, driver: str = "") -> Judgement:
    """Each package of the set on that Python (``python_for`` chooses without one), beside the set's torch."""
    python = python or python_for(parts, machine)
    chosen = {part.package: _chosen(part, python, machine) for part in parts}
    surroundings = _Surroundings(parts, chosen, python, machine, driver)
    verdicts = tuple(_verdict(part, surroundings) for part in parts)
    return Judgement(python, verdicts)


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """What a package is judged beside: the set, the wheel chosen of each package, and where they are to run."""

    parts: Sequence[Part]
    chosen: Mapping[str, Build | None]
    python: str
    machine: Machine
    driver: str

    @property
    def torch(self) -> Build | None:
        """The torch that is chosen, None without one."""
        return self.chosen.get(TORCH)

    @property
    def torch_cuda(self) -> int | None:
        """The major version of CUDA that the chosen torch was built for; None: not known."""
        for part in self.parts:
            if part.package == TORCH and self.torch is not None:
                return cuda_of(part, self.torch)
        return None


def _chosen(part: Part, python: str, machine: Machine) -> Build | None:
    """The wheel of the package that is taken; one without tags is a pin."""
    for build in part.builds:
        if not python or takes(python, machine, build):
            return build
    return None


def _verdict(part: Part, surroundings: _Surroundings) -> Verdict:
    version = str(part.builds[0].version) if part.builds else ""
    if part.trouble:
        return Verdict(part.package, version, Fit.UNKNOWN, part.trouble)
    build = surroundings.chosen[part.package]
    if build is None:
        reason, advice = _no_wheel(part, surroundings)
        return Verdict(part.package, version, Fit.UNFIT, reason, advice)
    objections = list(_objections(part, build, surroundings))
    if not objections:
        return Verdict(part.package, version, Fit.FITS, _why_it_fits(build))
    return _refused(part.package, version, objections)


def _refused(package: str, version: str, objections: Sequence[Objection]) -> Verdict:
    """The verdict that the worst objections give, with the first advice among these."""
    fit = _worst_fit(objection.fit for objection in objections)
    reasons = []
    advice = ""
    for objection in objections:
        if objection.fit is fit:
            reasons.append(objection.reason)
            advice = advice or objection.advice
    return Verdict(package, version, fit, "; ".join(reasons), advice)


def _no_wheel(part: Part, surroundings: _Surroundings) -> tuple[str, str]:
    machine = surroundings.machine
    glibc = ".".join(map(str, machine.glibc))
    where = f"Python {surroundings.python} on {machine.architecture} with glibc {glibc}"
    pythons = pythons_of(part.builds, machine)
    advice = f"There are wheels for Python {', '.join(pythons)}." if pythons else ""
    return f"no wheel for {where}; there: {_tags_text(part)}", advice


def _tags_text(part: Part) -> str:
    tags = sorted({str(tag) for build in part.builds for tag in build.tags})
    shown = ", ".join(tags[:_SHOWN])
    if len(tags) > _SHOWN:
        return f"{shown} and {len(tags) - _SHOWN} more"
    return shown


def _objections(part: Part, build: Build, surroundings: _Surroundings) -> Iterator[Objection]:
    yield from of_metadata(part, surroundings.chosen, surroundings.python)
    if part.package == TORCH:
        yield from of_torch(part, build, surroundings.driver)
    elif is_compiled_against_torch(part, build):
        yield from _objections_to_linked(part, build, surroundings)
    else:
        yield from _objections_to_unlinked(part, build, surroundings)


def _objections_to_linked(part: Part, build: Build, surroundings: _Surroundings) -> Iterator[Objection]:
    torch = surroundings.torch
    if torch is None:
        advice = "Name torch's wheel, too, or --torch 2.9.0+cu128."
        yield Objection(Fit.UNKNOWN, "there is no torch beside it", advice)
        return
    yield from of_link(part, build, torch)
    yield from of_cuda(build, torch, surroundings.torch_cuda)


def _objections_to_unlinked(part: Part, build: Build, surroundings: _Surroundings) -> Iterator[Objection]:
    torch = surroundings.torch
    is_for_cards = build.backend not in ("", "cpu")
    if is_for_cards and torch is not None:
        yield from of_cuda(build, torch, surroundings.torch_cuda)
    if is_silent(part, build):
        yield _silence(part)


def _silence(part: Part) -> Objection:
    if part.requires is None:
        words = "its name does not say whether it is compiled against torch"
        advice = "Name the file once it is there, as its metadata says whether it asks for torch."
        return Objection(Fit.UNKNOWN, words, advice)
    words = "it is built for a card, and neither its name nor its metadata says whether against torch"
    return Objection(Fit.UNKNOWN, words, "Import it beside this torch before it is used.")


def _why_it_fits(build: Build) -> str:
    if not build.is_compiled:
        return "pure Python"
    built_for = []
    if build.torch is not None:
        release = f"torch {build.torch[0]}.{build.torch[1]}"
        built_for.append(f"{release} or later" if build.and_higher else release)
    if build.cuda is not None:
        major, minor = build.cuda
        built_for.append(f"CUDA {major}" if minor is None else f"CUDA {major}.{minor}")
    if build.backend == "cpu":
        built_for.append("the processor")
    return f"built for {', '.join(built_for)}" if built_for else "nothing speaks against it"


def worst(judgements: Iterable[Judgement]) -> Fit:
    """The worst of several judgements."""
    return _worst_fit(judgement.fit for judgement in judgements)


def _worst_fit(fits: Iterable[Fit]) -> Fit:
    return max(fits, key=_SEVERITY.index, default=Fit.FITS)
