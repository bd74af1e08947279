"""The toolkit compiles with what the role wrote; what does not is told apart, and mended or refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host

SCENARIO = Path(__file__).resolve().parents[1]
HOME = "/opt/cuda-13.0"
ENVIRONMENT = f"{HOME}/provision.env"
OVERLAY = f"{HOME}/glibc-overlay"
STUBS = f"{HOME}/lib64/stubs"
COPY = "/srv/cuda"
NEWER = "/srv/newer"
SOURCE = "__global__ void device(double *r, double x) { *r = rsqrt(x) + sinpi(x); } int main() { return 0; }"
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
CALLS_DRIVER = """\
#include <cuda.h>
int main() { return cuInit(0) == CUDA_ERROR_STUB_LIBRARY ? cuMemCreate(nullptr, 0, nullptr, 0) : 1; }
"""
CONFLICT = "exception specification is incompatible"
UNCHANGED = r"changed=0 .*failed=0"


def run_playbook(name: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run one of the scenario's playbooks on its container, with other options than the scenario's."""
    command = ["ansible-playbook", "--inventory", os.environ["MOLECULE_INVENTORY_FILE"], str(SCENARIO / name)]
    part = {"part": options.pop("part")} if "part" in options else {}
    named = {f"cuda_toolkit_{option}": value for option, value in options.items()} | part
    command += ["--extra-vars", json.dumps(named), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def assert_refused(answer: subprocess.CompletedProcess[str], words: str) -> None:
    """The run failed, for the reason that ``words`` name."""
    shown = answer.stdout + answer.stderr
    assert answer.returncode != 0, shown
    assert re.search(words, shown), shown


def assert_passed(answer: subprocess.CompletedProcess[str], words: str = "failed=0") -> None:
    """The run passed and said ``words``."""
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert re.search(words, answer.stdout), answer.stdout


def headers(host: Host, root: str) -> str:
    """The digests of the two math headers."""
    return str(host.check_output(f"cd {root}/include/crt && sha256sum math_functions.h math_functions.hpp"))


@pytest.fixture
def copy(host: Host) -> Iterator[str]:
    """The same toolkit in a directory that is somebody else's; afterwards all is as it was converged."""
    host.check_output(
        f"rm -rf {COPY} && cp -a {HOME} {COPY} && rm {COPY}/WHEELS {COPY}/MANIFEST.sha256 {COPY}/provision.env"
    )
    host.check_output(f"mv {HOME} {HOME}.aside")
    yield COPY
    host.check_output(f"rm -rf {COPY} {NEWER} {HOME} && mv {HOME}.aside {HOME}")


@pytest.fixture
def newer(host: Host, copy: str) -> str:
    """The directory, and for its nvcc a glibc that declares rsqrt as 2.43 does."""
    host.check_output(f"mkdir -p {NEWER}/bits")
    for name, text in (("features.h", NEWER_FEATURES), ("bits/mathcalls.h", NEWER_MATHCALLS)):
        host.check_output("printf %%s %s > %s", text.replace("\\\n", "", 1), f"{NEWER}/{name}")
    host.check_output(f"sed -i 's|^INCLUDES .*|& \"-I{NEWER}\" $(_SPACE_)|' {copy}/bin/nvcc.profile")
    return copy


def test_a_build_with_its_environment_compiles_and_links(host: Host) -> None:
    lines = host.file(ENVIRONMENT).content_string.splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        f"CUDA_HOME={HOME}",
        f"CUDACXX={HOME}/bin/nvcc",
        f"LDFLAGS=-Wl,-rpath-link,{HOME}/lib64:{STUBS}",
    ]
    host.check_output("printf %%s %s > /tmp/one.cu", SOURCE)
    host.check_output(f"set -a; . {ENVIRONMENT}; $CUDACXX /tmp/one.cu -o /tmp/one && /tmp/one")
    host.check_output(f"{HOME}/bin/nvcc -cudart shared /tmp/one.cu -o /tmp/one")
    assert "libcudart.so.13" in host.check_output("ldd /tmp/one")


def test_what_calls_the_driver_links_without_one_and_gets_34(host: Host) -> None:
    host.check_output("printf %%s %s > /tmp/calls.cu", CALLS_DRIVER)
    host.check_output(f"{HOME}/bin/nvcc /tmp/calls.cu -o /tmp/calls -L{STUBS} -lcuda")
    assert "libcuda.so.1 => not found" in host.check_output("ldd /tmp/calls")
    assert host.run(f"LD_LIBRARY_PATH={STUBS} /tmp/calls").rc == 34


