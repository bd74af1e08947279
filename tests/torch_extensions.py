"""A real torch without a card, and C++ extensions that do and do not fit it: made once, kept in the cache."""

from __future__ import annotations

import fcntl
import hashlib
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from provisioner.values import paths
from tests.processes import completed

TORCH = "2.13.0"
TIMEOUT_S = 900
PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet")


@dataclass(frozen=True)
class Extension:
    """A module's source: what stands before its function, what runs at import, and how it is compiled and linked."""

    before: str = ""
    at_import: str = ""
    flags: tuple[str, ...] = ("-lc10",)
    stub: str = ""
    """A library that is there at link time only: the name that it is needed by."""


ASSERT_FAIL = """
#include <string>
namespace c10::detail {
[[noreturn]] void torchInternalAssertFail(const char *, const char *, unsigned, const char *, const std::string &);
}
"""
SUM = """
if (at::ones({2, 3}).sum().item<double>() != 6) {
  PyErr_SetString(PyExc_ImportError, "six ones are not six");
  return nullptr;
}
"""
CALLS_STUB = 'extern "C" int in_stub();'
EXTENSIONS = {
    "good": Extension("#include <ATen/ATen.h>", SUM, ("-std=c++20", "-lc10", "-ltorch_cpu", "-ltorch")),
    "gone": Extension("namespace c10 { void removed_in_this_torch(); }", "c10::removed_in_this_torch();"),
    "old_abi": Extension(
        ASSERT_FAIL,
        'if (!Py_IsInitialized()) c10::detail::torchInternalAssertFail("", "", 0, "", std::string());',
        ("-std=c++17", "-D_GLIBCXX_USE_CXX11_ABI=0", "-lc10"),
    ),
    "no_library": Extension(CALLS_STUB, "in_stub();", stub="libgone.so.99"),
    "crash": Extension(at_import="volatile int *nowhere = nullptr; *nowhere = 1;"),
    "hang": Extension("#include <unistd.h>", "for (;;) sleep(60);"),
    "cuda": Extension(
        "namespace c10::cuda { int current_device(); }", "c10::cuda::current_device();", stub="libc10_cuda.so"
    ),
    "cudart": Extension(CALLS_STUB, "in_stub();", stub="libcudart.so.99"),
}
SOURCE = """
#include <Python.h>
{before}
static PyModuleDef definition = {{PyModuleDef_HEAD_INIT, "{name}", nullptr, -1, nullptr}};
PyMODINIT_FUNC PyInit_{name}() {{
{at_import}
return PyModule_Create(&definition);
}}
"""
STUB = 'namespace c10::cuda { int current_device() { return 0; } }\nextern "C" int in_stub() { return 0; }\n'


def torch_site() -> Path:
    """A site-packages with torch, as pip installs it on this machine; skips the test when it cannot be had."""

    def install(folder: Path) -> None:
        _pip("install", "--target", str(folder), f"torch=={TORCH}")

    return _made("site", (TORCH, sys.version, platform.machine()), install)


def extensions(site: Path) -> dict[str, bytes]:
    """The compiled modules by name, built against that torch; skips the test when there is no compiler."""
    compiler = shutil.which("g++")
    if not compiler:
        pytest.skip("there is no g++")
    include = sysconfig.get_path("include")
    if not Path(include, "Python.h").exists():
        pytest.skip(f"there is no {include}/Python.h (python3-dev)")

    def build(folder: Path) -> None:
        for name, extension in EXTENSIONS.items():
            _build(compiler, name, extension, site, folder)

    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True, timeout=60).stdout
    folder = _made("extensions", (str(site), version, SOURCE, STUB, repr(EXTENSIONS)), build)
    return {name: (folder / f"{name}.so").read_bytes() for name in EXTENSIONS}


def torchvision_wheel(version: str) -> Path:
    """PyPI's wheel of that torchvision for this Python; skips the test when it cannot be had."""

    def download(folder: Path) -> None:
        _pip("download", "--no-deps", "--only-binary", ":all:", "--dest", str(folder), f"torchvision=={version}")

    folder = _made(f"torchvision-{version}", (sys.version, platform.machine()), download)
    return next(folder.glob("*.whl"))


def _build(compiler: str, name: str, extension: Extension, site: Path, folder: Path) -> None:
    torch = site / "torch"
    with tempfile.TemporaryDirectory() as temporary:
        here = Path(temporary)
        (here / f"{name}.cpp").write_text(
            SOURCE.format(name=name, before=extension.before, at_import=extension.at_import), encoding="utf-8"
        )
        include = [f"-I{one}" for one in (sysconfig.get_path("include"), torch / "include")]
        more: tuple[str, ...] = ()
        if extension.stub:
            (here / "stub.cpp").write_text(STUB, encoding="utf-8")
            _compile([compiler, str(here / "stub.cpp"), f"-Wl,-soname,{extension.stub}", "-o", str(here / "stub.so")])
            more = (str(here / "stub.so"),)
        out = ["-o", str(folder / f"{name}.so"), f"-L{torch / 'lib'}", "-Wl,--no-as-needed"]
        _compile([compiler, *include, str(here / f"{name}.cpp"), *out, *extension.flags, *more])


def _compile(command: Sequence[str]) -> None:
    done = completed([*command, "-shared", "-fPIC", "-O0"], timeout_s=TIMEOUT_S)
    assert not done.returncode, done.stderr


def _pip(*arguments: str) -> None:
    done = completed([sys.executable, *PIP, *arguments], timeout_s=TIMEOUT_S)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["pip said nothing"]
        pytest.skip(f"{arguments[-1]} cannot be had: {said[-1]}")


def _made(name: str, of: Sequence[str], make: Callable[[Path], None]) -> Path:
    """The folder in the cache, filled by ``make`` unless another run did so: whole, or not there."""
    digest = hashlib.sha256("\n".join(of).encode()).hexdigest()[:16]
    folder = paths.cache() / "torch-abi" / f"{name}-{digest}"
    with _turn(folder.parent):
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
                new = Path(temporary, "new")
                new.mkdir()
                make(new)
                new.rename(folder)
    return folder


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """One at a time makes something; the others wait."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
