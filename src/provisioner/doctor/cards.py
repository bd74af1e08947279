"""The checks of a host's cards: drivers, nodes, and whether an engine that was built with CUDA can use one. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from provisioner.cuda.architectures import SETS, architecture_problem
from provisioner.doctor.diagnosis import Diagnosis, Verdict, diagnosed
from provisioner.doctor.hosts import slot_verdict
from provisioner.gpus.cards import DRIVERS, Card, Vendor
from provisioner.gpus.choice import CardRequest, Refusal, choices
from provisioner.gpus.health import UNIT, HostDriver
from provisioner.values.errors import ProvisionError
from provisioner.values.quantities import size_text
from provisioner.values.state import Problem

# Cards and their drivers, and the containers that get them.

NODES = "nodes"
"""The check whose finding can be mended from here."""
PREPARE = "On the host: sudo provision host prepare --gpu"
INSTALL: Mapping[Vendor, str] = {
    "nvidia": "Install NVIDIA's driver on the host (Debian: apt install nvidia-driver, of non-free; it keeps nouveau "
    "away), then start the host anew.",
    "amd": "On the host: apt install firmware-amd-graphics (non-free-firmware), then: modprobe amdgpu; dmesg says why "
    "it takes no card.",
    "intel": "On the host: apt install firmware-misc-nonfree (non-free-firmware), then: modprobe i915, for Arc of the "
    "second generation modprobe xe; dmesg says why it takes no card.",
}
RESERVED = (
    "Take its numbers out of vfio-pci (grep -r vfio /etc/modprobe.d /etc/default/grub /etc/kernel/cmdline), then run "
    "update-initramfs -u and start the host anew; or give the container another card."
)


@dataclass(frozen=True, slots=True)
class Graphics:
    """A host's cards and drivers, and which of its containers want one.

    ``lends``: its kind can lend user space; ``is_here``: it is this machine, where ``doctor --fix`` makes nodes.
    """

    host: str
    cards: tuple[Card, ...] = ()
    driver: HostDriver = field(default_factory=HostDriver)
    requests: Mapping[str, CardRequest] = field(default_factory=dict)
    lends: bool = False
    is_here: bool = False

    @property
    def choices(self) -> Mapping[str, Card | Refusal]:
        """The card of each container that wants one, or why it gets none."""
        return choices(self.requests, self.cards)

    @property
    def given(self) -> Mapping[str, Card]:
        """The card of each container that gets one."""
        return {name: choice for name, choice in self.choices.items() if isinstance(choice, Card)}


def card_diagnoses(seen: Graphics) -> tuple[Diagnosis, ...]:
    """All checks of the cards that containers want, a line for each other one, nothing where there is neither."""
    return tuple(diagnosed(seen.host, name, verdict) for name, verdict in _verdicts(seen))


def requirement_diagnosis(host: str, problem: Problem) -> Diagnosis:
    """That the card of a container is not what its ``require`` asks for."""
    return diagnosed(host, "gpu", Verdict("", f"container {problem.path[1]}: {problem.message}", problem.hint))


def unseen_diagnosis(host: str, error: ProvisionError) -> Diagnosis:
    """That the cards of a host could not be looked at, and why."""
    return diagnosed(host, "gpu", Verdict("", error.message, error.resolution, error.details))


def _verdicts(seen: Graphics) -> Iterator[tuple[str, Verdict]]:
    """The verdicts with the names of their checks: on containers, on the cards they get, on the others."""
    wanted = _wanted(seen)
    for container, choice in seen.choices.items():
        yield "gpu", _choice(container, choice)
    for card in wanted:
        yield "driver", _driver(card, seen.driver)
        if card.driver in DRIVERS[card.vendor]:
            yield from _of_driven(card, seen)
    if any(card.driver == "nvidia" for card in wanted):
        yield from _of_nvidia(seen, wanted)
    for card in seen.cards:
        if card not in wanted:
            yield "card", _unused(card)


def _of_nvidia(seen: Graphics, wanted: tuple[Card, ...]) -> Iterator[tuple[str, Verdict]]:
    """The checks of NVIDIA's driver on the host, once for all its cards."""
    yield "module", _module(seen.driver)
    yield "boot", _boot(seen.driver)
    if seen.lends:
        yield "tools", _tools(wanted)


def _of_driven(card: Card, seen: Graphics) -> Iterator[tuple[str, Verdict]]:
    """The checks of a card that has its driver."""
    yield NODES, _nodes(card, seen)
    link = seen.driver.slot(card.pci) or card.link
    if link:
        yield "slot", slot_verdict(card.title, link)
    yield "memory", _memory(card)


def _wanted(seen: Graphics) -> tuple[Card, ...]:
    """The cards that containers get, and where one gets none those that it may mean."""
    given = {card.pci for card in seen.given.values()}
    refused = [seen.requests[name] for name, choice in seen.choices.items() if isinstance(choice, Refusal)]
    wanted = list[Card]()
    for card in seen.cards:
        is_given = card.pci in given
        if is_given or _is_meant(card, refused):
            wanted.append(card)
    return tuple(wanted)


