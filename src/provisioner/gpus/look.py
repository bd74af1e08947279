"""What a host is asked for its cards: one POSIX shell script that only reads, and how its answer is understood."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from provisioner.gpus.cards import CAPABILITIES, VENDORS, Card, Link, Node, Vendor
from provisioner.gpus.health import transfers_in, version_in

SCRIPT = r"""
say() { printf '%s\t%s\t%s\n' "$1" "$2" "$3"; }
for card in /sys/bus/pci/devices/*; do
  case $(cat "$card/class") in 0x03*) ;; *) continue ;; esac
  at=${card##*/}
  for name in vendor device current_link_speed current_link_width max_link_speed max_link_width \
    mem_info_vram_total mem_info_gtt_total; do
    [ -r "$card/$name" ] && say "$at" "$name" "$(cat "$card/$name")"
  done
  [ -e "$card/driver" ] && say "$at" driver "$(basename "$(readlink -f "$card/driver")")"
  for node in "$card"/drm/*; do [ -e "$node" ] && say "$at" drm "${node##*/}"; done
  about=/proc/driver/nvidia/gpus/$at/information
  [ -r "$about" ] && while IFS= read -r line; do say "$at" nvidia "$line"; done < "$about"
done
[ -r /proc/driver/nvidia/version ] && say - nvidia_version "$(head -n 1 /proc/driver/nvidia/version)"
for node in /dev/nvidia* /dev/nvidia-caps/* /dev/dri/* /dev/kfd; do
  [ -c "$node" ] && say - node "$(stat -c '%n %t %T' "$node")"
done
if command -v nvidia-smi > /dev/null; then
  # Where the driver is not kept loaded each takes a second.
  nvidia-smi | while IFS= read -r line; do say - banner "$line"; done &
  nvidia-smi --query-gpu=pci.bus_id,name,uuid,memory.total,compute_cap,driver_version --format=csv,noheader,nounits |
    while IFS= read -r line; do say - smi "$line"; done
  wait
fi
command -v nvidia-container-cli > /dev/null && say - runtime nvidia-container-cli
true
"""
"""A line for each fact: the card's PCI address ("-": the host's), what it is, and its value, with tabs between."""
LOOK_TIMEOUT_S = 60.0
"""A driver that is not kept loaded takes a few seconds for each card before nvidia-smi answers."""
MIB = 2**20
SMI_FIELDS = 6
NODE_FIELDS = 3
_CUDA = re.compile(r"CUDA (?:UMD )?Version: *([0-9.]+)")


@dataclass
class _Facts:
    """The lines of one card, or of the host; a fact may be said more than once."""

    values: dict[str, list[str]] = field(default_factory=dict)

    def one(self, name: str) -> str:
        """The fact, empty when it was not told."""
        return next(iter(self.values.get(name, ())), "")

    def each(self, name: str) -> Sequence[str]:
        """All that was told of it."""
        return self.values.get(name, ())

    def number(self, name: str) -> int:
        """The fact as a number, 0 when it is none."""
        text = self.one(name)
        return int(text) if text.isdigit() else 0


def cards_in(answer: str) -> tuple[Card, ...]:
    """The cards of a host that gave this answer to ``SCRIPT``, in the order of their addresses."""
    facts: dict[str, _Facts] = {}
    for line in answer.splitlines():
        where, name, value = [*line.split("\t", 2), "", ""][:3]
        facts.setdefault(where, _Facts()).values.setdefault(name, []).append(value)
    host = facts.pop("-", _Facts())
    nodes = _nodes(host.each("node"))
    smi = _smi_lines(host.each("smi"))
    cards = []
    for pci, about_card in sorted(facts.items()):
        if about_card.one("vendor") in VENDORS:
            cards.append(_card(pci, about_card, host, nodes, smi.get(pci, ())))
    return tuple(cards)


def _card(pci: str, facts: _Facts, host: _Facts, nodes: Mapping[str, Node], smi: Sequence[str]) -> Card:
    """One card; ``smi`` is what nvidia-smi said of it, if it did."""
    vendor = VENDORS[facts.one("vendor")]
    about = _information(facts.each("nvidia"))
    wanted = list(_wanted(vendor, facts, about, nodes))
    _, name, uuid, memory, capability, version = smi or ("", "", "", "", "", "")
    card = Card(
        pci,
        vendor,
        name or about.get("Model") or f"{vendor.upper()} {facts.one('device')}",
        facts.one("driver"),
        uuid or about.get("GPU UUID", ""),
        int(memory) * MIB if memory.isdigit() else facts.number("mem_info_vram_total"),
        facts.number("mem_info_gtt_total"),
        _capability(capability),
        nodes=tuple(nodes[path] for path in wanted if path in nodes),
        missing=tuple(path for path in wanted if path not in nodes),
        link=_link(facts),
    )
    if vendor == "nvidia":
        return _with_driver(card, version, host)
    return card


def _capability(text: str) -> str:
    """The compute capability, such as "8.6"; empty for "[N/A]"."""
    return text if text.replace(".", "").isdigit() else ""


def _with_driver(card: Card, version: str, host: _Facts) -> Card:
    """A card of NVIDIA's with what its host says of the driver; ``version`` is empty where nvidia-smi said nothing."""
    return replace(
        card,
        driver_version=version or version_in(host.one("nvidia_version")),
        cuda=_newest_cuda(host.each("banner")),
        runtime=bool(host.one("runtime")),
    )


def _information(lines: Sequence[str]) -> dict[str, str]:
    """What the driver's file about a card says, in lines such as "Model: NVIDIA GeForce RTX 3060"."""
    values = {}
    for line in lines:
        key, _, value = line.partition(":")
        values[key.strip()] = value.strip()
    return values


def _smi_lines(lines: Sequence[str]) -> dict[str, list[str]]:
    """The fields that nvidia-smi said of each card, by the card's address."""
    by_address = {}
    for fields in csv.reader(lines, skipinitialspace=True):
        if len(fields) == SMI_FIELDS:
            by_address[_pci(fields[0])] = fields
    return by_address


def _wanted(vendor: Vendor, facts: _Facts, about: Mapping[str, str], nodes: Mapping[str, Node]) -> Iterator[str]:
    """The nodes through which programs reach the card."""
    if vendor == "nvidia":
        yield f"/dev/nvidia{about.get('Device Minor', '0')}"
        yield from ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
        yield from sorted(path for path in nodes if path.startswith(CAPABILITIES))
        return
    if vendor == "amd":
        yield "/dev/kfd"
    yield from _renderers(facts)


def _renderers(facts: _Facts) -> list[str]:
    """The nodes for programs that only compute; the usual one where the kernel names none."""
    names = [name for name in facts.each("drm") if name.startswith("renderD")]
    return [f"/dev/dri/{name}" for name in names or ["renderD128"]]


def _nodes(lines: Sequence[str]) -> dict[str, Node]:
    """The device nodes by their paths, of lines such as "/dev/nvidia0 c3 0", whose numbers are hexadecimal."""
    nodes = {}
    for line in lines:
        fields = line.split()
        if len(fields) == NODE_FIELDS:
            path, major, minor = fields
            nodes[path] = Node(path, int(major, 16), int(minor, 16))
    return nodes


def _pci(text: str) -> str:
    """nvidia-smi writes eight digits of the domain, the kernel four."""
    domain, _, rest = text.partition(":")
    return f"{domain[-4:]}:{rest}".lower()


def _newest_cuda(banner: Sequence[str]) -> str:
    """The release in "CUDA Version: 13.0", which newer ones call "CUDA UMD Version"."""
    for line in banner:
        match = _CUDA.search(line)
        if match is not None:
            return match[1]
    return ""


def _link(facts: _Facts) -> Link | None:
    speed, best_speed = facts.one("current_link_speed"), facts.one("max_link_speed")
    width, best_width = facts.number("current_link_width"), facts.number("max_link_width")
    try:
        return Link(transfers_in(speed), width, transfers_in(best_speed), best_width)
    except ValueError:  # "Unknown", or nothing: an APU has no slot
        return None
