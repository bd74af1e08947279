# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: asks an engine of the llama.cpp family for its devices, and says why a wanted one is not there."""

from __future__ import annotations

DOCUMENTATION = r"""
module: provision_engine_devices
short_description: Find the devices that an engine computes with
description:
  - Looks at the libraries of the program and of its backends, at the devices that it lists and, with CUDA, the driver.
  - A processor that plays a card (llvmpipe, SwiftShader) is no device.
  - The program's own exit code says nothing, as it goes on with the CPU. Changes nothing, in check mode neither.
options:
  program: {type: path, required: true, description: [The engine, which knows C(--list-devices).]}
  backend: {type: str, required: true, choices: [cuda, vulkan], description: [What it has to compute with.]}
  devices: {type: list, elements: str, required: true, description: ["Those that have to be there, such as CUDA0."]}
  cuda_version: {type: str, default: "", description: [The toolkit that the program was built with.]}
  environment: {type: dict, default: {}, description: [Variables of the engine's environment.]}
author: [provisioner (!UNKNOWN)]
"""
EXAMPLES = r"""
- name: verify | Find the card
  provision_engine_devices:
    program: /opt/llama_cpp/bin/llama-server
    backend: cuda
    devices: [CUDA0]
"""
RETURN = r"""
problem: {type: str, returned: always, description: Why a device is not there; empty when all are.}
advice: {type: str, returned: always, description: What to do about it.}
said: {type: str, returned: always, description: What the program said.}
found: {type: list, returned: always, description: "The devices by name, description and memory in MiB."}
memory_mib: {type: int, returned: always, description: The memory of the smallest wanted device; 0 when not known.}
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

TIMEOUT_S = 120
CLOSEST = {"cuda": ("libcudart.so", "libcuda.so"), "vulkan": ("libvulkan.so",)}
"""Libraries by which a program or one of its backends is known to have been built for the backend."""
DRIVER = "libcuda.so"
PLUGINS = {"cuda": "libggml-cuda.so", "vulkan": "libggml-vulkan.so"}
PLUGIN_FOLDERS = (".", "backends*")
GIVE = "Give the container its GPU and the host its driver."
RASTERISERS = re.compile(r"llvmpipe|lavapipe|swiftshader|softpipe", re.IGNORECASE)
"""Mesa's and Google's programs that play a card, as they name themselves to Vulkan ("llvmpipe (LLVM 19.1.7, 256 bits)",
"SwiftShader Device (Subzero)")."""
NODES = ("nvidiactl", "nvidia-uvm", "nvidia[0-9]*", "dri/renderD*")
MAKE_NODES = (
    'On the host: nvidia-modprobe -u -c 0 ("provision host prepare --gpu" has it done after every boot). Then restart'
    " the container."
)
RENDERER = "/dev/dri/renderD"
CONTROL = "/dev/nvidiactl"
UVM = "/dev/nvidia-uvm"
ANSWERS = {
    34: (
        "libcuda.so.1 is the toolkit's stand-in, with which programs are linked, and no driver",
        "Take it out of the library path (LD_LIBRARY_PATH, ld.so.conf), and give the container its GPU.",
    ),
    100: ("the driver finds no card", "Give the container its GPU; see nvidia-smi on the host."),
    803: (
        "the driver's library in the container is of another version than the host's kernel module",
        "Reboot the host after an update of its driver, and restart the container.",
    ),
}
"""By the number of ``CUDA_ERROR_STUB_LIBRARY``, ``_NO_DEVICE`` and ``_SYSTEM_DRIVER_MISMATCH`` in cuda.h."""
ASK_DRIVER = """
import ctypes, json
try:
    driver = ctypes.CDLL("libcuda.so.1")
except OSError as error:
    print(json.dumps({"error": str(error)}))
else:
    version = ctypes.c_int(0)
    code = driver.cuInit(0)
    driver.cuDriverGetVersion(ctypes.byref(version))
    print(json.dumps({"code": code, "version": version.value}))
