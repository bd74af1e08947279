# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: measures the memory that a unit uses on a card, or by how much the card's use has grown."""

from __future__ import annotations

DOCUMENTATION = r"""
module: provision_card_memory
short_description: Measure what a unit uses of a card's memory
description:
  - Of AMD's and Intel's cards the kernel says what each process uses (C(/proc/PID/fdinfo)).
  - NVIDIA's driver names processes by numbers that mean nothing in a container. There it is what the whole card uses
    now beside what it used before the unit started, which the unit itself wrote down. Changes nothing.
options:
  unit: {type: str, required: true, description: [The systemd unit whose processes are measured.]}
  card: {type: dict, default: {}, description: ["The card's C(vendor), C(pci), C(uuid), as far as they are known."]}
  names: {type: list, elements: str, default: [], description: [What the program calls its devices.]}
  listed_mib: {type: int, default: 0, description: [The memory that the program says its smallest device has.]}
  before: {type: path, required: true, description: [Where the unit wrote what the cards used before it started.]}
  models: {type: list, elements: path, default: [], description: ["The models that it has loaded, whose size is told."]}
author: [provisioner (!UNKNOWN)]
"""
EXAMPLES = r"""
- name: verify | Measure the card
  provision_card_memory:
    unit: llama-server.service
    before: /run/llama-server.card
"""
RETURN = r"""
start: {type: str, returned: always, description: "Which start of the unit it is, systemd's InvocationID."}
driver: {type: str, returned: always, description: "The driver's version line, or the kernel's release."}
cards: {type: list, returned: always, description: The cards that were measured.}
used: {type: int, returned: always, description: Bytes that the cards use now; 0 when not known.}
grown: {type: int, returned: always, description: "Bytes that the unit uses, or more than before it; -1: not known."}
problem: {type: str, returned: always, description: Why it is not known.}
weights: {type: int, returned: always, description: "Bytes of the models' files, all parts."}
"""

import csv
import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

MIB = 2**20
TIMEOUT_S = 60
QUERY = ("nvidia-smi", "--query-gpu=uuid,pci.bus_id,name,memory.used", "--format=csv,noheader,nounits")
"""The same that the unit writes down, below the number of its start."""
NVIDIA_VERSION = Path("/proc/driver/nvidia/version")
UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
OWN = re.compile(r"(vram|local)\d*")
SHARED = re.compile(r"(gtt|system)\d*")
DRM_DRIVERS = ("amdgpu", "i915", "xe")
FIRST_PART = re.compile(r"-00001-of-(\d{5})\.gguf$")


@dataclass(frozen=True)
class Use:
    """What one card uses, as nvidia-smi tells it; ``used`` in bytes, None where it says "[N/A]"."""

    uuid: str
    pci: str
    name: str
    used: int | None


@dataclass(frozen=True)
class Client:
    """What one client of a kernel's graphics driver holds, in bytes: of the card's own memory, and of the host's."""

    pci: str
    number: str
    own: int
    shared: int
    has_own: bool
    """Whether the driver knows of memory of the card's own: Intel's say nothing of it where there is none."""


@dataclass(frozen=True)
class Measured:
    """What was found; ``grown`` -1 when it is not known, and then ``problem`` says why."""

    cards: Sequence[str] = ()
    used: int = 0
    grown: int = -1
    problem: str = ""


