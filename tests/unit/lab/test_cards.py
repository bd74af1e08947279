"""From ``gpu:`` in a file to the devices of a container and the options of its engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from provisioner.catalog import load_catalog
from provisioner.gpus.cards import Card, Node
from provisioner.lab import Known, ModelFile, desired_fleet, problems, resolve
from provisioner.lab.cards import choose_cards
from provisioner.lab.rules import card_problems
from provisioner.labfile.spec import Spec
from provisioner.values.state import Device, Instance, Secret
from tests.lab_files import spec_of

GIB = 2**30
NVIDIA = Card(
    "0000:01:00.0",
    "nvidia",
    "RTX 3060",
    driver="nvidia",
    uuid="GPU-1",
    memory=12 * GIB,
    capability="8.6",
    driver_version="580.95.05",
    cuda="13.0",
    runtime=True,
    nodes=(Node("/dev/nvidia0", 195, 0), Node("/dev/nvidiactl", 195, 255), Node("/dev/nvidia-uvm", 493, 0)),
)
AMD = Card(
    "0000:04:00.0",
    "amd",
    "Radeon",
    driver="amdgpu",
    shared_memory=30 * GIB,
    nodes=(Node("/dev/kfd", 235, 0), Node("/dev/dri/renderD129", 226, 129)),
)
INTEL = Card("0000:00:02.0", "intel", "Arc", driver="xe", nodes=(Node("/dev/dri/renderD128", 226, 128),))
PVE = {"proxmox": "https://pve:8006", "user": "root@pam", "password": Secret("p", "x"), "ssh": "root@pve"}


def lab(gpu: object = "any", host: Mapping[str, Any] | None = None, **options: Any) -> Spec:
    """A file with one engine in a container with that card."""
    engine = {"gpu": gpu, "services": {"llama_cpp": {"model": "m", **options}}}
    hosts = {"hosts": {"box": dict(host)}} if host else {}
    models = {"m": {"source": "builtin:tiny"}}
    spec = spec_of({"name": "lab", **hosts, "models": models, "containers": {"a": engine}})
    assert problems(resolve(spec, load_catalog())) == []
    return spec


def made(spec: Spec, card: Card) -> Instance:
    """The container of ``lab`` with that card."""
    models = {"m": ModelFile("/models/m.gguf", "m.gguf", "a" * 64)}
    return desired_fleet(resolve(spec, load_catalog(), Known(cards={"a": card})), models).instances[0]


def gpu_devices(spec: Spec, card: Card) -> list[Device]:
    return [one for one in made(spec, card).devices if one.kind in ("gpu", "node")]


def test_a_card_of_nvidia_comes_by_its_address_with_the_host_s_user_space() -> None:
    assert gpu_devices(lab(), NVIDIA) == [
        Device("gpu", "gpu", {"pci": NVIDIA.pci, "mode": "0666", "runtime": "compute,utility"})
    ]
    graphics = gpu_devices(lab(backend="vulkan"), NVIDIA)[0].properties
    assert graphics["runtime"] == "compute,graphics,utility"
    required = gpu_devices(lab({"vendor": "nvidia", "require": {"driver": "550", "cuda": "12.4"}}), NVIDIA)[0]
    assert required.properties["require_driver"] == "driver>=550"
    assert required.properties["require_cuda"] == "cuda>=12.4"


def test_without_the_host_s_tools_only_the_card_comes() -> None:
    assert gpu_devices(lab(), replace(NVIDIA, runtime=False)) == [
        Device("gpu", "gpu", {"pci": NVIDIA.pci, "mode": "0666"})
    ]


def test_a_card_of_amd_comes_with_kfd_and_belongs_to_the_container_s_render() -> None:
    assert gpu_devices(lab(), AMD) == [
        Device("gpu", "gpu", {"pci": AMD.pci, "mode": "0660", "group": "render"}),
        Device("gpu-kfd", "node", {"path": "/dev/kfd", "mode": "0660", "group": "render"}),
    ]


def test_a_card_of_intel_is_one_renderer() -> None:
    assert gpu_devices(lab(), INTEL) == [Device("gpu", "gpu", {"pci": INTEL.pci, "mode": "0660", "group": "render"})]


def test_proxmox_passes_on_exactly_the_nodes_of_the_card() -> None:
    spec = lab(host=PVE)
    assert gpu_devices(spec, NVIDIA) == []
    assert made(spec, NVIDIA).settings["devices"] == tuple(
        {"path": path, "mode": "0666", "uid": 0, "gid": 0}
        for path in ("/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl")
    )
    assert made(spec, AMD).settings["devices"] == (
        {"path": "/dev/dri/renderD129", "mode": "0660", "uid": 0, "gid": "render"},
        {"path": "/dev/kfd", "mode": "0660", "uid": 0, "gid": "render"},
    )


@pytest.mark.parametrize(
    ("card", "backend", "architectures"), [(NVIDIA, "cuda", ["86"]), (AMD, "vulkan", []), (INTEL, "vulkan", [])]
)
def test_the_engine_is_built_for_the_card(card: Card, backend: str, architectures: list[str]) -> None:
    variables = made(lab(), card).services[-1].variables
    assert variables["llama_cpp_backend"] == backend
    assert variables["llama_cpp_cuda_architectures"] == architectures
    assert variables["llama_cpp_card"]["pci"] == card.pci
    assert variables["llama_cpp_gpu_layers"] == "all"


def test_what_the_file_says_of_the_engine_wins() -> None:
    written = made(lab(backend="cuda", cuda_architectures=["86", "89"]), NVIDIA).services[-1].variables
    assert written["llama_cpp_cuda_architectures"] == ["86", "89"]
    assert made(lab(gpu_layers=20), NVIDIA).services[-1].variables["llama_cpp_gpu_layers"] == 20
    on_cpu = made(lab(backend="cpu"), NVIDIA).services[-1].variables
    assert (on_cpu["llama_cpp_backend"], on_cpu["llama_cpp_card"]) == ("cpu", {})


def test_another_driver_on_the_host_is_a_reason_to_run_the_role_again() -> None:
    variables = [
        made(lab(), card).services[-1].variables for card in (NVIDIA, replace(NVIDIA, driver_version="590.48.01"))
    ]
    assert variables[0]["llama_cpp_card"] != variables[1]["llama_cpp_card"]


def said(spec: Spec, *cards: Card) -> list[str]:
    """Why the container gets no card, or cannot use it."""
    host = next(iter(spec.hosts), "local")
    lab = resolve(spec, load_catalog())
    found, refused = choose_cards(lab, {host: cards})
    refused += card_problems(lab.with_known(Known(cards=found)))
    return [f"{'.'.join(map(str, one.path))}: {one.message}" for one in refused]


def test_what_no_card_can_do_is_refused_before_anything_is_made() -> None:
    assert said(lab(), NVIDIA) == []
    assert said(lab({"pci": "0000:09:00.0"}), NVIDIA) == [
        "containers.a.gpu: host local: there is no such card on the host; there are: RTX 3060 (0000:01:00.0)"
    ]
    assert "knows no CUDA" in said(lab(backend="cuda"), AMD)[0]
    assert "CUDA 13.2 compiles for 75 and newer" in said(lab(), replace(NVIDIA, capability="6.1"))[0]
    assert "nobody tells what RTX 3060" in said(lab(), replace(NVIDIA, capability=""))[0]
    assert "vfio-pci" in said(lab(), replace(NVIDIA, driver="vfio-pci"))[0]


@pytest.mark.parametrize(
    ("require", "words"),
    [
        ({"driver": "590"}, "its driver is 580.95.05, and 590 is required"),
        ({"cuda": "13.1"}, "its driver knows CUDA 13.0, and 13.1 is required"),
        ({"driver": "580.95.05", "cuda": "13.0"}, ""),
    ],
)
def test_a_driver_that_is_too_old_is_refused(require: dict[str, str], words: str) -> None:
    found = said(lab({"vendor": "nvidia", "require": require}), NVIDIA)
    assert words in "".join(found)
    assert bool(found) == bool(words)


def test_a_driver_that_nobody_tells_is_not_new_enough() -> None:
    spec = lab({"vendor": "nvidia", "require": {"cuda": "12.4"}})
    assert "nobody tells" in said(spec, replace(NVIDIA, cuda=""))[0]


def test_a_file_is_valid_before_its_host_was_looked_at() -> None:
    spec = lab(gpu_layers="all", device="CUDA0")
    assert made(spec, NVIDIA).services[-1].variables["llama_cpp_device"] == "CUDA0"


def implied(spec: Spec, card: Card) -> Mapping[str, Any] | None:
    """The variables of the role that brings the driver's user space; None where there is none."""
    services = {one.role: one.variables for one in made(spec, card).services}
    assert list(services)[-1] == "llama_cpp", "the engine comes after its driver"
    return services.get("gpu_userspace")


