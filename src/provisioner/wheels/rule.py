"""The rule: which wheels go with a torch, by names and metadata alone; what they do not say is unknown, never fine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from packaging.version import Version

from provisioner.wheels.builds import TORCH, Build
from provisioner.wheels.objections import (
    Fit,
    Objection,
    cuda_of,
    is_compiled_against_torch,
    is_silent,
    of_cuda,
    of_link,
    of_metadata,
    of_torch,
)
from provisioner.wheels.parts import Part
from provisioner.wheels.pythons import DEBIAN_12, Machine, every_python, named_pythons, pythons_of, takes

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
