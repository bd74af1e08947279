"""Whether a toolkit compiles here, and which of the known failures stops it: two small files decide, not tables."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from provisioner.values.errors import PreflightError

Problem = Literal["", "compiler", "conflict", "edited", "library", "other"]
"""Nothing; GCC is too new; glibc's declarations differ; somebody edited the headers; a library that was asked for is
not there; anything else."""

_CALLS = "rsqrt(x) + sinpi(x) + cospi(x) + rsqrtf(y) + sinpif(y) + cospif(y)"
MATHS = f"""\
#include <cmath>
__global__ void device(double *r, double x, float y) {{ *r = {_CALLS}; }}
double host(double x, float y) {{ return {_CALLS}; }}
int main() {{ return host(4, 4) > 9; }}
"""
SOURCES = {"empty": "", "maths": MATHS}
"""The empty one fails as well where headers conflict; the other one is linked, which proves the runtime, too."""
LIBRARIES = {
    "cublas": "#include <cublas_v2.h>\nint main() { cublasHandle_t one; return cublasCreate(&one); }\n",
    "driver": "#include <cuda.h>\nint main() { return cuInit(0) + cuMemCreate(nullptr, 0, nullptr, 0); }\n",
}
"""What more can be asked for, each with a program that needs it; none is run."""
_LINKED = {"cublas": ("-lcublas",), "driver": ("-L{root}/lib64/stubs", "-lcuda")}
DEFAULT_COMPILER = "g++"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TIMEOUT_S = 600

_SIGNS: tuple[tuple[Problem, re.Pattern[str]], ...] = (
    ("compiler", re.compile(r"#error -- unsupported GNU version")),
    ("conflict", re.compile(r"error: exception specification is incompatible with that of previous function \"\w+\"")),
    ("edited", re.compile(r"math_functions\.hp{0,2}:\d+:\d+: error: declaration of .* different exception specifier")),
    ("library", re.compile(r"cannot find -l(?:cublas|cuda)\b|fatal error: (?:cublas_v2|cuda)\.h: No such file")),
)
_LIMIT = re.compile(r"gcc versions later than (\d+) are not supported")
_VERSIONED = re.compile(r"g\+\+-(\d+)")


@dataclass(frozen=True, slots=True)
class Probe:
    """What came of it: the known ``problem`` ("" when all compiles), and what the compilers ``said``."""

    problem: Problem
    said: str = ""

    @property
    def gcc_limit(self) -> int | None:
        """The newest GCC that the toolkit takes, where it said so."""
        match = _LIMIT.search(self.said)
        return int(match[1]) if match else None


def problem_of(said: str) -> Problem:
    """Which failure the words of a compiler tell of; GCC's version comes first, as it stops nvcc before the headers."""
    for problem, sign in _SIGNS:
        if sign.search(said):
            return problem
    return "other"


def supported_compilers(packages: Iterable[str], limit: int) -> tuple[str, ...]:
    """Those of ``packages`` that are a g++ up to the version ``limit``, the newest first."""
    versions = set()
    for package in packages:
        match = _VERSIONED.fullmatch(package)
        if match is not None and int(match[1]) <= limit:
            versions.add(int(match[1]))
    return tuple(f"g++-{version}" for version in sorted(versions, reverse=True))


def probe(root: Path, environment: Mapping[str, str], libraries: Sequence[str] = ()) -> Probe:
    """Compile both sources with the toolkit's nvcc, and one for each of ``libraries``, which are keys of ``LIBRARIES``.

    ``PreflightError`` when nvcc or the compiler is not there.
    """
    nvcc = root / "bin/nvcc"
    if not os.access(nvcc, os.X_OK):
        raise PreflightError(
            f"Unable to find a CUDA toolkit in {root}: there is no program bin/nvcc",
            resolution="Name the root of a whole toolkit, such as /usr/local/cuda.",
        )
    given = {"PATH": PATH, "LC_ALL": "C.UTF-8", **environment}
    compiler = given.get("NVCC_CCBIN", DEFAULT_COMPILER)
    if shutil.which(compiler, path=given["PATH"]) is None:
        raise PreflightError(
            f"Unable to compile with the CUDA toolkit in {root}: there is no compiler {compiler}",
            resolution="Install it (on Debian: apt-get install g++), or name another one.",
        )
    with tempfile.TemporaryDirectory(prefix="provision-cuda-") as folder:
        for name in (*SOURCES, *libraries):
            said = _compile(nvcc, name, Path(folder), given)
            if said:
                return Probe(problem_of(said), said)
    return Probe("")


def environment_of(text: str) -> dict[str, str]:
    """The variables of an environment file: lines of ``NAME=value``, comments left out."""
    variables = {}
    for line in map(str.strip, text.splitlines()):
        name, sign, value = line.partition("=")
        if sign and not line.startswith("#"):
            variables[name] = value
    return variables


def _compile(nvcc: Path, name: str, folder: Path, environment: Mapping[str, str]) -> str:
    """What is said when it fails; empty when it compiles."""
    source = folder / f"{name}.cu"
    text = {**SOURCES, **LIBRARIES}[name]
    source.write_text(text, encoding="ascii")
    before = () if text else ("-c",)
    after = (option.format(root=nvcc.parent.parent) for option in _LINKED.get(name, ()))
    done = subprocess.run(
        [nvcc, *before, source, "-o", folder / f"{name}.out", *after],
        env={**environment, "TMPDIR": str(folder)},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode == 0:
        return ""
    said = (done.stdout + done.stderr).strip()
    return said or f"nvcc ended with {done.returncode} and said nothing"