def _is_meant(card: Card, refused: Sequence[CardRequest]) -> bool:
    """Whether a container may mean this card, which nobody can use as it is."""
    return bool(card.obstacle()) and any(_may_mean(request, card) for request in refused)


def _may_mean(request: CardRequest, card: Card) -> bool:
    """Whether the request may be for this card; a driver that is not there tells no uuid."""
    if request.uuid is not None and card.uuid not in {"", request.uuid}:
        return False
    return request.vendor in {None, card.vendor} and request.pci in {None, card.pci}


def _choice(container: str, choice: Card | Refusal) -> Verdict:
    if isinstance(choice, Refusal):
        return Verdict("", f"container {container} gets no card: {choice.message}", choice.hint)
    return Verdict(f"container {container} gets {choice.title}")


def _driver(card: Card, driver: HostDriver) -> Verdict:
    """Whether the card has a driver with which containers can use it."""
    if card.driver not in DRIVERS[card.vendor]:
        hint = RESERVED if card.driver == "vfio-pci" else INSTALL[card.vendor]
        return Verdict("", f"{card.title}: {card.obstacle()}", hint)
    version = card.driver_version
    if not version and card.vendor == "nvidia":
        version = driver.module
    return Verdict(f"{card.title}: {card.driver} {version}".rstrip())


def _nodes(card: Card, seen: Graphics) -> Verdict:
    """Whether the card's device files are there; NVIDIA's are made by a program, not by the kernel."""
    if not card.missing:
        return Verdict(f"{card.title}: all {len(card.nodes)} are there")
    problem = f"{card.title}: {' and '.join(card.missing)} are missing"
    if card.vendor != "nvidia":
        return Verdict("", problem, INSTALL[card.vendor])
    install = "" if seen.driver.has_modprobe else "apt install nvidia-modprobe; "
    fix = " (so does provision doctor --fix)" if seen.is_here else ""
    makes = f"On the host: {install}sudo nvidia-modprobe -u -c 0 makes them{fix}"
    return Verdict("", problem, f"{makes}; at every start: sudo provision host prepare --gpu")


def _memory(card: Card) -> Verdict:
    own = size_text(card.memory) if card.memory else "nobody tells its memory"
    words = f"{card.title}: {own}"
    if card.shared_memory:
        words += f", and up to {size_text(card.shared_memory)} of the machine's"
    return Verdict(words)


def _module(driver: HostDriver) -> Verdict:
    """Whether the driver's programs, the module that runs and the one that starts next are of one version."""
    if driver.is_mismatched:
        return Verdict(
            "",
            f"kernel module {driver.module} runs, and the driver's libraries on the host are of another version",
            "The driver was upgraded while it ran: start the host anew, then run provision up, as the libraries in "
            "containers have to be of the new version, too.",
            driver.complaint,
        )
    if driver.complaint:
        return Verdict("", "nvidia-smi fails", "See on the host: dmesg | grep -iE 'nvrm|nvidia'", driver.complaint)
    if driver.next_module and driver.module and driver.next_module != driver.module:
        return Verdict(
            "",
            f"kernel module {driver.module} runs, and the next start of the host loads {driver.next_module}",
            "Start the host anew when it suits, then run provision up: the libraries in containers have to be of the "
            "same version as the module.",
        )
    return Verdict(f"{driver.module or 'of unknown version'}, and so after the next start")


def _boot(driver: HostDriver) -> Verdict:
    """Whether something makes the nodes at every start: without it containers do not find them then."""
    if driver.makers:
        return Verdict(f"the nodes are made at every start by {' and '.join(driver.makers)}")
    partly = "; nvidia-persistenced makes the others alone" if driver.has_persistence else ""
    problem = f"nothing makes /dev/nvidia-uvm at the next start of the host{partly}"
    return Verdict("", problem, f"{PREPARE} (it installs {UNIT}, which runs before containers start)")


def _tools(wanted: tuple[Card, ...]) -> Verdict:
    """Whether the host can lend containers the driver's libraries, or they need some of their own."""
    if any(card.runtime for card in wanted):
        return Verdict("nvidia-container-cli is there: the host lends containers the driver's libraries")
    return Verdict(
        "there is no nvidia-container-cli: containers get libraries of their own, which have to follow each upgrade of "
        "the host's driver (sudo provision host prepare --gpu installs it)"
    )


def _unused(card: Card) -> Verdict:
    """A card that no container gets, with what it has to offer and what is in the way."""
    words = card.title
    if card.memory:
        words += f", {size_text(card.memory)}"
    words += ": no container gets it"
    obstacle = card.obstacle()
    if obstacle:
        words += f"; {obstacle}"
    return Verdict(words)


# Engines that were built with CUDA: whether they have code for the card, and whether its driver can run them.

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
