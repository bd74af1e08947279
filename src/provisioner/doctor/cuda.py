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
    wanted = card.capability.replace(".", "")
    problem = next(_problems(build, card, wanted), None)
    if problem:
        return Verdict("", *problem)
    knows = f", which knows CUDA {card.cuda}" if card.cuda else ""
    return Verdict(
        f"CUDA {build.release} has code for {card.title}{f' ({card.capability})' if wanted else ''}; "
        f"driver {card.driver_version or 'unknown'}{knows}, runs it"
    )


def _problems(build: Build, card: Card, wanted: str) -> Iterator[tuple[str, str]]:
    unbuildable = architecture_problem(wanted, build.release) if wanted else None
    if unbuildable:
        yield (
            f"{card.title} is of compute capability {card.capability}, and {unbuildable}",
            "Write backend: vulkan for this service, or a card that CUDA still knows.",
        )
    elif wanted and build.architectures and not _has_code(build.architectures, int(wanted)):
        names = ", ".join(build.architectures)
        yield (
            f"{card.title} is of compute capability {card.capability}, and the engine is built for {names} alone",
            f'Write cuda_architectures: ["{wanted}"], or leave it out; then run: provision up',
        )
    branch, least = _major(card.driver_version), LEAST_DRIVER.get(_major(build.release), 0)
    if branch and branch < least:
        yield (
            f"CUDA {build.release} needs driver {least} or newer; {card.title} has {card.driver_version}",
            f"Upgrade the host's driver to {least} or newer, or write cuda_version: with a release that it knows"
            + (f" ({card.cuda})." if card.cuda else "."),
        )
    if wanted and card.cuda and _newer(build.release, card.cuda) and not _is_exact(build.architectures, int(wanted)):
        yield (
            f"CUDA {build.release} leaves a step to the driver of {card.title}, which knows CUDA {card.cuda} only",
            f'Write cuda_architectures: ["{wanted}"], with which nothing is left to it, or upgrade the driver.',
        )


def _has_code(names: Sequence[str], capability: int) -> bool:
    """Whether a card runs it as it is, or its driver can translate it: that goes from older to newer alone."""
    return any(name in SETS or _is_of(name, capability) or _can_become(name, capability) for name in names)


def _is_of(name: str, capability: int) -> bool:
    """Whether there is machine code that the card runs: of its own generation, and no newer than it."""
    found = _NAME.fullmatch(name)
    if found is None or found[3] == "-virtual":
        return False
    number = int(found[1])
    return number == capability if found[2] else number // 10 == capability // 10 and number <= capability


def _can_become(name: str, capability: int) -> bool:
    found = _NAME.fullmatch(name)
    return found is not None and found[3] != "-real" and not found[2] and int(found[1]) <= capability


def _is_exact(names: Sequence[str], capability: int) -> bool:
    """Whether nothing is left to the driver; what is not written is filled in with the card's own."""
    return not names or any(name == "all" or _is_of(name, capability) for name in names)


def _major(version: str) -> int:
    head = version.partition(".")[0]
    return int(head) if head.isdigit() else 0


def _newer(one: str, other: str) -> bool:
    return [*map(int, re.findall(r"\d+", one)[:2])] > [*map(int, re.findall(r"\d+", other)[:2])]
