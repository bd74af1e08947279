"""What is no card is refused before there is a server: Mesa's real llvmpipe, and a driver without all of its nodes.

The programs are small ones that list what Vulkan's loader, or CUDA's driver, offers, as llama-server does. The driver
is played: it answers as NVIDIA's does after a boot of the host, when nvidia-smi works at once and /dev/nvidia-uvm is
made by nobody (CUDA_ERROR_UNKNOWN; pytorch/pytorch#49081, ggml-org/llama.cpp#7218).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from provisioner.hosts.incus import IncusProvider
from provisioner.values.state import Instance
from tests.integration.role_box import RoleBox
from tests.integration.running_containers import kept_running

pytestmark = [pytest.mark.incus, pytest.mark.network]

PROGRAM = r"""
#include <stdio.h>
#include <vulkan/vulkan.h>

int main(void) {
  VkInstanceCreateInfo wish = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
  VkInstance instance;
  VkPhysicalDevice devices[8];
  uint32_t count = 8;
  printf("Available devices:\n");
  if (vkCreateInstance(&wish, NULL, &instance) || vkEnumeratePhysicalDevices(instance, &count, devices)) count = 0;
  if (count == 0) printf("  (none)\n");
  for (uint32_t i = 0; i < count; i++) {
    VkPhysicalDeviceProperties about;
    vkGetPhysicalDeviceProperties(devices[i], &about);
    printf("  Vulkan%u: %s (7939 MiB, 7939 MiB free)\n", i, about.deviceName);
  }
}
"""
DRIVER = r"""
#include <fcntl.h>
#include <unistd.h>

int cuInit(unsigned flags) {
  int uvm = open("/dev/nvidia-uvm", O_RDWR);
  if (uvm < 0) return 999;
  close(uvm);
  return 100;
}
int cuDriverGetVersion(int *version) { *version = 13020; return 0; }
"""
CUDA_PROGRAM = r"""
#include <stdio.h>

int cuInit(unsigned flags);
int main(void) {
  if (cuInit(0)) fprintf(stderr, "ggml_cuda_init: failed to initialize CUDA: unknown error\n");
  printf("Available devices:\n  (none)\n");
}
"""
PREPARE = f"""
set -e
apt-get update -q > /dev/null
DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends gcc libc6-dev libvulkan-dev \
  mesa-vulkan-drivers > /dev/null
cat > /srv/program.c <<'END'
{PROGRAM}
END
mkdir -p /opt/llama_cpp/bin
gcc /srv/program.c -o /opt/llama_cpp/bin/llama-server -lvulkan
mkdir -p /opt/for_cuda/bin
cat > /srv/driver.c <<'END'
{DRIVER}
END
cat > /srv/cuda.c <<'END'
{CUDA_PROGRAM}
END
gcc -shared -fPIC -Wl,-soname,libcuda.so.1 /srv/driver.c -o /usr/local/lib/libcuda.so.1
ldconfig
gcc /srv/cuda.c -o /opt/for_cuda/bin/llama-server /usr/local/lib/libcuda.so.1
"""
OPTIONS = {"llama_cpp_backend": "vulkan", "llama_cpp_alias": "tiny"}


@pytest.fixture(scope="module")
def box(incus_lab: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoleBox]:
    """A container of Debian 13 with Mesa's drivers and the program."""
    assert incus_lab
    provider = IncusProvider("box")
    with kept_running(provider, Instance(f"proof-{secrets.token_hex(4)}", "box", "proof", "debian/13")) as one:
        box = RoleBox(provider, one.name, tmp_path_factory.mktemp("play"))
        box.run(PREPARE)
        yield box


def devices(box: RoleBox, **options: Any) -> str:
    """What the role says of the devices."""
    task = {"name": "Look", "ansible.builtin.include_role": {"name": "llama_cpp", "tasks_from": "device"}}
    return box.play({"roles": ["base"], "tasks": [task]}, {**OPTIONS, **options})


@pytest.mark.parametrize("options", [{}, {"llama_cpp_device": "Vulkan0"}, {"llama_cpp_gpu_layers": "all"}])
def test_llvmpipe_is_no_card(box: RoleBox, options: dict[str, str]) -> None:
    said = devices(box, **options)
    assert said.endswith("rc=2"), said
    assert "Unable to serve tiny by Vulkan0: Vulkan0 is llvmpipe (LLVM " in said
    assert "the processor playing a card" in said
    assert "There is no /dev/dri/renderD* in the container. Give it its GPU (`gpu: any`)." in said


def test_another_one_is_not_there_for_the_same_reason(box: RoleBox) -> None:
    said = devices(box, llama_cpp_device="Vulkan1")
    assert "there is no Vulkan1, it finds Vulkan0" in said
    assert "There is no /dev/dri/renderD* in the container" in said


def test_a_node_without_a_card_behind_it_is_told(box: RoleBox) -> None:
    box.run("mkdir -p /dev/dri && mkfifo /dev/dri/renderD128")
    try:
        said = devices(box)
        assert "The container has /dev/dri/renderD128, but Mesa has no driver for that card" in said
    finally:
        box.run("rm /dev/dri/renderD128")


def test_the_loader_that_was_removed_is_named(box: RoleBox) -> None:
    box.run("dpkg --remove --force-depends libvulkan1 > /dev/null")
    assert "libraries of its backend are missing: libvulkan.so.1" in devices(box)


def test_a_driver_whose_second_node_nobody_made_is_told_from_one_without_a_card(box: RoleBox) -> None:
    options = {"llama_cpp_backend": "cuda", "llama_cpp_artifact_path": "/opt/for_cuda"}
    box.run("mkfifo /dev/nvidiactl /dev/nvidia0")
    said = devices(box, **options)
    assert said.endswith("rc=2"), said
    words = "the driver answers error 999: nvidia-smi may work, but CUDA needs /dev/nvidia-uvm (it is missing)"
    assert words in said
    assert "nvidia-modprobe -u -c 0" in said
    box.run("mkfifo /dev/nvidia-uvm")
    assert "the driver finds no card" in devices(box, **options)
    box.run("rm /dev/nvidia-uvm && mkdir /dev/nvidia-uvm")
    assert "CUDA needs /dev/nvidia-uvm (Is a directory)" in devices(box, **options)
