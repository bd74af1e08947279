"""llama.cpp's build for CUDA with the role's own flags, as far as three files tell; what keeps an engine from a card.

The program is a small one that is linked as llama-server is and asks CUDA for its devices as it does; the loader, the
runtime, cuBLAS and the driver's stub are the real ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.integration.role_box import RoleBox
from tests.integration.toolkit_box import running
from tests.unit.cuda.wheels import CUBLAS_13_0, cached

pytestmark = [pytest.mark.incus, pytest.mark.network, pytest.mark.slow]

HOME = "/opt/cuda-13.0"
OPTIONS = {"llama_cpp_backend": "cuda", "llama_cpp_cuda_version": "13.0", "llama_cpp_cuda_architectures": ["86"]}
PROGRAM = r"""
#include <cublas_v2.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <stdio.h>

int main(int argc, char **argv) {
  if (argc > 2) { cublasHandle_t handle; cublasCreate(&handle); cuInit(0); }  // what makes the linker keep them
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error) fprintf(stderr, "ggml_cuda_init: failed to initialize CUDA: %s\n", cudaGetErrorString(error));
  printf("Available devices:\n");
  if (count == 0) printf("  (none)\n");
  for (int i = 0; i < count; i++) printf("  CUDA%d: a card\n", i);
}
"""
FILES = ("norm", "rope", "scale")
OBJECTS = " ".join(f"ggml/src/ggml-cuda/CMakeFiles/ggml-cuda.dir/{one}.cu.o" for one in FILES)
COMPILE = f"""
set -e
ninja -C build {OBJECTS} > build.log 2>&1 || {{ tail -n 60 build.log >&2; exit 1; }}
mkdir -p build/bin
$CUDACXX --cudart shared /srv/program.cu -o build/bin/llama-server -L$CUDA_HOME/lib64 -L$CUDA_HOME/lib64/stubs \
  -lcublas -lcuda -Xlinker -rpath,'$ORIGIN'
"""


class Builder(RoleBox):
    """A container in which the role's build has run, and its look for devices can run."""

    def tasks(self, name: str, variables: dict[str, Any]) -> str:
        """Run the role's tasks of that name; what the run says, its exit code last."""
        task = {"name": "Run it", "ansible.builtin.include_role": {"name": "llama_cpp", "tasks_from": name}}
        return self.play({"roles": ["base"], "tasks": [task]}, variables)

    @contextmanager
    def without(self, name: str) -> Iterator[None]:
        """What was built lacks that file meanwhile."""
        self.run(f"mv /opt/llama_cpp/bin/{name} /srv/")
        try:
            yield
        finally:
            self.run(f"mv /srv/{name} /opt/llama_cpp/bin/")

    def devices(self, **environment: str) -> str:
        """What the role says of the devices."""
        return self.tasks("device", {**OPTIONS, "llama_cpp_alias": "tiny", "llama_cpp_environment": environment})


@pytest.fixture(scope="module")
def builder(incus_lab: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    """A container of Debian 13 in which the role has built for CUDA 13.0, all but the whole of llama.cpp."""
    assert incus_lab
    with running("debian/13", cached(CUBLAS_13_0)) as (provider, name):
        one = Builder(provider, name, tmp_path_factory.mktemp("play"))
        one.run(f"cat > /srv/program.cu <<'END'\n{PROGRAM}\nEND")
        said = one.tasks("build", {**OPTIONS, "__llama_cpp_compile": COMPILE})
        assert said.endswith("rc=0"), said
        yield one


def test_the_role_s_flags_compile_for_the_named_card_only(builder: Builder) -> None:
    log = builder.run("cat /var/tmp/llama_cpp/build.log")
    assert re.search(r"\[\d+/\d+\] Building CUDA object", log)
    commands = builder.run(f"cd /var/tmp/llama_cpp && ninja -C build -t commands {OBJECTS} | grep nvcc")
    assert set(re.findall(r"compute_(\w+)", commands)) == {"86"}
    assert len(re.findall(r"^.*nvcc", commands, re.MULTILINE)) >= len(FILES)


def test_what_it_links_with_lies_beside_it_and_the_driver_does_not(builder: Builder) -> None:
    names = builder.run("cd /opt/llama_cpp/bin && ls && grep -c . ../MANIFEST.sha256").split()
    assert {"libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13", "llama-server"} <= set(names)
    assert not [name for name in names if name.startswith("libcuda.so")]
    found = builder.run("ldd /opt/llama_cpp/bin/llama-server")
    assert "libcublas.so.13 => /opt/llama_cpp/bin/libcublas.so.13" in found


def test_an_engine_without_a_driver_is_refused(builder: Builder) -> None:
    said = builder.devices()
    assert said.endswith("rc=2")
    assert "Unable to serve tiny by CUDA0: there is no driver in the container (libcuda.so.1)" in said


def test_a_stub_is_no_driver(builder: Builder) -> None:
    said = builder.devices(LD_LIBRARY_PATH=f"{HOME}/lib64/stubs")
    assert said.endswith("rc=2")
    assert "libcuda.so.1 is the toolkit's stand-in" in said
    assert "failed to initialize CUDA: " in said


def test_a_library_that_was_removed_is_named(builder: Builder) -> None:
    with builder.without("libcublas.so.13"):
        said = builder.devices(LD_LIBRARY_PATH=f"{HOME}/lib64/stubs")
    assert said.endswith("rc=2")
    assert "libraries of its backend are missing: libcublas.so.13" in said


def test_a_program_for_the_cpu_is_refused(builder: Builder) -> None:
    with builder.without("llama-server"):
        builder.run("cp /bin/true /opt/llama_cpp/bin/llama-server")
        said = builder.devices()
    assert said.endswith("rc=2")
    assert "the program is built for the CPU only, there is no cuda in it" in said


def test_a_build_that_was_talked_out_of_cuda_is_refused(builder: Builder) -> None:
    builder.run("rm -r /var/tmp/llama_cpp/build && mv /opt/llama_cpp /srv/kept")
    try:
        said = builder.tasks("build", {**OPTIONS, "llama_cpp_build_options": ["GGML_CUDA=OFF"]})
        assert said.endswith("rc=2")
        assert "GGML_CUDA is not ON" in said
        assert builder.run("ls /opt/llama_cpp") == ""
    finally:
        builder.run("rm -rf /opt/llama_cpp && mv /srv/kept /opt/llama_cpp")
