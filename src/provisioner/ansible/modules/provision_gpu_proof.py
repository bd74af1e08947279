# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: proves that programs of this machine reach its card, and says what is in their way."""

from __future__ import annotations

DOCUMENTATION = r"""
module: provision_gpu_proof
short_description: Prove that a card can be computed with
description:
  - Opens the nodes, and asks NVIDIA's management library, CUDA and Vulkan, as a user does who is nobody but a member of
    the groups render and video.
  - C(nvidia-smi) answers where CUDA does not, and Vulkan lists a processor that plays a card; neither is a proof.
  - Changes nothing, in check mode neither.
options:
  vendor: {type: str, required: true, choices: [nvidia, amd, intel], description: [Whose card it is.]}
  nodes: {type: list, elements: path, default: [], description: [Devices that have to be there.]}
  interfaces: {type: list, elements: str, choices: [cuda, vulkan], required: true, description: [What has to answer.]}
author: [provisioner (!UNKNOWN)]
"""
EXAMPLES = r"""
- name: verify | Reach the card
  provision_gpu_proof:
    vendor: amd
    nodes: [/dev/kfd, /dev/dri/renderD128]
    interfaces: [vulkan]
"""
RETURN = r"""
problem: {type: str, returned: always, description: Why the card cannot be computed with; empty when it can.}
advice: {type: str, returned: always, description: What to do about it.}
said: {type: str, returned: always, description: What the program that was asked said.}
found: {type: list, returned: always, description: The cards that answered.}
"""

import errno
import grp
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

TIMEOUT_S = 120
GROUPS = ("render", "video")
NOBODY = 65534
VENDOR_IDS = {"nvidia": "0x10de", "amd": "0x1002", "intel": "0x8086"}
DRIVERS = {"nvidia": "nvidia", "amd": "amdgpu", "intel": "i915 or xe"}
SOFTWARE = re.compile(r"llvmpipe|lavapipe|swiftshader|softpipe", re.IGNORECASE)
GIVE = "Give the container its GPU: run provision up; see nvidia-smi on the host."
MAKE_NODES = (
    'Run "nvidia-modprobe -u -c 0" on the host ("provision host prepare --gpu" does so after each boot), '
    "then restart the container."
)
SAME_VERSION = (
    "Reboot the host where its driver was updated; then run provision up, which installs the user space of its version."
)
MANAGEMENT = {
    "Driver/library version mismatch": (
        "the user space in the container is of another version than the host's kernel module",
        SAME_VERSION,
    ),
    "couldn't communicate with the NVIDIA driver": ("nvidia-smi does not reach the host's driver", GIVE),
    "No devices were found": ("nvidia-smi finds no card", GIVE),
    "Insufficient Permissions": ("nvidia-smi may not open the card's nodes", "Run provision up, which gives them."),
}
"""What nvidia-smi says, and what that means."""
CUDA_ANSWERS = {
    34: (
        "libcuda.so.1 is a toolkit's stand-in, with which programs are linked, and no driver",
        "Take it out of the library path (LD_LIBRARY_PATH, ld.so.conf).",
    ),
    802: (
        "the card's fabric is not ready",
        "Start NVIDIA's fabric manager on the host, then restart the container.",
    ),
    803: MANAGEMENT["Driver/library version mismatch"],
}
"""By the numbers in cuda.h; whatever else it is, nvidia-smi needs no unified memory (nvidia-uvm), and CUDA does."""
ASK_CUDA = """
import ctypes, json
try:
    driver = ctypes.CDLL("libcuda.so.1")
except OSError as error:
    print(json.dumps({"error": str(error)}))
else:
    count = ctypes.c_int(0)
    code = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    print(json.dumps({"code": code, "count": count.value}))
"""
"""In a process of its own, since a driver may end the one that it is loaded into."""


@dataclass(frozen=True)
class Verdict:
    """Why a card cannot be computed with and what to do, both empty when it can; what was said, and which answered."""

    problem: str = ""
    advice: str = ""
    said: str = ""
    found: tuple[str, ...] = ()