def main() -> None:
    """Measure and answer."""
    module = AnsibleModule(
        argument_spec={
            "unit": {"type": "str", "required": True},
            "card": {"type": "dict", "default": {}},
            "names": {"type": "list", "elements": "str", "default": []},
            "listed_mib": {"type": "int", "default": 0},
            "before": {"type": "path", "required": True},
            "models": {"type": "list", "elements": "path", "default": []},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    start, group = unit_of(wanted["unit"])
    card, names = wanted["card"], wanted["names"]
    vendor = card.get("vendor", "")
    answer = _said(QUERY) if vendor in ("", "nvidia") else ""
    if vendor == "nvidia" or wanted_in(answer, card, names):
        measured = of_nvidia(answer, before_in(Path(wanted["before"]), start), card, names)
    else:
        clients = clients_of(processes_in(group))
        measured = of_clients(clients, card.get("pci", ""), wanted["listed_mib"], Path("/sys/bus/pci/devices"))
    weights = sum(map(size_of, map(Path, wanted["models"])))
    module.exit_json(changed=False, start=start, driver=driver_now(), weights=weights, **asdict(measured))


def of_nvidia(said: str, before: str | None, card: Mapping[str, Any], names: Iterable[str]) -> Measured:
    """By how much the cards use more than before the start; where only a name is known, all of that name together."""
    now = wanted_in(said, card, names)
    if not now:
        return Measured(problem=f"nvidia-smi does not name the card; it said: {said.strip() or 'nothing'}")
    titles = [f"{use.name} ({use.pci})" for use in now]
    known = [use.used for use in now if use.used is not None]
    if len(known) < len(now):
        return Measured(titles, problem="nvidia-smi does not say how much of its memory is used ([N/A])")
    used = sum(known)
    if before is None:
        problem = "nobody measured the card before the server started: systemctl restart it"
        return Measured(titles, used, problem=problem)
    return _grown(titles, now, used, before)


def _grown(titles: Sequence[str], now: Iterable[Use], used: int, before: str) -> Measured:
    """By how much the use has grown since that answer of nvidia-smi; not known where a card is not in it."""
    used_then = _used_before(now, before)
    if used_then is None:
        return Measured(titles, used, problem=f"before the server started nvidia-smi said: {before.strip()}")
    return Measured(titles, used, max(0, used - used_then))


def _used_before(now: Iterable[Use], before: str) -> int | None:
    """What these cards used by an earlier answer; None where it does not name all of them."""
    by_card = {use.uuid: use.used or 0 for use in uses_in(before)}
    total = 0
    for use in now:
        if use.uuid not in by_card:
            return None
        total += by_card[use.uuid]
    return total


def wanted_in(said: str, card: Mapping[str, Any], names: Iterable[str]) -> list[Use]:
    """The cards that are measured, in the answer to ``QUERY``."""
    return [use for use in uses_in(said) if is_wanted(use, card, names)]


def is_wanted(use: Use, card: Mapping[str, Any], names: Iterable[str]) -> bool:
    """Whether it is the card of the file, or else one of those that the program lists by that name."""
    if card.get("uuid"):
        return use.uuid == str(card["uuid"])
    if card.get("pci"):
        return use.pci == str(card["pci"]).lower()
    return use.name in names


def uses_in(said: str) -> list[Use]:
    """The cards in the answer to ``QUERY``; lines of another form are left out."""
    uses = []
    for row in csv.reader(said.splitlines(), skipinitialspace=True):
        if len(row) == len(Use.__annotations__):
            uuid, pci, name, used = row
            size = int(used) * MIB if used.strip().isdigit() else None
            uses.append(Use(uuid, pci[-12:].lower(), name.strip(), size))
    return uses


def before_in(file: Path, start: str) -> str | None:
    """What the unit wrote before this start of it; None when it was another start, or nothing was written."""
    if not file.exists():
        return None
    first, _, rest = file.read_text(errors="replace").partition("\n")
    return rest if first == start else None


def of_clients(clients: Sequence[Client], pci: str, listed_mib: int, devices: Path) -> Measured:
    """What the processes hold of the card's memory: its own, or, where it has none to speak of, the host's as well."""
    ours = [client for client in clients if pci.lower() in ("", client.pci)]
    if not ours:
        there = ", ".join(_cards_of(clients)) or "none"
        return Measured(problem=f"the kernel says that the server has opened these cards: {there}; not {pci or 'any'}")
    cards = _cards_of(ours)
    grown = sum(held_by(client, devices, listed_mib) for client in ours)
    return Measured(cards, max(grown, _used_on(cards, devices)), grown)


def _used_on(cards: Iterable[str], devices: Path) -> int:
    """What all processes together use of the cards, as AMD's driver says it; 0 of other cards."""
    return sum(_number(devices / card / "mem_info_vram_used") for card in cards)


def held_by(client: Client, devices: Path, listed_mib: int) -> int:
    """What counts of a client's memory: the card's own, and the host's where the card has none to speak of."""
    if client.has_own and not shares_memory(devices / client.pci, listed_mib):
        return client.own
    return client.own + client.shared


def _cards_of(clients: Iterable[Client]) -> list[str]:
    return sorted({client.pci for client in clients})


def shares_memory(device: Path, listed_mib: int) -> bool:
    """Whether it uses the host's memory as its own: the program lists more than AMD's driver says that the card has."""
    total = _number(device / "mem_info_vram_total")
    return 0 < total < listed_mib * MIB


def clients_of(processes: Iterable[int], proc: Path = Path("/proc")) -> list[Client]:
    """The clients of the kernel's graphics drivers among the open files of the processes, each once."""
    clients: dict[tuple[str, str], Client] = {}
    for process in processes:
        for file in sorted((proc / str(process) / "fdinfo").glob("*")):
            client = client_in(_text(file))
            if client:
                clients[client.pci, client.number] = client
    return list(clients.values())


def client_in(text: str) -> Client | None:
    """The client in an open file's description (Documentation/gpu/drm-usage-stats.rst); None of another file.

    What is resident counts; kernels before that word have ``drm-memory`` (of amdgpu) in its place.
    """
    facts = _facts_in(text)
    if facts.get("drm-driver") not in DRM_DRIVERS:
        return None
    sizes = _sizes(facts, "drm-resident-") or _sizes(facts, "drm-memory-")
    own = [size for region, size in sizes.items() if OWN.fullmatch(region)]
    shared = [size for region, size in sizes.items() if SHARED.fullmatch(region)]
    number, pci = facts.get("drm-client-id", ""), facts.get("drm-pdev", "").lower()
    return Client(pci, number, sum(own), sum(shared), bool(own))


def _facts_in(text: str) -> dict[str, str]:
    facts = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        facts[key] = value.strip()
    return facts


def _sizes(facts: Mapping[str, str], prefix: str) -> dict[str, int]:
    """The bytes of each region of memory that has a line with this prefix."""
    return {key.removeprefix(prefix): _bytes(value) for key, value in facts.items() if key.startswith(prefix)}


def size_of(model: Path) -> int:
    """The bytes of a model's file, or of all files of one that is in several parts."""
    first = FIRST_PART.search(model.name)
    parts = [model]
    if first is not None:
        parts = list(model.parent.glob(f"{model.name[: first.start()]}-*-of-{first[1]}.gguf"))
    return sum(part.stat().st_size for part in parts if part.exists())


def unit_of(unit: str) -> tuple[str, str]:
    """The number of the unit's start, and its group of processes."""
    shown = _said(["systemctl", "show", "--property", "InvocationID,ControlGroup", "--", unit])
    facts = dict(line.partition("=")[::2] for line in shown.splitlines())
    return facts.get("InvocationID", ""), facts.get("ControlGroup", "")


def processes_in(group: str, root: Path = Path("/sys/fs/cgroup")) -> list[int]:
    """The numbers of the processes in a group, those of a server's own children included."""
    processes: set[int] = set()
    for file in (root / group.strip("/")).glob("**/cgroup.procs"):
        processes.update(map(int, _text(file).split()))
    return sorted(processes)


def driver_now() -> str:
    """What tells one driver from another: NVIDIA's own line, or the release of the kernel that has the others in it."""
    return (_text(NVIDIA_VERSION).splitlines() or [os.uname().release])[0]


def _bytes(value: str) -> int:
    number, _, unit = value.partition(" ")
    if not number.isdigit():
        return 0
    return int(number) * UNITS.get(unit.strip(), 0)


def _number(file: Path) -> int:
    text = _text(file).strip()
    return int(text) if text.isdigit() else 0


def _text(file: Path) -> str:
    """What the file holds; nothing when it is not there, or is gone with its process."""
    try:
        return file.read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""


def _said(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command[0]}: {error}"
    return done.stdout + done.stderr


if __name__ == "__main__":
    main()
