"""A stub of the driver's library for machines without one: what links against it runs only where the driver is."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from provisioner.cuda.probe import PATH
from provisioner.values.errors import PreflightError, ProvisionError

STUB = Path("lib64/stubs/libcuda.so")
"""Below the toolkit's root, where NVIDIA's own toolkits have theirs and CMake's FindCUDAToolkit looks for it."""
SONAME = "libcuda.so.1"
STUB_ERROR = 34
"""``CUDA_ERROR_STUB_LIBRARY``: what NVIDIA's own stub answers to every call."""
TIMEOUT_S = 120

# cuda.h renames cuMemAlloc to cuMemAlloc_v2 and so on: as programs see it, as the driver's authors do, and with one
# stream for each thread.
_WAYS = ("", "-D__CUDA_API_VERSION_INTERNAL", "-DCUDA_API_PER_THREAD_DEFAULT_STREAM")
_FUNCTION = re.compile(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(")
_LINKED = ("-shared", "-fPIC", "-nostdlib", f"-Wl,-soname,{SONAME}")
# The same bytes each time: neither the compiler's name, nor the file's, nor a digest of what was linked.
_SAME = ("-fno-ident", "-g0", "-Wl,--build-id=none", "-Wl,--strip-all")


def functions_of(preprocessed: Iterable[str]) -> tuple[str, ...]:
    """The driver's functions that cuda.h declares, after the preprocessor, sorted, each once."""
    names: set[str] = set()
    for text in preprocessed:
        names.update(_FUNCTION.findall(text))
    return tuple(sorted(names))


def source_of(functions: Iterable[str]) -> str:
    """The C source of a library in which each function is one that answers ``STUB_ERROR``."""
    aliases = (f'int {name}(void) __attribute__((alias("stub")));' for name in functions)
    return "\n".join([f"static int stub(void) {{ return {STUB_ERROR}; }}", *aliases, ""])


def write_stub(root: Path, compiler: str, *, write: bool = True) -> tuple[Path, ...]:
    """Make the toolkit's stub and the link of its soname, and give what differed; without ``write`` only say so.

    ``PreflightError`` when cuda.h or the compiler is not there, ``ProvisionError`` when it does not compile.
    """
    stub, link = root / STUB, root / STUB.with_name(SONAME)
    made = _made(root, compiler)
    differing = []
    if stub.is_symlink() or not stub.is_file() or stub.read_bytes() != made:
        differing.append(stub)
    if not link.is_symlink() or link.readlink() != Path(stub.name):
        differing.append(link)
    if write and differing:
        _write(stub, link, made)
    return tuple(differing)


def _made(root: Path, compiler: str) -> bytes:
    header = root / "include/cuda.h"
    if not header.is_file():
        raise PreflightError(
            f"Unable to make a stub of the driver for the toolkit in {root}: there is no include/cuda.h",
            resolution="Name the root of a whole toolkit, such as /opt/cuda-13.0.",
        )
    if shutil.which(compiler, path=PATH) is None:
        raise PreflightError(
            f"Unable to make a stub of the driver for the toolkit in {root}: there is no compiler {compiler}",
            resolution="Install it (on Debian: apt-get install g++), or name another one.",
        )
    functions = functions_of(_run([compiler, "-E", "-x", "c", *way.split(), str(header)]) for way in _WAYS)
    if "cuInit" not in functions:
        raise PreflightError(
            f"Unable to make a stub of the driver for the toolkit in {root}: include/cuda.h does not declare cuInit",
            resolution="Lay the toolkit out anew, or report its version.",
        )
    with tempfile.TemporaryDirectory(prefix="provision-cuda-") as folder:
        source, library = Path(folder) / "stub.c", Path(folder) / STUB.name
        source.write_text(source_of(functions), encoding="ascii")
        _run([compiler, "-x", "c", *_LINKED, *_SAME, str(source), "-o", str(library)])
        return library.read_bytes()


def _run(command: list[str]) -> str:
    done = subprocess.run(
        command,
        env={"PATH": PATH, "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise ProvisionError(
            f"Unable to make a stub of the driver: {command[0]} ended with {done.returncode}", details=done.stderr
        )
    return done.stdout


def _write(stub: Path, link: Path, made: bytes) -> None:
    """Replace both by renames, so that a build that runs meanwhile finds the one or the other."""
    new = stub.with_name(f".{stub.name}.provision")
    try:
        stub.parent.mkdir(parents=True, exist_ok=True)
        stub.parent.chmod(0o755)
        new.unlink(missing_ok=True)
        new.write_bytes(made)
        new.chmod(0o644)
        new.replace(stub)
        new.symlink_to(stub.name)
        new.replace(link)
    except OSError as error:
        raise ProvisionError(f"Unable to write {stub}", details=str(error)) from error