def test_the_user_space_is_installed_where_no_host_lends_it() -> None:
    assert implied(lab(), NVIDIA) is None
    alone = implied(lab(), replace(NVIDIA, runtime=False))
    assert alone is not None
    assert alone["gpu_userspace_driver_version"] == "580.95.05"
    assert alone["gpu_userspace_nodes"] == ["/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"]
    on_proxmox = implied(lab(host=PVE), NVIDIA)
    assert on_proxmox is not None
    # Incus passes none of these, seen on an H100 with driver 580: whoever wants them refuses a card that computes.
    capable = replace(NVIDIA, runtime=False, nodes=(*NVIDIA.nodes, Node("/dev/nvidia-caps/nvidia-cap1", 241, 1)))
    assert implied(lab(), capable) == alone
    amd = implied(lab(), AMD)
    assert amd is not None
    assert (amd["gpu_userspace_vendor"], amd["gpu_userspace_vulkan"]) == ("amd", True)


def test_nvidia_s_own_installer_is_named_with_its_hash() -> None:
    address = "https://download.example/NVIDIA-Linux-x86_64-580.95.05.run"
    gpu = {"vendor": "nvidia", "userspace": {"source": address, "sha256": "a" * 64}}
    found = implied(lab(gpu, host=PVE), NVIDIA)
    assert found is not None
    assert (found["gpu_userspace_source"], found["gpu_userspace_sha256"]) == (address, "a" * 64)
