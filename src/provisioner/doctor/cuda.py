"""Whether an engine that was built with CUDA can compute on a card, and whether the card's driver can run it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from provisioner.cuda.architectures import SETS, architecture_problem
from provisioner.doctor.diagnosis import Diagnosis, Verdict, diagnosed
from provisioner.gpus.cards import Card

LEAST_DRIVER: Mapping[int, int] = {11: 450, 12: 525, 13: 580}
"""Major version of CUDA → the oldest branch of the driver that runs what it compiled (CUDA's "minor version
compatibility")."""
_NAME = re.compile(r"(\d+)([af]?)(-real|-virtual)?")


@dataclass(frozen=True, slots=True)
class Build:
    """An engine built with CUDA: the service's address, the release ("13.0"), the architectures in CMake's words."""

    address: str
    release: str
    architectures: tuple[str, ...] = ()


def cuda_diagnosis(build: Build, card: Card) -> Diagnosis:
    """Whether the build has code for the card, and the card's driver runs it."""
    return diagnosed(build.address, "cuda", _verdict(build, card))


def _verdict(build: Build, card: Card) -> Verdict:
    """The gravest problem of the build with the card, or what of both fits together."""
    capability = card.capability.replace(".", "")
    problem = next(_problems(build, card, capability), None)
    if problem is not None:
        return Verdict("", *problem)
    named = f"{card.title} ({card.capability})" if capability else card.title
    driver = f"driver {card.driver_version or 'unknown'}"
    if card.cuda:
        driver += f", which knows CUDA {card.cuda}"
    return Verdict(f"CUDA {build.release} has code for {named}; {driver}, runs it")


def _problems(build: Build, card: Card, wanted: str) -> Iterator[tuple[str, str]]:
    """What stands in the way, the gravest first: the problem and what to do. ``wanted``: the capability's digits."""
    if wanted:
        yield from _code_problems(build, card, wanted)
    branch = _major(card.driver_version)
    least = LEAST_DRIVER.get(_major(build.release), 0)
    if branch and branch < least:
        known = f"a release that it knows ({card.cuda})" if card.cuda else "a release that it knows"
        yield (
            f"CUDA {build.release} needs driver {least} or newer; {card.title} has {card.driver_version}",
            f"Upgrade the host's driver to {least} or newer, or write cuda_version: with {known}.",
        )
    if wanted and _is_left_to_driver(build, card, int(wanted)):
        yield (
            f"CUDA {build.release} leaves a step to the driver of {card.title}, which knows CUDA {card.cuda} only",
            f'Write cuda_architectures: ["{wanted}"], with which nothing is left to it, or upgrade the driver.',
        )


def _code_problems(build: Build, card: Card, wanted: str) -> Iterator[tuple[str, str]]:
    """Why the build has no code for the card, or no build of that release can have any."""
    capability = f"{card.title} is of compute capability {card.capability}"
    unbuildable = architecture_problem(wanted, build.release)
    if unbuildable:
        yield (
            f"{capability}, and {unbuildable}",
            "Write backend: vulkan for this service, or a card that CUDA still knows.",
        )
    elif build.architectures and not _has_code(build.architectures, int(wanted)):
        names = ", ".join(build.architectures)
        yield (
            f"{capability}, and the engine is built for {names} alone",
            f'Write cuda_architectures: ["{wanted}"], or leave it out; then run: provision up',
        )


def _is_left_to_driver(build: Build, card: Card, capability: int) -> bool:
    """Whether a driver that is older than the build's CUDA would have to translate code for the card."""
    if not card.cuda or _release(build.release) <= _release(card.cuda):
        return False
    return not _is_exact(build.architectures, capability)


def _has_code(names: Sequence[str], capability: int) -> bool:
    """Whether one of the architectures for which it was built can run on the card."""
    return any(_can_run(name, capability) for name in names)


def _can_run(name: str, capability: int) -> bool:
    """Whether the card runs it as it is, or its driver can translate it: that goes from older to newer alone."""
    if name in SETS:
        return True
    return _is_of(name, capability) or _can_become(name, capability)


def _is_of(name: str, capability: int) -> bool:
    """Whether there is machine code that the card runs: of its own generation, and no newer than it."""
    match = _NAME.fullmatch(name)
    if match is None or match[3] == "-virtual":
        return False
    number = int(match[1])
    if match[2]:
        return number == capability
    is_same_generation = number // 10 == capability // 10
    return is_same_generation and number <= capability


def _can_become(name: str, capability: int) -> bool:
    """Whether the driver can translate it for the card: code of no generation alone, and no newer than the card."""
    match = _NAME.fullmatch(name)
    if match is None or match[2] or match[3] == "-real":
        return False
    return int(match[1]) <= capability


def _is_exact(names: Sequence[str], capability: int) -> bool:
    """Whether nothing is left to the driver; what is not written is filled in with the card's own."""
    if not names or "all" in names:
        return True
    return any(_is_of(name, capability) for name in names)


def _release(version: str) -> list[int]:
    """The first two numbers of a version."""
    numbers = re.findall(r"\d+", version)[:2]
    return [int(number) for number in numbers]


def _major(version: str) -> int:
    head = version.partition(".")[0]
    return int(head) if head.isdigit() else 0
