"""A folder that, put before the system's headers, lets nvcc compile without an edit of the toolkit."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

from provisioner.values.errors import PreflightError

FILE = Path("bits/mathcalls.h")
TEXT = """\
/* Written by `provision cuda fix --overlay`: for CUDA before 13.2 with glibc 2.41 or later.
 *
 * Hides glibc's C23 functions (sinpi, cospi, rsqrt and others) from what nvcc compiles, so that CUDA's own declarations
 * are the only ones. There is no include guard: <math.h> reads this file once for each floating-point type. */
#pragma push_macro("__GLIBC_USE_IEC_60559_FUNCS_EXT_C23")
#undef __GLIBC_USE_IEC_60559_FUNCS_EXT_C23
#define __GLIBC_USE_IEC_60559_FUNCS_EXT_C23 0
#include_next <bits/mathcalls.h>
#pragma pop_macro("__GLIBC_USE_IEC_60559_FUNCS_EXT_C23")
"""
_FIRST_LINE = TEXT.partition("\n")[0].encode()


def write_overlay(folder: Path) -> bool:
    """Make the overlay in ``folder``, which is new, empty or an overlay already; whether anything was written."""
    file = folder / FILE
    try:
        _refuse_unfit(folder)
        if file.is_file() and file.read_bytes() == TEXT.encode():
            return False
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(TEXT.encode())
    except OSError as error:
        raise PreflightError(f"Unable to write the overlay into {folder}", details=str(error)) from error
    return True


def remove_overlay(folder: Path) -> bool:
    """Remove the overlay that ``write_overlay`` made, and nothing else; whether there was one."""
    if not folder.is_dir():
        return False
    try:
        _refuse_unfit(folder)
        shutil.rmtree(folder)
    except OSError as error:
        raise PreflightError(f"Unable to remove the overlay {folder}", details=str(error)) from error
    return True


def environment_line(folder: Path) -> str:
    """The line for a shell or a build's environment that makes nvcc read the overlay first."""
    return f"NVCC_PREPEND_FLAGS={shlex.quote(f'-I{folder.resolve()}')}"


def _refuse_unfit(folder: Path) -> None:
    if any(one.isspace() for one in str(folder.resolve())):
        raise PreflightError(
            f"Unable to write the overlay into {folder.resolve()}: nvcc cuts its environment at blanks",
            resolution="Name a folder whose path has none.",
        )
    stranger = folder if folder.is_file() else next(_strangers(folder), None)
    if stranger:
        raise PreflightError(
            f"Unable to write the overlay into {folder}: there is something else",
            details=str(stranger),
            resolution="Name a new or an empty folder: the compiler would read everything that is in it.",
        )


def _strangers(folder: Path) -> Iterator[Path]:
    for one in folder.rglob("*"):
        name = one.relative_to(folder)
        is_ours = name == FILE.parent or (name == FILE and one.read_bytes().startswith(_FIRST_LINE))
        if not is_ours:
            yield one