"""
"""In a process of its own, since a driver may end the one that it is loaded into."""


@dataclass(frozen=True)
class Device:
    """One line of ``--list-devices``; the memory is 0 where the line does not say it."""

    name: str
    description: str
    memory_mib: int


@dataclass(frozen=True)
class Seen:
    """What was found: libraries by name with whether they are there, what the program said, what the driver answers."""

    libraries: Mapping[str, bool]
    plugins: tuple[str, ...]
    said: str
    driver: Mapping[str, Any]
    nodes: Mapping[str, str] = field(default_factory=dict)
    """The cards' nodes by path, with what keeps them from being opened; empty where nothing does."""

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that the program lists."""
        return devices_in(self.said)

    @property
    def names(self) -> list[str]:
        """The names of these devices."""
        return [device.name for device in self.devices]

    @property
    def missing(self) -> list[str]:
        """The libraries that are not there."""
        return sorted(name for name, is_there in self.libraries.items() if not is_there)


def main() -> None:
    """Look and answer."""
    module = AnsibleModule(
        argument_spec={
            "program": {"type": "path", "required": True},
            "backend": {"type": "str", "required": True, "choices": list(CLOSEST)},
            "devices": {"type": "list", "elements": "str", "required": True},
            "cuda_version": {"type": "str", "default": ""},
            "environment": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    program = Path(wanted["program"])
    if not os.access(program, os.X_OK):
        module.fail_json(msg=f"Unable to ask {program} for its devices: it is no program. Run: provision up")
    seen = look(program, wanted["backend"], wanted["environment"])
    problem, advice = judge(seen, wanted["backend"], wanted["devices"], wanted["cuda_version"])
    sizes = [device.memory_mib for device in seen.devices if device.name in wanted["devices"]]
    module.exit_json(
        changed=False,
        problem=problem,
        advice=advice,
        said=seen.said.strip(),
        found=[vars(device) for device in seen.devices],
        memory_mib=min(sizes, default=0),
    )


def judge(seen: Seen, backend: str, devices: Sequence[str], cuda_version: str) -> tuple[str, str]:
    """Why a device that is wanted is not there, and what to do; two empty strings when all are."""
    if not has_backend(seen, backend):
        return (
            f"the program is built for the CPU only, there is no {backend} in it",
            'Set `backend` and run "provision up", which builds it; look at `build_options`, too.',
        )
    if seen.missing:
        return _missing_libraries(seen.missing)
    absent = [name for name in devices if name not in seen.names]
    if absent:
        return _driver_problem(seen, backend, cuda_version) or _absent(seen, absent, backend)
    return _played(seen, devices)


def _played(seen: Seen, devices: Sequence[str]) -> tuple[str, str]:
    """What is wrong with devices that a program on the CPU plays; two empty strings when there is none."""
    played = [device for device in seen.devices if device.name in devices and is_played(device)]
    if not played:
        return "", ""
    names = " and ".join(f"{device.name} is {device.description}" for device in played)
    return f"{names}, the processor playing a card", _missing_card(seen)


def _missing_libraries(missing: Sequence[str]) -> tuple[str, str]:
    if all(name.startswith(DRIVER) for name in missing):
        return f"there is no driver in the container ({missing[0]})", GIVE
    return (
        f"libraries of its backend are missing: {', '.join(missing)}",
        'Run "provision up", which builds the program with them; what the distribution has, apt installs.',
    )


def is_played(device: Device) -> bool:
    """Whether no card is behind the device, only a program on the CPU."""
    return bool(RASTERISERS.search(device.description))


def has_backend(seen: Seen, backend: str) -> bool:
    """Whether the program, or a backend that it loads, was built for it."""
    return bool(seen.plugins) or any(name.startswith(CLOSEST[backend]) for name in seen.libraries)


def devices_in(said: str) -> tuple[Device, ...]:
    """The devices among the lines that ``--list-devices`` prints."""
    lines = re.findall(r"^\s+(\w+?\d+): (.*?)(?: \((\d+) MiB, \d+ MiB free\))?\s*$", said, re.MULTILINE)
    return tuple(Device(name, description, int(size or 0)) for name, description, size in lines)


def look(program: Path, backend: str, environment: Mapping[str, Any]) -> Seen:
    """Ask the loader and the program, and the driver where that finds no device: it says why."""
    folder = program.resolve().parent
    plugins: list[Path] = []
    for place in PLUGIN_FOLDERS:
        plugins += sorted(folder.glob(f"{place}/{PLUGINS[backend]}*"))
    libraries: dict[str, bool] = {}
    for file in (program, *plugins):
        libraries |= libraries_in(_output(["ldd", str(file)], environment))
    said = _output([str(program), "--list-devices"], environment)
    driver: dict[str, Any] = {}
    if backend == "cuda" and not devices_in(said):
        driver = answer_in(_output([sys.executable, "-c", ASK_DRIVER], environment))
    return Seen(libraries, tuple(plugin.name for plugin in plugins), said, driver, nodes_in(Path("/dev")))


def nodes_in(folder: Path) -> dict[str, str]:
    """The cards' nodes in ``folder``, each with the reason why root cannot open it, or nothing."""
    obstacles = {}
    for pattern in NODES:
        for node in sorted(folder.glob(pattern)):
            obstacles[f"/dev/{node.relative_to(folder)}"] = _obstacle(node)
    return obstacles


