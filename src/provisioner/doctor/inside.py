"""What of a card arrived in a running container: nodes, the driver's libraries, and a compiler where there is one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from provisioner.cuda.glibc import PI, RSQRT, version_of
from provisioner.doctor.diagnosis import Diagnosis, Verdict, diagnosed
from provisioner.gpus.cards import Card
from provisioner.gpus.inside import Inside, Toolkit, Torch
from provisioner.stacks.objections import DRIVERS

RESTART = "Restart it: provision verify --after-reboot {container}"
LIBRARY = "libcuda"
MANAGEMENT = "libnvidia-ml"
FIXED = {PI: (13, 0), RSQRT: (13, 2)}
"""glibc that declares more of CUDA's functions → the first release of CUDA that agrees with it."""
_CAPABILITIES = "/dev/nvidia-caps/"


def inside_diagnoses(container: str, card: Card, seen: Inside, module: str = "") -> tuple[Diagnosis, ...]:
    """A line for each check; ``module`` is the version of the kernel module that the host says it runs."""
    return tuple(diagnosed(container, name, verdict) for name, verdict in _verdicts(container, card, seen, module))


def _verdicts(container: str, card: Card, seen: Inside, module: str) -> Iterator[tuple[str, Verdict]]:
    yield "device files", _nodes(container, card, seen)
    if card.vendor == "nvidia":
        yield "libraries", _libraries(seen, seen.module or module)
    for toolkit in seen.toolkits:
        yield "compiler", _compiler(toolkit, seen)
    if card.vendor == "nvidia":
        for torch in seen.torches:
            yield "torch", _torch(torch, seen.module or module)


def _nodes(container: str, card: Card, seen: Inside) -> Verdict:
    arrived = {node.path: node for node in seen.nodes}
    # what a part of a card may be used for is its own matter, and root's alone
    wanted = [node.path for node in card.nodes if not node.path.startswith(_CAPABILITIES)]
    lost = [path for path in wanted if path not in arrived]
    if lost:
        return Verdict("", f"{' and '.join(lost)} did not arrive", RESTART.format(container=container))
    for user in seen.users:
        closed = [arrived[path] for path in wanted if not user.may_use(arrived[path])]
        if closed:
            first = closed[0]
            return Verdict(
                "",
                f"{user.unit} runs as user {user.uid}, which may not use {', '.join(node.path for node in closed)}",
                f"Run: provision up {container}",
                f"{first.path} has mode {first.mode:04o}, user {first.uid} and group {first.gid}; the service's groups "
                f"are {', '.join(map(str, sorted(user.gids))) or 'none'}.",
            )
    whom = f", and {', '.join(user.unit for user in seen.users)} may use them" if seen.users else ""
    return Verdict(f"all {len(wanted)} of {card.title} are there{whom}")


def _libraries(seen: Inside, module: str) -> Verdict:
    """Whether the driver's libraries are of exactly the version of the host's kernel module."""
    again = "Start the container anew (with the host's tools its libraries are mounted then), or run: provision up"
    there = seen.versions(LIBRARY)
    if not there:
        stub = f": {', '.join(seen.stubs)} is a stand-in" if seen.stubs else ""
        return Verdict("", f"the driver's library libcuda.so.1 is not there{stub}", again)
    for library in (LIBRARY, MANAGEMENT):
        found = seen.versions(library)
        if len(found) > 1:
            return Verdict("", f"{library} is there in several versions: {', '.join(found)}", "Remove the older ones.")
        if found and module and found[0] != module:
            problem = f"{library} is of version {found[0]}, the host's kernel module of {module}"
            return Verdict("", f"{problem}: the driver refuses that", again)
    return Verdict(f"{LIBRARY} {there[0]}, as the host's kernel module" if module else f"{LIBRARY} {there[0]}")


def _compiler(toolkit: Toolkit, seen: Inside) -> Verdict:
    """Whether glibc, GCC and the toolkit go together; what compiling itself says is asked by role cuda_toolkit."""
    gcc = int(seen.gcc.partition(".")[0] or 0) if seen.gcc else 0
    name = f"CUDA {toolkit.release} in {toolkit.folder}"
    if gcc and toolkit.gcc_limit and gcc > toolkit.gcc_limit:
        problem = f"{name} takes GCC up to {toolkit.gcc_limit}, there is {gcc}"
        return Verdict("", problem, f"Install g++-{toolkit.gcc_limit}, or a newer toolkit.")
    glibc = version_of(seen.glibc)
    release = tuple(int(one) for one in re.findall(r"\d+", toolkit.release)[:2])
    clash = [since for since, fixed in FIXED.items() if glibc and glibc >= since and release < fixed]
    if clash:
        problem = f"{name} and glibc {seen.glibc} declare the same functions in two ways, unless its headers are mended"
        return Verdict("", problem, f"There: provision cuda check {toolkit.folder}")
    return Verdict(f"{name} goes with glibc {seen.glibc or 'unknown'}" + (f" and GCC {seen.gcc}" if seen.gcc else ""))


def _torch(torch: Torch, module: str) -> Verdict:
    """Whether a torch can compute on the card with the driver that the host runs."""
    name = f"torch {torch.version} in {torch.folder}"
    if not torch.cuda:
        return Verdict(
            "", f"{name} was built without CUDA: it computes on the CPU", "Take a stack of: provision stacks"
        )
    floor = DRIVERS.get(int(torch.cuda.partition(".")[0])) if torch.cuda[0].isdigit() else None
    if floor and module and _numbers(module) < _numbers(floor):
        problem = f"{name} is for CUDA {torch.cuda}, which needs driver {floor} or newer; the host runs {module}"
        return Verdict("", problem, "Upgrade the host's driver, or take a stack for an older CUDA: provision stacks")
    return Verdict(f"{name} is for CUDA {torch.cuda}" + (f", which driver {module} runs" if module and floor else ""))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(one) for one in re.findall(r"\d+", version))
