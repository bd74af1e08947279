"""What a compiler's words mean, which compilers would do, and what is run: told by programs that stand in for nvcc."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.cuda.probe import Problem, environment_of, probe, problem_of, supported_compilers
from provisioner.values.errors import PreflightError

UNSUPPORTED = "137:2: error: #error -- unsupported GNU version! gcc versions later than 15 are not supported!"
CONFLICT = 'mathcalls.h(206): error: exception specification is incompatible with that of previous function "rsqrt"'
BY_HAND = "math_functions.h:6046:1: error: declaration of 'double rsqrt(double)' has a different exception specifier"


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (UNSUPPORTED, "compiler"),
        (f"{UNSUPPORTED}\n{CONFLICT}", "compiler"),
        (CONFLICT, "conflict"),
        (BY_HAND, "edited"),
        ("ld: cannot find -lcudart_static", "other"),
    ],
)
def test_known_failures_are_told_apart(said: str, problem: Problem) -> None:
    assert problem_of(said) == problem


def test_only_what_the_toolkit_takes_is_offered_the_newest_first() -> None:
    names = ["g++-9", "g++-15", "g++-16", "g++-14", "g++-14-multilib", "g++-15-aarch64-linux-gnu", "g++-mingw-w64"]
    assert supported_compilers(names, 15) == ("g++-15", "g++-14", "g++-9")
    assert supported_compilers(names, 8) == ()


def test_an_environment_file_is_lines_without_comments() -> None:
    assert environment_of("# a=b\nCUDA_HOME=/opt\n\nFLAGS=-D=1\n") == {"CUDA_HOME": "/opt", "FLAGS": "-D=1"}


def toolkit(folder: Path, script: str) -> Path:
    """A toolkit whose nvcc is the script."""
    nvcc = folder / "bin/nvcc"
    nvcc.parent.mkdir()
    nvcc.write_text(f"#!/bin/sh\n{script}\n")
    nvcc.chmod(0o755)
    return folder


def test_both_files_are_compiled_and_the_second_is_linked(tmp_path: Path) -> None:
    root = toolkit(tmp_path, f'echo "$*" >> {tmp_path}/log; cat "$TMPDIR"/maths.cu >> {tmp_path}/log 2>/dev/null; true')
    assert probe(root, {"NVCC_CCBIN": "sh"}).problem == ""
    first, second, *source = (tmp_path / "log").read_text().splitlines()
    assert first.startswith("-c ")
    assert "empty.cu" in first
    assert not second.startswith("-c ")
    assert any("rsqrt(x)" in line for line in source)


def test_what_is_said_comes_back_with_the_limit(tmp_path: Path) -> None:
    seen = probe(toolkit(tmp_path, f"echo '{UNSUPPORTED}' >&2; exit 1"), {"NVCC_CCBIN": "sh"})
    assert (seen.problem, seen.gcc_limit, seen.said) == ("compiler", 15, UNSUPPORTED)


def test_a_silent_end_is_no_success(tmp_path: Path) -> None:
    seen = probe(toolkit(tmp_path, "exit 3"), {"NVCC_CCBIN": "sh"})
    assert (seen.problem, seen.said) == ("other", "nvcc ended with 3 and said nothing")


def test_no_toolkit_and_no_compiler_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="there is no program bin/nvcc"):
        probe(tmp_path, {})
    with pytest.raises(PreflightError, match="there is no compiler g\\+\\+-99"):
        probe(toolkit(tmp_path, "true"), {"NVCC_CCBIN": "g++-99"})


@pytest.mark.parametrize(
    "said",
    [
        "/usr/bin/ld: cannot find -lcublas: No such file or directory",
        "/usr/bin/ld: cannot find -lcuda",
        "cublas.cu:1:10: fatal error: cublas_v2.h: No such file or directory",
    ],
)
def test_a_library_that_was_asked_for_is_missed_and_no_other(tmp_path: Path, said: str) -> None:
    root = toolkit(tmp_path, f'echo "$*" >> {tmp_path}/log; case "$*" in *cublas.cu*) echo "{said}" >&2; exit 1; esac')
    assert probe(root, {"NVCC_CCBIN": "sh"}).problem == ""
    seen = probe(root, {"NVCC_CCBIN": "sh"}, ["driver", "cublas"])
    assert (seen.problem, seen.said) == ("library", said)
    *_, driver, cublas = (tmp_path / "log").read_text().splitlines()
    assert driver.endswith(f"driver.out -L{root}/lib64/stubs -lcuda")
    assert cublas.endswith("cublas.out -lcublas")
