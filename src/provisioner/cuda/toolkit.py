"""A CUDA toolkit on this machine: where its headers are, what they hold, and how both are replaced at once."""

from __future__ import annotations

import fcntl
import os
import platform
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from provisioner.cuda.headers import is_mended
from provisioner.cuda.places import DECLARATIONS, DEFINITIONS, Headers
from provisioner.values.errors import PreflightError, ProvisionError
from provisioner.values.regular_files import content_of

_VERSION = re.compile(r"^#define\s+CUDART_VERSION\s+(\d+)", re.MULTILINE)
_GCC_LIMIT = re.compile(r"^#if\s+__GNUC__\s*>\s*(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Toolkit:
    """What was read: the folder of headers, the toolkit's version, the newest GCC that it takes, both math headers."""

    include: Path
    version: str | None
    gcc_limit: int | None
    headers: Headers

    @property
    def declarations(self) -> Path:
        """The real crt/math_functions.h, links followed."""
        return (self.include / "crt" / DECLARATIONS).resolve()

    @property
    def definitions(self) -> Path:
        """The real crt/math_functions.hpp, links followed."""
        return (self.include / "crt" / DEFINITIONS).resolve()


def read_toolkit(folder: Path) -> Toolkit:
    """The toolkit of which ``folder`` is the root or the include directory; ``PreflightError`` when it is none.

    Of several folders of headers it is the one that this machine's compiler reads first.
    """
    return read_toolkits(folder)[0]


def read_toolkits(folder: Path) -> tuple[Toolkit, ...]:
    """The same with each folder of headers in it that is no link to another: a compiler may read any of them."""
    return tuple(_toolkit(folder, include) for include in _includes_of(folder))


def _toolkit(folder: Path, include: Path) -> Toolkit:
    try:
        headers = Headers(_read(include / "crt" / DECLARATIONS), _read(include / "crt" / DEFINITIONS))
        version = _number(include / "cuda_runtime_api.h", _VERSION)
        gcc_limit = _number(include / "crt/host_config.h", _GCC_LIMIT)
    except OSError as error:
        raise PreflightError(f"Unable to read the CUDA toolkit in {folder}", details=str(error)) from error
    return Toolkit(include, f"{version // 1000}.{version % 1000 // 10}" if version else None, gcc_limit, headers)


def write_headers(toolkit: Toolkit, wanted: Headers) -> tuple[Path, ...]:
    """Replace what differs from ``wanted`` and give its paths; ``PreflightError`` when it cannot be written.

    Nothing is replaced before everything is on the disk. The declarations define what the definitions use: they come
    first when the edit goes in and last when it goes out, so that a run killed in between leaves headers that compile.
    """
    files = [(toolkit.declarations, wanted.declarations), (toolkit.definitions, wanted.definitions)]
    try:
        with _alone(toolkit.declarations.parent):
            return _exchange(files if is_mended(wanted) else files[::-1])
    except OSError as error:
        raise PreflightError(
            f"Unable to write the headers in {toolkit.declarations.parent}; nothing was done",
            details=str(error),
            resolution="Run it as the owner of the toolkit (sudo), or leave it unedited: "
            "provision cuda fix DIR --overlay OUT",
        ) from error


def _includes_of(folder: Path) -> list[Path]:
    """The real include directories of ``folder``, those of this machine's own target before the others'."""
    if not folder.is_dir():
        reason = "it is no directory" if folder.exists() else "there is no such directory"
        raise _no_toolkit(folder, reason)
    targets = sorted(folder.glob("targets/*/include"), key=lambda one: (not _is_own(one.parent.name), one))
    found: dict[Path, Path] = {}
    for candidate in (folder, folder / "include", *targets):
        declarations = candidate / "crt" / DECLARATIONS
        if declarations.is_file():
            found.setdefault(declarations.resolve(), candidate.resolve())
    if not found:
        raise _no_toolkit(folder, f"neither it nor its include directory holds crt/{DECLARATIONS}")
    for include in found.values():
        if not (include / "crt" / DEFINITIONS).is_file():
            raise _no_toolkit(include, f"crt/{DEFINITIONS} is missing")
    return list(found.values())


def _is_own(target: str) -> bool:
    """Whether a target's folder is that of this machine's processor; NVIDIA calls ARM's servers sbsa."""
    names = {"aarch64": ("sbsa", "aarch64")}.get(platform.machine(), (platform.machine(),))
    return target.partition("-")[0] in names


def _no_toolkit(folder: Path, reason: str) -> PreflightError:
    return PreflightError(
        f"Unable to find a CUDA toolkit in {folder}: {reason}",
        resolution="Name the toolkit's root, such as /usr/local/cuda, or the directory that holds cuda_runtime.h.",
    )


def _read(path: Path) -> str:
    """The file's bytes as text: Latin-1 gives each byte one character and back."""
    return content_of(path).decode("latin-1")


def _number(path: Path, pattern: re.Pattern[str]) -> int | None:
    found = pattern.search(_read(path)) if path.is_file() else None
    return int(found[1]) if found else None


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One writer at a time: two that cross would leave one header of each."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # NFS locks no directories
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _exchange(files: Sequence[tuple[Path, str]]) -> tuple[Path, ...]:
    """Stage every file that differs, then replace them in their order; what was staged in vain is removed."""
    staged: list[tuple[Path, Path]] = []
    try:
        for path, text in files:
            if _read(path) != text:
                staged.append((_staging_path(path), path))
                _stage(*staged[-1], text)
        _replace(staged)
    finally:
        for temporary, _ in staged:
            with suppress(OSError):  # what went wrong is being said already
                temporary.unlink(missing_ok=True)
    return tuple(path for _, path in staged)


def _staging_path(path: Path) -> Path:
    """Always the same name, so that what a killed run left is used by the next one."""
    return path.with_name(f".{path.name}.provision")


def _stage(temporary: Path, path: Path, text: str) -> None:
    """Write ``text`` beside ``path``, with its mode, owner and label, and get it onto the disk."""
    temporary.unlink(missing_ok=True)
    with temporary.open("xb") as stream:
        stream.write(text.encode("latin-1"))
        stream.flush()
        before, now = path.stat(), os.fstat(stream.fileno())
        if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
            os.fchown(stream.fileno(), before.st_uid, before.st_gid)
        shutil.copystat(path, temporary)
        os.utime(temporary)  # a build that depends on the header has to see that it changed
        os.fsync(stream.fileno())


def _replace(staged: Sequence[tuple[Path, Path]]) -> None:
    for number, (temporary, path) in enumerate(staged):
        try:
            temporary.replace(path)
        except OSError as error:
            if not number:
                raise
            raise ProvisionError(
                f"Unable to replace {path}: the other header was replaced, this one was not",
                details=str(error),
                resolution="Run the same command again: it does what is missing.",
            ) from error
        with suppress(OSError):  # not every file system can; the rename has happened
            _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
