"""The rule: which wheels go with a torch, by names and metadata alone; what they do not say is unknown, never fine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from packaging.version import Version

from provisioner.stacks.builds import TORCH, Build
from provisioner.stacks.objections import (
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
from provisioner.stacks.parts import Part
from provisioner.stacks.pythons import DEBIAN_12, Machine, named_pythons, pythons_of, takes

_SHOWN = 6


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
        found = {one.fit for one in self.verdicts}
        return next((one for one in (Fit.UNFIT, Fit.UNKNOWN) if one in found), Fit.FITS)


def python_for(parts: Sequence[Part], machine: Machine = DEBIAN_12) -> str:
    """The newest Python that takes a wheel of each package; torch's own, or the first wheel's, where there is none.

    Empty where nothing is a wheel.
    """
    made = [part for part in parts if any(build.tags for build in part.builds)]
    common = [set(pythons_of(part.builds, machine)) for part in made]
    torch_first = sorted(made, key=lambda part: part.package != TORCH)
    choices = (pythons_of(part.builds, machine) or named_pythons(part.builds) for part in torch_first)
    for choice in (set.intersection(*common) if common else set(), *choices):
        known = [one for one in choice if not one.endswith("t")] or list(choice)
        if known:
            return max(known, key=lambda one: Version(one.removesuffix("t")))
    return ""


def judge(parts: Sequence[Part], python: str = "", machine: Machine = DEBIAN_12, driver: str = "") -> Judgement:
    """Each package of the set on that Python (``python_for`` chooses without one), beside the set's torch."""
    python = python or python_for(parts, machine)
    chosen = {part.package: _chosen(part, python, machine) for part in parts}
    verdicts = tuple(_verdict(part, chosen, _Place(parts, python, machine, driver)) for part in parts)
    return Judgement(python, verdicts)


@dataclass(frozen=True, slots=True)
class _Place:
    """What a package is judged beside."""

    parts: Sequence[Part]
    python: str
    machine: Machine
    driver: str

    @property
    def torch(self) -> Part | None:
        """The set's torch."""
        return next((part for part in self.parts if part.package == TORCH), None)


def _chosen(part: Part, python: str, machine: Machine) -> Build | None:
    """The wheel of the package that is taken; one without tags is a pin."""
    return next((build for build in part.builds if not python or takes(python, machine, build)), None)


def _verdict(part: Part, chosen: Mapping[str, Build | None], place: _Place) -> Verdict:
    build = chosen[part.package]
    version = str(next((one.version for one in part.builds), ""))
    if part.trouble:
        return Verdict(part.package, version, Fit.UNKNOWN, part.trouble)
    if build is None:
        reason, advice = _no_wheel(part, place)
        return Verdict(part.package, version, Fit.UNFIT, reason, advice)
    found = list(_objections(part, build, chosen, place))
    for fit in (Fit.UNFIT, Fit.UNKNOWN):
        said = [one for one in found if one.fit is fit]
        if said:
            advice = next((one.advice for one in said if one.advice), "")
            return Verdict(part.package, version, fit, "; ".join(one.reason for one in said), advice)
    return Verdict(part.package, version, Fit.FITS, _well(build))


def _no_wheel(part: Part, place: _Place) -> tuple[str, str]:
    tags = sorted({str(tag) for build in part.builds for tag in build.tags})
    more = f" and {len(tags) - _SHOWN} more" if len(tags) > _SHOWN else ""
    where = (
        f"Python {place.python} on {place.machine.architecture} with glibc {'.'.join(map(str, place.machine.glibc))}"
    )
    there = pythons_of(part.builds, place.machine)
    advice = f"There are wheels for Python {', '.join(there)}." if there else ""
    return f"no wheel for {where}; there: {', '.join(tags[:_SHOWN])}{more}", advice


def _objections(part: Part, build: Build, chosen: Mapping[str, Build | None], place: _Place) -> Iterator[Objection]:
    yield from of_metadata(part, chosen, place.python)
    torch, torch_part = chosen.get(TORCH), place.torch
    if part.package == TORCH:
        yield from of_torch(part, build, place.driver)
    elif is_compiled_against_torch(part, build):
        if torch is None or torch_part is None:
            yield Objection(
                Fit.UNKNOWN, "there is no torch beside it", "Name torch's wheel, too, or --torch 2.9.0+cu128."
            )
        else:
            yield from of_link(part, build, torch)
            yield from of_cuda(build, torch, cuda_of(torch_part, torch))
    else:
        if build.backend not in ("", "cpu") and torch and torch_part:
            yield from of_cuda(build, torch, cuda_of(torch_part, torch))
        if is_silent(part, build):
            yield _silence(part)


def _silence(part: Part) -> Objection:
    if part.requires is None:
        words = "its name does not say whether it is compiled against torch"
        advice = "Name the file once it is there, as its metadata says whether it asks for torch."
        return Objection(Fit.UNKNOWN, words, advice)
    words = "it is built for a card, and neither its name nor its metadata says whether against torch"
    return Objection(Fit.UNKNOWN, words, "Import it beside this torch before it is used.")


def _well(build: Build) -> str:
    if not build.is_compiled:
        return "pure Python"
    cuda = ".".join(str(one) for one in build.cuda or () if one is not None)
    torch = ".".join(map(str, build.torch or ()))
    said = [f"torch {torch}" if torch else "", f"CUDA {cuda}" if cuda else ""]
    return f"built for {', '.join(filter(None, said))}" if any(said) else "nothing speaks against it"


def worst(judgements: Iterable[Judgement]) -> Fit:
    """The worst of several."""
    found = {one.fit for one in judgements}
    return next((one for one in (Fit.UNFIT, Fit.UNKNOWN) if one in found), Fit.FITS)
