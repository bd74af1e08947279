"""A stack and all that its packages ask for, frozen: each wheel with its address and sha256. Resolved by uv."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from provisioner.values.errors import PreflightError, ProvisionError
from provisioner.wheels.builds import DEBIAN_12, Build, Machine, best_of, build_of, takes
from provisioner.wheels.known import UNVERIFIED, Stack, Wheel

TIMEOUT_S = 3600
"""Wheels without a known hash are downloaded to take it, and torch has gigabytes."""
NEWEST_GLIBC = (2, 40)
"""Newer ones uv cannot be asked for; wheels for this one run there, too."""
_SAID = 20
_NO_SOLUTION = 1
"""What uv ends with where the requirements cannot be met; 2 where it could not look."""


@dataclass(frozen=True, slots=True)
class Locked:
    """One wheel: what role ``torch_stack`` takes of it."""

    name: str
    version: str
    url: str
    sha256: str


@dataclass(frozen=True, slots=True)
class LockRequest:
    """What is to be locked: for which Python and machine; ``extra``, lines of requirements, besides.

    ``source``: a folder of wheels, or the address of an index, instead of the wheels' own places and PyPI.
    """

    python: str
    machine: Machine = DEBIAN_12
    extra: tuple[str, ...] = ()
    source: str = ""
    accept_unverified: bool = False


def locked(stack: Stack, request: LockRequest) -> tuple[Locked, ...]:
    """All wheels of the stack and what they ask for, by name.

    Raises ``PreflightError`` where there is no wheel for that Python, a hash is not known and not accepted, or uv finds
    no solution, and ``ProvisionError`` where a wheel is another than its page says, or there are only sources.
    """
    chosen = {name: _chosen(stack, name, request) for name in stack.packages}
    if not request.accept_unverified:
        _refuse_unverified(stack, chosen.values())
    solution = {found.name: found for found in _wheels(_resolved(stack, chosen, request), request)}
    for name, wheel in chosen.items():
        solution[name] = _as_page_says(stack, wheel, solution.get(name))
    return tuple(solution[name] for name in sorted(solution))


def _refuse_unverified(stack: Stack, wheels: Iterable[Wheel]) -> None:
    files = [wheel.build.file for wheel in wheels if wheel.sha256 == UNVERIFIED]
    if files:
        raise PreflightError(
            f"Unable to lock {stack.id}: nobody says what {len(files)} of its files hash to",
            details="\n".join(files),
            resolution="With --accept-unverified they are downloaded once, and what comes is frozen.",
        )


def _as_page_says(stack: Stack, wheel: Wheel, found: Locked | None) -> Locked:
    """What the solution has of a wheel of the stack, from the address on its page; ``ProvisionError`` for another."""
    if found is not None and wheel.sha256 in (UNVERIFIED, found.sha256):
        return found if wheel.is_on_index else replace(found, url=wheel.url)
    if found is None:
        difference = "the solution is without it"
    else:
        difference = f"it hashes to {found.sha256}, its page says {wheel.sha256}"
    raise ProvisionError(
        f"Unable to lock {stack.id}: {wheel.build.file} is not what it should be",
        details=difference,
        resolution="Somebody replaced the file: do not use it before you know who, and why.",
    )


def _chosen(stack: Stack, name: str, request: LockRequest) -> Wheel:
    for wheel in stack.packages[name].wheels:
        if takes(request.python, request.machine, wheel.build):
            return wheel
    raise PreflightError(
        f"Unable to lock {stack.id}: {name} has no wheel for Python {request.python}",
        details=f"There are wheels for Python {', '.join(stack.python)}.",
        resolution="Take one of these, or another stack: provision stacks",
    )


def _lines(chosen: Mapping[str, Wheel], request: LockRequest) -> Iterator[str]:
    for name, wheel in chosen.items():
        if request.source or wheel.is_on_index:
            yield f"{name}=={wheel.build.version}"
        else:
            yield f"{name} @ {_address(wheel)}"
    yield from request.extra


def _address(wheel: Wheel) -> str:
    """Where the wheel is, with its hash where that is known."""
    if wheel.sha256 == UNVERIFIED:
        return wheel.url
    return f"{wheel.url}#sha256={wheel.sha256}"


def _resolved(stack: Stack, chosen: Mapping[str, Wheel], request: LockRequest) -> list[dict[str, Any]]:
    """The packages of uv's pylock.toml."""
    from uv import find_uv_bin

    glibc = "_".join(map(str, min(request.machine.glibc, NEWEST_GLIBC)))
    with tempfile.TemporaryDirectory(prefix="provision-lock-") as folder:
        excludes = Path(folder) / "excludes.txt"
        excludes.write_text("\n".join(stack.without), encoding="utf-8")
        command = [find_uv_bin(), "pip", "compile", "-", "--no-config", "--quiet", "--no-header", "--generate-hashes"]
        command += ["--python", sys.executable]  # nothing is built: none of that version is looked for or downloaded
        command += ["--format", "pylock.toml", "--only-binary", ":all:", "--python-version", request.python]
        command += [
            "--python-platform",
            f"{request.machine.architecture}-manylinux_{glibc}",
            "--excludes",
            str(excludes),
        ]
        text = "\n".join(_lines(chosen, request))
        done = subprocess.run(
            [*command, *_place(request.source)],
            input=text,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    if done.returncode:
        raise _unsolved(stack, request, done)
    packages: list[dict[str, Any]] = tomllib.loads(done.stdout).get("packages", [])
    return packages


def _unsolved(stack: Stack, request: LockRequest, done: subprocess.CompletedProcess[str]) -> PreflightError:
    """Why there is no solution; a uv that was killed (by the kernel, for want of memory) says nothing itself."""
    said = "\n".join(done.stderr.strip().splitlines()[-_SAID:])
    ended = f"signal {-done.returncode} ended it" if done.returncode < 0 else f"it ended with {done.returncode}"
    failing = "finds no solution" if done.returncode == _NO_SOLUTION else "did not look to the end"
    return PreflightError(
        f"Unable to lock {stack.id} for Python {request.python}: uv {failing}",
        details=said or f"It says nothing; {ended}.",
        resolution="Where no other machine is reached: --from FOLDER or --from INDEX, with all the wheels.",
    )


def _place(source: str) -> Sequence[str]:
    if not source:
        return ()
    if "://" in source:
        return ("--index-url", source)
    return ("--no-index", "--find-links", source)


def _wheels(packages: Iterable[Mapping[str, Any]], request: LockRequest) -> Iterator[Locked]:
    for package in packages:
        entries = [package["archive"]] if "archive" in package else package.get("wheels", [])
        by_build = {_build(entry): entry for entry in entries}
        best = best_of(request.python, request.machine, by_build)
        if best is None:
            raise ProvisionError(
                f"Unable to lock {package['name']} {package.get('version', '')}: there is no wheel for this Python",
                resolution="Sources are never built on hosts. Take another version: write it with --with.",
            )
        entry = by_build[best]
        yield Locked(canonicalize_name(package["name"]), str(best.version), entry["url"], entry["hashes"]["sha256"])


def _build(entry: Mapping[str, Any]) -> Build:
    return build_of(entry.get("name") or entry["url"])
