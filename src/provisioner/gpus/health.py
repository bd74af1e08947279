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
        narrowest = min(link.width for link in links)
        return Link(worst.speed, narrowest, best.best_speed, best.best_width)


def driver_in(answer: str) -> HostDriver:
    """What a host said that gave this answer to ``SCRIPT``."""
    about_host: dict[str, list[str]] = {}
    paths = []
    for line in answer.splitlines():
        where, name, value = [*line.split("\t", 2), "", ""][:3]
        link = _link(value) if name == "path" else None
        if link is not None:
            paths.append((where, link))
        if where == "-":
            about_host.setdefault(name, []).append(value.strip())
    enabled = _enabled(about_host.get("unit", ()))
    own_unit = [UNIT] if UNIT in enabled else []
    return HostDriver(
        module=version_in(_first(about_host.get("module", ()))),
        next_module=version_in(_first(about_host.get("next", ()))),
        complaint=_first(about_host.get("complaint", ())),
        has_modprobe="tool" in about_host,
        makers=(*own_unit, *about_host.get("rule", ())),
        has_persistence=PERSISTENCE in enabled,
        paths=tuple(paths),
    )


def version_in(text: str) -> str:
    """The version in "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep …", empty without one."""
    match = _VERSION.search(text)
    return match[0] if match else ""


def _first(values: Sequence[str]) -> str:
    return next(iter(values), "")


def _enabled(lines: Sequence[str]) -> set[str]:
    """The units that systemd starts, of lines such as "nvidia-persistenced.service enabled"."""
    units = set()
    for line in lines:
        unit, _, state = line.partition(" ")
        if state == "enabled":
            units.add(unit)
    return units


def _link(value: str) -> Link | None:
    """The link in "16.0 GT/s PCIe,8,16.0 GT/s PCIe,16"; None for "Unknown", where nothing is plugged in."""
    fields = value.split(",")
    if len(fields) != _LINK_FIELDS:
        return None
    speed, width, best_speed, best_width = fields
    try:
        return Link(transfers_in(speed), int(width), transfers_in(best_speed), int(best_width))
    except ValueError:
        return None


def transfers_in(speed: str) -> float:
    """The number in "16.0 GT/s PCIe"; ``ValueError`` where there is none."""
    return float(speed.partition(" ")[0])
