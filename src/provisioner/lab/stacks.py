"""The wheels that services of a file are installed with: a stack by its name, for the Python of an image.

They are found once by ``provision lock``, and taken from its lock file ever after.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from packaging.version import Version

from provisioner.gpus.cards import Card
from provisioner.lab.artifacts import distribution_of
from provisioner.lab.resolved import STACK, ResolvedLab
from provisioner.labfile.pins import read_stacks, write_stacks
from provisioner.services import knowledge_of
from provisioner.values.address import Address
from provisioner.values.declared import Problem
from provisioner.values.errors import PreflightError
from provisioner.wheels.builds import IMAGES, Machine, takes
from provisioner.wheels.known import Stack
from provisioner.wheels.locking import Locked

_Key = tuple[str, str]
"""A stack's name, and the distribution whose Python it is installed for."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """The wheels of a stack as they were found, and a digest of what was wanted then."""

    wants: str
    packages: tuple[Locked, ...]


@dataclass(frozen=True, slots=True)
class Use:
    """A service that is installed with a stack; ``requirements`` is what it needs besides."""

    address: Address
    option: str
    stack: str
    distribution: str
    requirements: tuple[str, ...]
    serves_with: tuple[str, ...] = ()
    """The packages of which the stack has to have one, as the service's page says; empty: any stack will do."""

    @property
    def container(self) -> str:
        """The container in which it is installed."""
        return self.address.container

    @property
    def key(self) -> _Key:
        """Under which its wheels are kept."""
        return self.stack, self.distribution

    @property
    def path(self) -> tuple[str, ...]:
        """Where the file names the stack."""
        return ("containers", self.container, "services", self.address.service, self.option)

    @property
    def place(self) -> tuple[str, Machine]:
        """The Python of its image, and the machine that it is on; ``KeyError`` where nobody knows."""
        return IMAGES[self.distribution]


Find = Callable[[Use, Stack], tuple[Locked, ...]]


def stack_uses(lab: ResolvedLab) -> tuple[Use, ...]:
    """Every service that is installed with a stack, by its file or its page's default."""
    uses = []
    for service in lab.services.values():
        for option, reference in service.page.references.items():
            stack = service.option(option) if reference.kind == STACK else ""
            if stack:
                distribution, requirements = distribution_of(service.image), service.page.requirements
                use = Use(service.address, option, stack, distribution, requirements, reference.serves_with)
                uses.append(use)
    return tuple(uses)


def stack_problems(uses: tuple[Use, ...], known: Mapping[str, Stack]) -> Iterator[Problem]:
    """A stack that there is not, that is for another service, or that has no wheels for the Python of the image."""
    for use in uses:
        stack = known.get(use.stack)
        if stack is None:
            yield Problem(use.path, f'no stack "{use.stack}"', f"There are: {', '.join(known)}")
        elif not _serves(use, stack):
            fitting = [name for name, other in known.items() if _serves(use, other)]
            what = f"stack {use.stack} has no {' and no '.join(use.serves_with)}"
            yield Problem(use.path, what, f"Take one of: {', '.join(fitting)}")
        elif use.distribution not in IMAGES:
            hint = f"Take one of: {', '.join(IMAGES)}"
            yield Problem(
                ("containers", use.container, "image"), f"which Python {use.distribution} has is not known", hint
            )
        else:
            yield from _without_wheels(use, stack)


def host_problems(
    uses: Iterable[Use], known: Mapping[str, Stack], cards: Mapping[str, Card], architectures: Mapping[str, str]
) -> Iterator[Problem]:
    """A card whose driver is too old for a stack, or a host of another kind than its wheels are for.

    ``cards`` and ``architectures`` are those of the containers, by their names.
    """
    for use in uses:
        card, floor = cards.get(use.container), known[use.stack].driver
        if floor and card and card.driver_version and Version(card.driver_version) < Version(floor):
            what = f"{card.title} has driver {card.driver_version}, and {use.stack} needs {floor} or newer"
            yield Problem(use.path, what, "Install a newer driver on the host, or take a stack for an older CUDA.")
        machine, there = use.place[1].architecture, architectures.get(use.container, "")
        if there and there != machine:
            what = f"the wheels of {use.stack} are for {machine}, and its host is {there}"
            yield Problem(use.path, what, "Give the container another host.")


