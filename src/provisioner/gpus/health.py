"""What a host does for its cards beside having them: which driver runs and which starts next, what makes their nodes.

``SCRIPT`` only reads, and its answer is understood by ``driver_in``; ``UNIT`` is what role ``gpu_host`` installs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from provisioner.gpus.cards import Link

UNIT = "provision-gpu.service"
"""The unit of role ``gpu_host`` that makes the nodes before guests start."""
PERSISTENCE = "nvidia-persistenced.service"
SCRIPT = r"""
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
say() { printf '%s\t%s\t%s\n' "$1" "$2" "$3"; }
for card in /sys/bus/pci/devices/*; do
  case $(cat "$card/class") in 0x03*) ;; *) continue ;; esac
  at=$(readlink -f "$card")
  # a card may sit behind a switch of its own, or in a slot that is wired with less than it has
  while [ -r "$at/current_link_width" ] && [ -e "$(dirname "$at")/current_link_width" ]; do
    say "${card##*/}" path "$(cat "$at/current_link_speed"),$(cat "$at/current_link_width"),$(cat \
      "$at/max_link_speed"),$(cat "$at/max_link_width")"
    at=$(dirname "$at")
  done
done 2>/dev/null
[ -r /proc/driver/nvidia/version ] && say - module "$(head -n 1 /proc/driver/nvidia/version)"
command -v modinfo > /dev/null && say - next "$(modinfo -F version nvidia 2>/dev/null)"
if command -v nvidia-smi > /dev/null; then
  said=$(nvidia-smi -L 2>&1) || say - complaint "$(printf %s "$said" | tr '\n\t' '  ')"
fi
command -v nvidia-modprobe > /dev/null && say - tool nvidia-modprobe
if [ -d /run/systemd/system ]; then
  for unit in provision-gpu.service nvidia-persistenced.service; do
    say - unit "$unit $(systemctl is-enabled "$unit" 2>/dev/null)"
  done
fi
grep -lsE '^[^#]*(nvidia-modprobe .*-u|nvidia-create-device-nodes|mknod .*nvidia-uvm)' \
  /etc/udev/rules.d/*.rules /run/udev/rules.d/*.rules /usr/lib/udev/rules.d/*.rules /lib/udev/rules.d/*.rules |
  while read -r file; do say - rule "$file"; done
true
"""
"""A line for each fact: the card's PCI address ("-": the host's), what it is, and its value, with tabs between."""

_VERSION = re.compile(r"\d+(?:\.\d+)+")
_MISMATCH = "Driver/library version mismatch"
_LINK_FIELDS = 4


@dataclass(frozen=True, slots=True)
class HostDriver:
    """What a host says of its drivers.

    ``module`` is the version of NVIDIA's kernel module that runs, ``next_module`` the one that the next start loads;
    ``complaint`` what nvidia-smi said when it failed; ``makers`` what makes NVIDIA's nodes at every start.
    """

    module: str = ""
    next_module: str = ""
    complaint: str = ""
    has_modprobe: bool = False
    makers: tuple[str, ...] = ()
    has_persistence: bool = False
    paths: tuple[tuple[str, Link], ...] = ()
    """The links between a card (its address) and the machine, from the card on."""

    @property
    def is_mismatched(self) -> bool:
        """Whether the programs of the driver are of another version than the module that runs."""
        return _MISMATCH in self.complaint

    def slot(self, pci: str) -> Link | None:
        """The narrowest of a card's links beside the widest that it could have: what all of its data goes through."""
        links = [link for address, link in self.paths if address == pci]
        if not links:
            return None
        worst = min(links, key=lambda link: (link.width * link.speed, link.width))
        best = min(links, key=lambda link: (link.best_width * link.best_speed, link.best_width))
        return Link(worst.speed, min(link.width for link in links), best.best_speed, best.best_width)


def driver_in(answer: str) -> HostDriver:
    """What a host said that gave this answer to ``SCRIPT``."""
    lines = [[*line.split("\t", 2), "", ""][:3] for line in answer.splitlines()]
    host = [(name, value.strip()) for where, name, value in lines if where == "-"]
    every = {name: [value for other, value in host if other == name] for name, _ in host}
    enabled = [unit for unit, _, state in (one.partition(" ") for one in every.get("unit", ())) if state == "enabled"]
    links = ((where, _link(value.split(","))) for where, name, value in lines if name == "path")
    return HostDriver(
        module=version_in(_first(every.get("module", ()))),
        next_module=version_in(_first(every.get("next", ()))),
        complaint=_first(every.get("complaint", ())),
        has_modprobe="tool" in every,
        makers=(*(unit for unit in enabled if unit == UNIT), *every.get("rule", ())),
        has_persistence=PERSISTENCE in enabled,
        paths=tuple((where, link) for where, link in links if link),
    )


def version_in(text: str) -> str:
    """The version in "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep …", empty without one."""
    found = _VERSION.search(text)
    return found[0] if found else ""


def _first(values: Sequence[str]) -> str:
    return next(iter(values), "")


def _link(fields: Sequence[str]) -> Link | None:
    speeds, widths = fields[0::2], fields[1::2]
    try:
        numbers = [float(one.partition(" ")[0]) for one in speeds], [int(one) for one in widths]
    except ValueError:  # "Unknown": nothing is plugged in there
        return None
    if len(fields) != _LINK_FIELDS:
        return None
    return Link(numbers[0][0], numbers[1][0], numbers[0][1], numbers[1][1])
