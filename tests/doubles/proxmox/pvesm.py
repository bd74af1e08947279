"""The node's ``pvesm``: ``status`` and ``list`` in the columns of the real one (pve-storage's ``CLI/pvesm.pm``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.doubles.proxmox.client import root
from tests.doubles.proxmox.double import Double
from tests.doubles.proxmox.programs import FAILED, Answer, Asked, PctError, data_of, options_of

USAGE = "400 not enough arguments\npvesm list <storage> [OPTIONS]"


def answer(double: Double, node: str, asked: Asked) -> Answer:
    """What one call of ``pvesm`` on that node does."""
    verb, given = (asked.argv or [""])[0], asked.argv[1:]
    verbs = {"list": _list, "status": _status}
    if verb not in verbs:
        return Answer(FAILED, err=f"ERROR: unknown command 'pvesm {verb}'\n")
    try:
        path, *options = _words(verb, given)
        reply = root(double).ask("GET", f"/nodes/{node}/storage{path}", **options_of(options))
        return Answer(out=verbs[verb](data_of(reply)))
    except PctError as error:
        return Answer(FAILED, err=f"{error}\n")


def _words(verb: str, given: Sequence[str]) -> list[str]:
    """The path below the node's storages, and the options."""
    if verb == "status":
        return ["", *given]
    if not given or given[0].startswith("-"):
        raise PctError(USAGE)
    return [f"/{given[0]}/content", *given[1:]]


def _status(found: Sequence[Mapping[str, Any]]) -> str:
    """A line for each storage, by its name; sizes are in KiB, as they are there."""
    width = max((len(one["storage"]) for one in found), default=0) + 1
    heads = ("Type", "Status"), ("Total", "Used", "Available")
    lines = [_columns(width, "Name", *heads, "%")]
    for one in sorted(found, key=lambda one: str(one["storage"])):
        active = ("active" if one["active"] else "inactive") if one["enabled"] else "disabled"
        share = f"{one['used'] * 100 / one['total'] if one['total'] else 0: 7.2f}%" if one["enabled"] else "N/A"
        sizes = [one[name] // 1024 for name in ("total", "used", "avail")]
        lines.append(_columns(width, one["storage"], (one["type"], active), sizes, share))
    return "".join(lines)


def _columns(width: int, name: str, words: Sequence[str], sizes: Sequence[object], share: str) -> str:
    cells = [*(f"{one:>10}" for one in words), *(f"{one:>15}" for one in sizes), f"{share:>8}"]
    return f"{name:<{width}} {' '.join(cells)}\n"


def _list(found: Sequence[Mapping[str, Any]]) -> str:
    """A line for each volume: first what guests have, then the rest by its format."""
    width = max((len(one["volid"]) for one in found), default=0)
    digits = len(str(max((one["size"] for one in found), default=0)))

    def line(volid: object, form: object, kind: object, size: object, *more: object) -> str:
        return " ".join([f"{volid:<{width}}", f"{form:<7}", f"{kind:<9}", f"{size:>{digits}}", *map(str, more)]) + "\n"

    of_guests = [one for one in found if one.get("vmid")]
    others = sorted((one for one in found if not one.get("vmid")), key=lambda one: str(one["format"]))
    return line("Volid", "Format", "Type", "Size", "VMID") + "".join(
        line(one["volid"], one["format"], one["content"], one["size"], *([one["vmid"]] if one.get("vmid") else []))
        for one in (*of_guests, *others)
    )