def wanted(use: Use, stack: Stack) -> str:
    """A digest of what decides about the wheels: another one, and they have to be found anew."""
    # What is said of a wheel besides its address and hash makes it no other one.
    pages = {name: package.model_dump(mode="json", exclude={"built_for"}) for name, package in stack.packages.items()}
    python, machine = use.place
    said = [pages, list(stack.without), python, asdict(machine), list(use.requirements)]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _unlocked(uses: Iterable[Use], known: Mapping[str, Stack], pinned: Mapping[_Key, Pinned]) -> dict[_Key, Use]:
    """The stacks whose wheels have not been found, or were found for something else; each with one that uses it."""
    return {
        use.key: use for use in uses if use.key not in pinned or pinned[use.key].wants != wanted(use, known[use.stack])
    }


def wheel_options(
    lab: ResolvedLab, known: Mapping[str, Stack], pinned: Mapping[_Key, Pinned]
) -> dict[Address, dict[str, Any]]:
    """The options that follow from the wheels of each service's stack."""
    found: dict[Address, dict[str, Any]] = {}
    for use in stack_uses(lab):
        page, stack = lab.services[use.address].page, known[use.stack]
        options = found.setdefault(use.address, {})
        options[str(page.references[use.option].packages_to)] = [asdict(one) for one in pinned[use.key].packages]
        options |= knowledge_of(page.role).options_of_stack(stack)
    return found


def _serves(use: Use, stack: Stack) -> bool:
    """Whether the stack has what the service runs."""
    return not use.serves_with or any(name in stack.packages for name in use.serves_with)


def _without_wheels(use: Use, stack: Stack) -> Iterator[Problem]:
    python, machine = use.place
    for name, package in stack.packages.items():
        if not any(takes(python, machine, wheel.build) for wheel in package.wheels):
            fitting = [image for image, (other, _) in IMAGES.items() if other in stack.python]
            hint = f"Write image: {' or '.join(fitting)}; or take another stack." if fitting else "Take another stack."
            what = f"{name} of stack {use.stack} has no wheel for Python {python} of {use.distribution}"
            yield Problem(use.path, what, hint)
            return


def pinned_wheels(lab: ResolvedLab, lock: Path, known: Mapping[str, Stack]) -> dict[Address, dict[str, Any]]:
    """The options that follow from the stacks' wheels; ``PreflightError`` where wheels have to be found first."""
    pinned, uses = _pinned(lock), stack_uses(lab)
    missing = _unlocked(uses, known, pinned)
    if missing:
        named = [f"{use.stack} for {use.distribution}" for use in missing.values()]
        raise PreflightError(
            f"Unable to install {' and '.join(named)}: {lock.name} does not say with which wheels",
            resolution="Run: provision lock",
        )
    return wheel_options(lab, known, pinned)


def find_stacks(uses: Sequence[Use], known: Mapping[str, Stack], lock: Path, find: Find) -> dict[_Key, Pinned]:
    """Have ``find`` find the wheels of each stack that has none, note them, and give what was found.

    What no service uses leaves the lock file. Raises what ``find`` raises; what was found before that is noted.
    """
    pinned = _pinned(lock)
    kept = {use.key: pinned[use.key] for use in uses if use.key in pinned}
    found: dict[_Key, Pinned] = {}
    for key, use in _unlocked(uses, known, pinned).items():
        found[key] = Pinned(wanted(use, known[use.stack]), find(use, known[use.stack]))
        write_stacks(lock, {key: _entry(one) for key, one in {**kept, **found}.items()})
    if not found and kept != pinned:
        write_stacks(lock, {key: _entry(one) for key, one in kept.items()})
    return found


def _pinned(lock: Path) -> dict[_Key, Pinned]:
    return {
        key: Pinned(entry["wants"], tuple(Locked(**one) for one in entry["packages"]))
        for key, entry in read_stacks(lock).items()
    }


def _entry(pinned: Pinned) -> dict[str, object]:
    return {"wants": pinned.wants, "packages": [asdict(one) for one in pinned.packages]}
