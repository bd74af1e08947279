"""NVIDIA's own compiler, CUDA 13.0, on this machine: what fails without the fix compiles with it, and goes on to.

The machine's glibc may be older than the conflict: a folder of ours then makes it declare what glibc 2.42 declares.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from provisioner.cuda.glibc import machine_glibc
from provisioner.cuda.look import look_at
from provisioner.cuda.overlay import environment_line, write_overlay
from provisioner.cuda.toolkit import write_headers
from tests.unit.cuda.test_headers import blog_edit
from tests.unit.cuda.wheels import COMPILER_13_0, unpack

pytestmark = [pytest.mark.network, pytest.mark.slow]

CALLS = "rsqrt(x) + sinpi(x) + cospi(x) + rsqrtf(y) + sinpif(y) + cospif(y)"
SOURCES = {
    "empty": "",
    "maths": f"""
__global__ void device(double *r, double x, float y) {{ *r = {CALLS}; }}
double host(double x, float y) {{ return {CALLS}; }}
""",
}
NEWER_FEATURES = """\
#include_next <features.h>
#undef __GLIBC_MINOR__
#define __GLIBC_MINOR__ 43
#undef __GLIBC_USE_IEC_60559_FUNCS_EXT_C23
#define __GLIBC_USE_IEC_60559_FUNCS_EXT_C23 1
"""
NEWER_MATHCALLS = """\
#include_next <bits/mathcalls.h>
#if __GLIBC_USE (IEC_60559_FUNCS_EXT_C23)
__MATHCALL (rsqrt,, (_Mdouble_ __x));
#endif
"""


@dataclass
class Compiler:
    """A toolkit of its own, and what comes before the system's headers."""

    root: Path
    folder: Path
    newer: Path
    environment: dict[str, str] = field(default_factory=dict)

    def compile(self, source: str, *, newer: bool) -> str:
        """What nvcc says of the source when it fails; empty when it compiles."""
        file = self.folder / f"{source}.cu"
        file.write_text(SOURCES[source])
        flags = ["-I", str(self.newer)] if newer else []
        environment = {"PATH": "/usr/bin:/bin", "TMPDIR": str(self.folder), **self.environment}
        command = [str(self.root / "bin/nvcc"), *flags, "-c", str(file), "-o", str(self.folder / "object.o")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode or not done.stderr, f"a warning: {done.stderr}"
        return done.stdout + done.stderr if done.returncode else ""


@pytest.fixture
def compiler(tmp_path: Path) -> Compiler:
    """CUDA 13.0 from the wheels."""
    if platform.machine() != "x86_64":
        pytest.skip(f"the pinned wheels are for x86_64, this is {platform.machine()}")
    if not shutil.which("g++", path="/usr/bin:/bin"):
        pytest.skip("there is no g++")
    newer = tmp_path / "newer"
    (newer / "bits").mkdir(parents=True)
    (newer / "features.h").write_text(NEWER_FEATURES)
    (newer / "bits/mathcalls.h").write_text(NEWER_MATHCALLS)
    return Compiler(unpack(COMPILER_13_0, tmp_path / "cuda"), tmp_path, newer)


def fix(compiler: Compiler) -> None:
    look = look_at(compiler.root, (2, 43))[0]
    write_headers(look.toolkit, look.headers.mended)


def fix_by_half(compiler: Compiler) -> None:
    look = look_at(compiler.root, (2, 43))[0]
    declarations = look.headers.mended.declarations
    look.toolkit.declarations.write_text(declarations, encoding="latin-1")
    assert look_at(compiler.root)[0].headers.state == "half"


def revert(compiler: Compiler) -> None:
    look = look_at(compiler.root, (2, 43))[0]
    write_headers(look.toolkit, look.headers.original)


def overlay(compiler: Compiler) -> None:
    write_overlay(compiler.folder / "overlay")
    name, _, flags = environment_line(compiler.folder / "overlay").partition("=")
    compiler.environment[name] = flags


def by_hand(compiler: Compiler) -> None:
    look = look_at(compiler.root, (2, 43))[0]
    write_headers(look.toolkit, blog_edit(look.toolkit.headers))


@pytest.fixture
def needs_older_glibc() -> None:
    """The machine's own glibc has no conflict yet."""
    version = machine_glibc()
    if version is None or version >= (2, 41):
        pytest.skip(f"this machine's glibc {version} has the conflict itself")


@pytest.mark.usefixtures("needs_older_glibc")
def test_it_compiles_on_this_machine_whatever_was_done_to_it(compiler: Compiler) -> None:
    for step in (None, fix_by_half, fix, revert, overlay):
        if step:
            step(compiler)
        for source in SOURCES:
            assert compiler.compile(source, newer=False) == "", (step, source)


@pytest.mark.usefixtures("needs_older_glibc")
@pytest.mark.parametrize("mend", [fix, overlay])
def test_with_a_newer_glibc_it_fails_before_and_passes_after(
    compiler: Compiler, mend: Callable[[Compiler], None]
) -> None:
    for source in SOURCES:
        said = compiler.compile(source, newer=True)
        assert 'exception specification is incompatible with that of previous function "rsqrt"' in said, said
        assert '"rsqrtf"' in said
    mend(compiler)
    for source in SOURCES:
        assert compiler.compile(source, newer=True) == "", source


@pytest.mark.usefixtures("needs_older_glibc")
def test_the_unguarded_hand_edit_breaks_this_machine_as_check_says(compiler: Compiler) -> None:
    by_hand(compiler)
    look = look_at(compiler.root)[0]
    assert look.conflicts == ("rsqrt", "rsqrtf")
    assert "different exception specifier" in compiler.compile("empty", newer=False)
    assert look_at(compiler.root, (2, 43))[0].conflicts == ()
    assert compiler.compile("empty", newer=True) == ""
