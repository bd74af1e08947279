"""What speaks against one wheel beside a torch: versions, CUDA, the C++ ABI, metadata; or is not known of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from packaging.version import Version

from provisioner.wheels.builds import SILENT, UNLINKED, Build
from provisioner.wheels.parts import Part, cuda_major_of, names_one_version, requirements, unreadable

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