def test_a_stub_that_is_missing_is_found_and_made_anew(host: Host) -> None:
    before = host.file(f"{STUBS}/libcuda.so").sha256sum
    host.check_output(f"rm {STUBS}/libcuda.so")
    assert_refused(run_playbook("part.yml", part="verify"), "cannot find -lcuda")
    assert_passed(run_playbook("part.yml"), r"changed=1 .*failed=0")
    assert host.file(f"{STUBS}/libcuda.so").sha256sum == before
    assert host.file(f"{STUBS}/libcuda.so.1").linked_to == f"{HOME}/lib/stubs/libcuda.so"


def test_check_mode_and_verify_pass_and_change_nothing() -> None:
    assert_passed(run_playbook("converge.yml", "--check"), UNCHANGED)
    assert_passed(run_playbook("part.yml", part="verify"), UNCHANGED)


def test_what_was_damaged_is_found_and_laid_out_again(host: Host) -> None:
    host.check_output(f"echo >> {HOME}/bin/crt/link.stub && rm {HOME}/bin/cudafe++")
    assert_refused(run_playbook("part.yml", part="verify"), "Unable to compile with CUDA 13.0")
    assert_passed(run_playbook("converge.yml"))
    host.check_output(f"cd {HOME} && sha256sum --check --quiet MANIFEST.sha256")


def test_absent_removes_it_and_nothing_is_left_to_do(host: Host) -> None:
    host.check_output(f"cp -a --reflink=auto {HOME} /srv/kept")
    assert_passed(run_playbook("converge.yml", state="absent"))
    assert not host.file(HOME).exists
    assert_passed(run_playbook("converge.yml", state="absent"), UNCHANGED)
    host.check_output(f"mv /srv/kept {HOME}")


def test_a_conflict_is_named_then_mended_either_way_and_put_back(host: Host, newer: str) -> None:
    given = {"source": "directory", "directory": newer}
    before = headers(host, newer)
    refused = run_playbook("part.yml", **given, header_fix="none")
    assert_refused(refused, CONFLICT)
    assert_refused(refused, "Set `header_fix` to auto")
    assert_passed(run_playbook("part.yml", **given))
    assert f"NVCC_PREPEND_FLAGS=-I{OVERLAY}\n" in host.file(ENVIRONMENT).content_string
    assert headers(host, newer) == before
    assert_passed(run_playbook("part.yml", **given, header_fix="patch"))
    assert headers(host, newer) != before
    assert not host.file(OVERLAY).exists
    assert_passed(run_playbook("part.yml", **given, state="absent"))
    assert headers(host, newer) == before
    assert not host.file(HOME).exists


def test_a_hand_edit_is_named(host: Host, copy: str) -> None:
    edit = "s/ rsqrt(double x);/ rsqrt(double x) noexcept(true);/"
    host.check_output(f"sed -i '{edit}' {copy}/include/crt/math_functions.h")
    assert_refused(run_playbook("part.yml", source="directory", directory=copy), "edited the toolkit's headers by hand")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"version": "12.9"}, "wheels are known for 13.0, 13.1"),
        ({"source": "directory", "directory": "/srv/wheels"}, "Unable to find a CUDA toolkit in /srv/wheels"),
        ({"source": "directory", "directory": HOME, "version": "13.1"}, "as CUDA 13.1: it is 13.0"),
        ({"source": "directory", "directory": HOME, "libraries": ["cublas"]}, "has not all of `libraries`"),
        ({"libraries": ["cufft"]}, "value of cuda_toolkit_libraries must be one"),
        ({"compiler": "g++-99"}, r"there is no compiler g\+\+-99"),
        (
            {"source": "repository", "repository": "http://127.0.0.1:9/repos"},
            "Unable to fetch http://127.0.0.1:9/repos/debian12",
        ),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], words: str) -> None:
    assert_refused(run_playbook("part.yml", **options), words)


def test_a_folder_that_is_somebody_else_s_is_refused(host: Host, copy: str) -> None:
    host.check_output(f"cp -a --reflink=auto {copy} {HOME}")
    assert_refused(run_playbook("part.yml"), f"in {HOME}: there is something else")
    host.check_output(f"test -x {HOME}/bin/nvcc")