@dataclass(frozen=True)
class VulkanDevice:
    """One device of ``vulkaninfo --summary``."""

    name: str
    vendor_id: str
    is_software: bool


def main() -> None:
    """Look and answer."""
    module = AnsibleModule(
        argument_spec={
            "vendor": {"type": "str", "required": True, "choices": list(VENDOR_IDS)},
            "nodes": {"type": "list", "elements": "path", "default": []},
            "interfaces": {"type": "list", "elements": "str", "choices": ["cuda", "vulkan"], "required": True},
        },
        supports_check_mode=True,
    )
    found: list[str] = []
    last = Verdict()
    for verdict in _verdicts(module.params["vendor"], module.params["nodes"], module.params["interfaces"]):
        found += verdict.found
        last = verdict
    module.exit_json(changed=False, problem=last.problem, advice=last.advice, said=last.said.strip(), found=found)


def _verdicts(vendor: str, nodes: Iterable[str], interfaces: Sequence[str]) -> Iterator[Verdict]:
    """What is found of the nodes, then of each interface, up to the first with a problem."""
    verdict = judge_nodes({path: opened(path) for path in nodes}, vendor)
    yield verdict
    if not verdict.problem and "cuda" in interfaces:
        listed = _output(["nvidia-smi", "-L"])
        verdict = judge_cuda(listed, answer_in(_output([sys.executable, "-c", ASK_CUDA])))
        yield verdict
    if not verdict.problem and "vulkan" in interfaces:
        yield judge_vulkan(_output(["vulkaninfo", "--summary"]), vendor)


def judge_nodes(seen: Mapping[str, str], vendor: str) -> Verdict:
    """What the state of the nodes, as ``opened`` tells it, means."""
    for path, state in seen.items():
        if state:
            return _judge_node(path, state, vendor)
    return Verdict()


def _judge_node(path: str, state: str, vendor: str) -> Verdict:
    if state == "missing":
        advice = MAKE_NODES if vendor == "nvidia" else "Restart the container; see the host's /dev/dri and /dev/kfd."
        return Verdict(f"{path} is not there", advice)
    if state == "other":
        return Verdict(f"{path} is no character device", "Remove what is there; the container's device `gpu` makes it.")
    if state == "dead":
        advice = f"Load the host's driver: modprobe {DRIVERS[vendor]}"
        return Verdict(f"{path} is there, and no driver is behind it", advice)
    if state == "denied":
        return Verdict(
            f"a user in the groups {' and '.join(GROUPS)} may not open {path}",
            "Run provision up, which gives it to the container's group render, or to everybody (NVIDIA).",
        )
    return Verdict(f"{path} cannot be opened: {state}", "See the host's kernel log: journalctl --dmesg")


def judge_cuda(listed: str, answer: Mapping[str, Any]) -> Verdict:
    """What ``nvidia-smi -L`` and CUDA itself answer; only both together are a proof."""
    cards = tuple(re.findall(r"^GPU \d+: (.+?)(?: \(UUID: \S+\))?$", listed, re.MULTILINE))
    if not cards:
        return _without_cards(listed)
    if "error" in answer:
        return Verdict(f"CUDA's driver cannot be loaded: {answer['error']}", "Run provision up, which installs it.")
    code, count = answer.get("code"), answer.get("count", 0)
    if code == 0 and count:
        return Verdict(found=cards)
    words, advice = CUDA_ANSWERS.get(code or 0, ("", MAKE_NODES))
    reason = _cuda_reason(code)
    if words:
        reason += f" ({words})"
    return Verdict(f"nvidia-smi lists {cards[0]}, and CUDA cannot use it: {reason}", advice, listed)


def _without_cards(listed: str) -> Verdict:
    for words, (problem, advice) in MANAGEMENT.items():
        if words in listed:
            return Verdict(problem, advice, listed)
    return Verdict("nvidia-smi lists no card", GIVE, listed)


