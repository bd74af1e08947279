"""The checks of a card in a running container: nodes, the driver's libraries, and a compiler where there is one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from provisioner.cuda.glibc import PI, RSQRT, version_of
from provisioner.doctor.diagnosis import Diagnosis, Verdict, diagnosed
from provisioner.gpus.cards import Card
from provisioner.gpus.inside import Access, Inside, Toolkit, Torch, User
from provisioner.wheels.rule import DRIVERS

RESTART = "Restart it: provision verify --after-reboot {container}"
LIBRARIES_AGAIN = (
    "Start the container anew (with the host's tools its libraries are mounted then), or run: provision up"
)
LIBRARY = "libcuda"
MANAGEMENT = "libnvidia-ml"
FIXED = {PI: (13, 0), RSQRT: (13, 2)}
"""glibc that declares more of CUDA's functions → the first release of CUDA that agrees with it."""


def inside_diagnoses(container: str, card: Card, seen: Inside, module: str = "") -> tuple[Diagnosis, ...]:
    """A line for each check; ``module`` is the version of the kernel module that the host says it runs."""
    return tuple(diagnosed(container, name, verdict) for name, verdict in _verdicts(container, card, seen, module))


def _verdicts(container: str, card: Card, seen: Inside, module: str) -> Iterator[tuple[str, Verdict]]:
    is_nvidia = card.vendor == "nvidia"
    running_module = seen.module or module
    yield "device files", _nodes(container, card, seen)
    if is_nvidia:
        yield "libraries", _libraries(seen, running_module)
    for toolkit in seen.toolkits:
        yield "compiler", _compiler(toolkit, seen)
    if is_nvidia:
        for torch in seen.torches:
            yield "torch", _torch(torch, running_module)


def _nodes(container: str, card: Card, seen: Inside) -> Verdict:
    """Whether the card's device files arrived, and the services' users may use them."""
    nodes, lost = _arrived_and_lost(card, seen)
    if lost:
        return Verdict("", f"{' and '.join(lost)} did not arrive", RESTART.format(container=container))
    for user in seen.users:
        closed = [node for node in nodes if not user.may_use(node)]
        if closed:
            return _closed(container, user, closed)
    there = f"all {len(nodes)} of {card.title} are there"
    if seen.users:
        units = ", ".join(user.unit for user in seen.users)
        there += f", and {units} may use them"
    return Verdict(there)


def _arrived_and_lost(card: Card, seen: Inside) -> tuple[list[Access], list[str]]:
    """The card's device files in the container, and the paths of those that are not there."""
    arrived = {node.path: node for node in seen.nodes}
    nodes, lost = list[Access](), list[str]()
    for wanted in card.needed:
        if wanted.path in arrived:
            nodes.append(arrived[wanted.path])
        else:
            lost.append(wanted.path)
    return nodes, lost


def _closed(container: str, user: User, closed: Sequence[Access]) -> Verdict:
    """That a service's user may not use these device files."""
    first = closed[0]
    paths = ", ".join(node.path for node in closed)
    groups = ", ".join(map(str, sorted(user.gids))) or "none"
    return Verdict(
        "",
        f"{user.unit} runs as user {user.uid}, which may not use {paths}",
        f"Run: provision up {container}",
        f"{first.path} has mode {first.mode:04o}, user {first.uid} and group {first.gid}; the service's groups "
        f"are {groups}.",
    )


def _libraries(seen: Inside, module: str) -> Verdict:
    """Whether the driver's libraries are of exactly the version of the host's kernel module."""
    there = seen.versions(LIBRARY)
    if not there:
        stub = f": {', '.join(seen.stubs)} is a stand-in" if seen.stubs else ""
        return Verdict("", f"the driver's library libcuda.so.1 is not there{stub}", LIBRARIES_AGAIN)
    for library in (LIBRARY, MANAGEMENT):
        wrong = _wrong_library(library, seen.versions(library), module)
        if wrong is not None:
            return wrong
    words = f"{LIBRARY} {there[0]}"
    return Verdict(f"{words}, as the host's kernel module" if module else words)


def _wrong_library(library: str, versions: Sequence[str], module: str) -> Verdict | None:
    """What is wrong with these versions of one library, if anything."""
    if len(versions) > 1:
        return Verdict("", f"{library} is there in several versions: {', '.join(versions)}", "Remove the older ones.")
    if not versions or not module or versions[0] == module:
        return None
    problem = f"{library} is of version {versions[0]}, the host's kernel module of {module}"
    return Verdict("", f"{problem}: the driver refuses that", LIBRARIES_AGAIN)


def _compiler(toolkit: Toolkit, seen: Inside) -> Verdict:
    """Whether glibc, GCC and the toolkit go together; what compiling itself says is asked by role cuda_toolkit."""
    name = f"CUDA {toolkit.release} in {toolkit.folder}"
    if _is_too_new(seen.gcc, toolkit):
        problem = f"{name} takes GCC up to {toolkit.gcc_limit}, there is {seen.gcc.partition('.')[0]}"
        return Verdict("", problem, f"Install g++-{toolkit.gcc_limit}, or a newer toolkit.")
    if _clashes(toolkit, seen):
        problem = f"{name} and glibc {seen.glibc} declare the same functions in two ways, unless its headers are mended"
        return Verdict("", problem, f"There: provision cuda check {toolkit.folder}")
    fits = f"{name} goes with glibc {seen.glibc or 'unknown'}"
    if seen.gcc:
        fits += f" and GCC {seen.gcc}"
    return Verdict(fits)


def _is_too_new(gcc: str, toolkit: Toolkit) -> bool:
    """Whether the toolkit refuses this GCC; where either is not known nothing is said."""
    major = gcc.partition(".")[0]
    if not major or not toolkit.gcc_limit:
        return False
    return int(major) > toolkit.gcc_limit


def _clashes(toolkit: Toolkit, seen: Inside) -> bool:
    """Whether the glibc declares functions of CUDA in another way than this release does."""
    glibc = version_of(seen.glibc)
    if glibc is None:
        return False
    release = _numbers(toolkit.release)[:2]
    for declares, agrees in FIXED.items():
        is_declared = glibc >= declares
        if is_declared and release < agrees:
            return True
    return False


def _torch(torch: Torch, module: str) -> Verdict:
    """Whether a torch can compute on the card with the driver that the host runs."""
    name = f"torch {torch.version} in {torch.folder}"
    if not torch.cuda:
        return Verdict(
            "", f"{name} was built without CUDA: it computes on the CPU", "Take a stack of: provision stacks"
        )
    least = _least_driver(torch)
    if not least or not module:
        return Verdict(f"{name} is for CUDA {torch.cuda}")
    if _numbers(module) < _numbers(least):
        problem = f"{name} is for CUDA {torch.cuda}, which needs driver {least} or newer; the host runs {module}"
        return Verdict("", problem, "Upgrade the host's driver, or take a stack for an older CUDA: provision stacks")
    return Verdict(f"{name} is for CUDA {torch.cuda}, which driver {module} runs")


def _least_driver(torch: Torch) -> str:
    """The oldest driver that runs its CUDA; empty where that is not known."""
    if not torch.cuda[0].isdigit():
        return ""
    major = torch.cuda.partition(".")[0]
    return DRIVERS.get(int(major), "")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))