def _obstacle(node: Path) -> str:
    try:
        os.close(os.open(node, os.O_RDWR))
    except OSError as error:
        return error.strerror or str(error)
    return ""


def answer_in(said: str) -> dict[str, Any]:
    """What ``ASK_DRIVER`` answers, whatever the driver says before; empty when the driver ended it."""
    for line in said.splitlines():
        if line.startswith("{"):
            answer: dict[str, Any] = json.loads(line)
            return answer
    return {}


def libraries_in(listing: str) -> dict[str, bool]:
    """What ``ldd`` lists: each library's name, and whether it was found."""
    lines = re.findall(r"^\s+(\S+) => (.+)$", listing, re.MULTILINE)
    return {name: not place.startswith("not found") for name, place in lines}


def _driver_problem(seen: Seen, backend: str, cuda_version: str) -> tuple[str, str] | None:
    if backend != "cuda":
        return None
    code, version = seen.driver.get("code"), seen.driver.get("version", 0)
    if "error" in seen.driver:
        return f"the driver cannot be loaded: {seen.driver['error']}", GIVE
    built_major = int(cuda_version.partition(".")[0] or 0)
    if version and version // 1000 < built_major:
        return _old_driver(version, cuda_version)
    if not code:
        return None
    return ANSWERS.get(code) or _unknown_error(code, seen.nodes)


def _old_driver(version: int, cuda_version: str) -> tuple[str, str]:
    known = f"{version // 1000}.{version % 1000 // 10}"
    return (
        f"the host's driver knows CUDA {known}, the program is built with {cuda_version}",
        "Install a newer driver on the host, or set `cuda_version` to one that the driver knows.",
    )


def _unknown_error(code: int, nodes: Mapping[str, str]) -> tuple[str, str]:
    """What an error may mean that is not among ``ANSWERS``: often the node for unified memory."""
    closed = nodes.get(UVM, "it is missing")
    if CONTROL in nodes and closed:
        return f"the driver answers error {code}: nvidia-smi may work, but CUDA needs {UVM} ({closed})", MAKE_NODES
    return f"the driver answers error {code} (cuda.h)", "See nvidia-smi on the host."


def _absent(seen: Seen, absent: Sequence[str], backend: str) -> tuple[str, str]:
    there = ", ".join(seen.names) or "none"
    problem = f"there is no {' and no '.join(absent)}, it finds {there}"
    if backend == "vulkan" and all(map(is_played, seen.devices)):
        return problem, _missing_card(seen)
    return problem, "Correct `device`, or give the container its GPU."


def _missing_card(seen: Seen) -> str:
    """What to do where Vulkan has no card to offer."""
    closed = {path: why for path, why in seen.nodes.items() if path.startswith(RENDERER)}
    if CONTROL in seen.nodes:
        return (
            "The container has the nodes of an NVIDIA card, but not NVIDIA's part for Vulkan (libGLX_nvidia.so.0 and"
            " nvidia_icd.json; in Incus nvidia.driver.capabilities must name graphics). Or set `backend` to cuda."
        )
    if not closed:
        return "There is no /dev/dri/renderD* in the container. Give it its GPU (`gpu: any`)."
    for path, why in closed.items():
        if why:
            return f"{path} cannot be opened ({why}). Is it the node of a card that the host has now?"
    return (
        f"The container has {', '.join(closed)}, but Mesa has no driver for that card: its image may be older than the"
        " card. Take a newer `image`, or see: vulkaninfo --summary (package vulkan-tools)."
    )


def _output(command: Sequence[str], environment: Mapping[str, Any]) -> str:
    """All that it says; its exit code means nothing here."""
    variables = os.environ | {key: str(value) for key, value in environment.items()} | {"LC_ALL": "C"}
    try:
        done = subprocess.run(
            command,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return f"{' '.join(command)}: no answer after {error.timeout:.0f} s"
    return done.stdout


if __name__ == "__main__":
    main()