def _cuda_reason(code: int | None) -> str:
    if code is None:
        return "it ended the program"
    if code:
        return f"cuInit answers {code}"
    return "it counts no card"


def judge_vulkan(summary: str, vendor: str) -> Verdict:
    """Whether Vulkan lists a card of that vendor; a processor that plays one is none."""
    devices = vulkan_devices(summary)
    cards = [device for device in devices if not device.is_software]
    of_vendor = tuple(card.name for card in cards if card.vendor_id == VENDOR_IDS[vendor])
    if of_vendor:
        return Verdict(found=of_vendor)
    return _without_vulkan_card([device.name for device in devices], vendor, summary, has_cards=bool(cards))


def _without_vulkan_card(names: Sequence[str], vendor: str, summary: str, *, has_cards: bool) -> Verdict:
    """What Vulkan finds instead: only a processor that plays a card, cards of others, or nothing."""
    if names and not has_cards:
        return Verdict(
            f"Vulkan finds only {' and '.join(names)}, which is the processor that plays a card",
            "Give the container its GPU; where it has it, its Mesa does not know the card: take a newer `image`.",
            summary,
        )
    there = ", ".join(names) or "none"
    return Verdict(f"Vulkan finds no card of {vendor}, it finds {there}", "Give the container its GPU.", summary)


def vulkan_devices(summary: str) -> tuple[VulkanDevice, ...]:
    """The devices that ``vulkaninfo --summary`` lists."""
    devices = []
    for block in re.split(r"^GPU\d+:\s*$", summary, flags=re.MULTILINE)[1:]:
        fields = dict(re.findall(r"^\s+(\w+)\s+= (.*?)\s*$", block, re.MULTILINE))
        name = fields.get("deviceName", "")
        is_cpu = fields.get("deviceType", "").endswith("_CPU")
        is_software = SOFTWARE.search(f"{name} {fields.get('driverName', '')}") is not None
        devices.append(VulkanDevice(name, fields.get("vendorID", "").lower(), is_cpu or is_software))
    return tuple(devices)


def answer_in(said: str) -> dict[str, Any]:
    """What ``ASK_CUDA`` answers, whatever the driver says before; empty when the driver ended it."""
    for line in said.splitlines():
        if line.startswith("{"):
            answer: dict[str, Any] = json.loads(line)
            return answer
    return {}


def opened(path: str) -> str:
    """How it went for a member of the card's groups: empty, ``missing``, ``other``, ``dead``, ``denied``, or words."""
    try:
        if not stat.S_ISCHR(Path(path).stat().st_mode):
            return "other"
    except FileNotFoundError:
        return "missing"
    child = os.fork()
    if child == 0:
        os._exit(_open_as_member(path))
    number = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if number == 0:
        return ""
    if number in {errno.ENXIO, errno.ENODEV}:
        return "dead"
    if number in {errno.EACCES, errno.EPERM}:
        return "denied"
    return os.strerror(number)


def _open_as_member(path: str) -> int:
    """In a process of its own, which stays nobody: the number of the error, 0 for none."""
    if os.geteuid() == 0:
        os.setgroups(group_ids())
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def group_ids(names: Iterable[str] = GROUPS) -> list[int]:
    """The numbers of those groups that there are."""
    known = {group.gr_name: group.gr_gid for group in grp.getgrall()}
    return [known[name] for name in names if name in known]


def _output(command: Sequence[str]) -> str:
    """All that it says, asked as a member; its exit code says nothing that its words do not."""
    member: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": group_ids()} if os.geteuid() == 0 else {}
    try:
        done = subprocess.run(
            command,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", "HOME": "/nonexistent"},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
            **member,
        )
    except subprocess.TimeoutExpired as error:
        return f"{' '.join(command)}: no answer after {error.timeout:.0f} s"
    except FileNotFoundError:
        return f"{command[0]}: there is no such program"
    return str(done.stdout)


if __name__ == "__main__":
    main()
