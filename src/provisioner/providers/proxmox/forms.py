"""What Proxmox' answers look like, as far as this driver relies on it; another form is an error of the host's.

A node in trouble, a proxy or another program in its place may answer anything: it is refused where it comes in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from provisioner.providers.proxmox.failures import PveError

Path = Sequence[object]


@dataclass(frozen=True, slots=True)
class _Form:
    """``rows``: a list of mappings that have ``keys``; else one mapping that has them.

    ``foreign``: its memory and its root file system are no options of a container, but mappings.
    """

    keys: tuple[str, ...] = ()
    rows: bool = True
    may_be_nothing: bool = False
    foreign: bool = False


_FORMS: Mapping[str, _Form] = {
    "version": _Form(("version",), rows=False),
    "cluster/resources": _Form(("vmid", "node")),
    "cluster/status": _Form(("type", "name")),
    "access/permissions": _Form(rows=False),
    "nodes": _Form(("node",)),
    "nodes/*/status": _Form(rows=False, foreign=True),
    "nodes/*/time": _Form(("time",), rows=False),
    "nodes/*/aplinfo": _Form(("template",)),
    "nodes/*/network": _Form(("iface",)),
    "nodes/*/certificates/info": _Form(("filename",)),
    "nodes/*/storage": _Form(("storage", "type")),
    "nodes/*/storage/*/content": _Form(("volid",)),
    "nodes/*/tasks": _Form(("upid",)),
    "nodes/*/tasks/*/status": _Form(("status",), rows=False),
    "nodes/*/tasks/*/log": _Form(("n", "t")),
    "nodes/*/lxc": _Form(("vmid",)),
    "nodes/*/lxc/*/config": _Form(rows=False),
    "nodes/*/lxc/*/feature": _Form(("hasFeature",), rows=False),
    "nodes/*/lxc/*/interfaces": _Form(may_be_nothing=True),
    "nodes/*/lxc/*/snapshot": _Form(("name",)),
    "nodes/*/lxc/*/snapshot/*/config": _Form(rows=False),
    "nodes/*/lxc/*/status/current": _Form(("status",), rows=False),
    "pools": _Form(("poolid",)),
    "pools/*": _Form(rows=False),
}
_NUMBERS = frozenset({"vmid", "snaptime", "n", "time", "cores", "memory", "swap"})
"""Whole ones."""
_TEXTS = frozenset(
    "name node type storage status pool poolid tags template volid upid lock parent description digest comment iface "  # noqa: SIM905
    "t hostname rootfs features filename version exitstatus user tokenid content inet inet6 ip-address".split()
)
_PARTS = {"current-kernel": dict, "ip-addresses": list}
_PARENTS = frozenset({"nodes", "lxc", "storage", "tasks", "snapshot", "pools"})
"""The parts of a path behind which stands a name or a number."""
_MOST = 100_000
"""Rows of one answer."""
_SHOWN = 80
_DIGITS = 15


def checked(path: Path, answer: Any) -> Any:
    """The answer, as it is; ``PveError`` when it does not have the form that is known of that path."""
    place = _place(path)
    form = _FORMS.get(place)
    if form is None or (answer is None and form.may_be_nothing):
        return answer
    why = _wrong_rows(answer, form.keys) if form.rows else _wrong(answer, form.keys, foreign=form.foreign)
    if why:
        shown = "/".join(map(str, path))
        raise PveError(f"The answer at {shown[:_SHOWN]} is not one of Proxmox VE: {why}.")
    return answer


def _place(path: Path) -> str:
    """The path with a star in the place of each name: ``nodes/*/lxc``."""
    found: list[str] = []
    for part in map(str, path):
        is_name = bool(found) and found[-1] in _PARENTS
        found.append("*" if is_name else part)
    return "/".join(found)


def _wrong_rows(answer: Any, keys: Sequence[str]) -> str:
    if not isinstance(answer, list):
        return "it is no list"
    if len(answer) > _MOST:
        return f"it has more than {_MOST} rows"
    return next((why for why in (_wrong(row, keys) for row in answer) if why), "")


def _wrong(value: Any, keys: Sequence[str], *, foreign: bool = False) -> str:
    """What is wrong with one mapping, in words."""
    if not isinstance(value, dict):
        return "where it should have keys it has none"
    missing = next((key for key in keys if value.get(key) is None), None)
    if missing is not None:
        return f"there is no {missing} in it"
    told = ((key, one) for key, one in value.items() if one is not None and (key in _PARTS or not foreign))
    return next((why for why in (_wrong_part(key, one) for key, one in told) if why), "")


def _wrong_part(key: str, value: Any) -> str:
    if key in _NUMBERS and not _is_number(value):
        return f"its {key} is no number"
    if key in _TEXTS and not isinstance(value, str | int | float):
        return f"its {key} is no text"
    if key in _PARTS and not isinstance(value, _PARTS[key]):
        return f"its {key} has another form"
    return _wrong_rows(value, ()) if _PARTS.get(key) is list else ""


def _is_number(value: object) -> bool:
    """Whether it is a whole number of a usual size, or the digits of one: Perl knows both."""
    if isinstance(value, str):
        return value.isascii() and value.isdigit() and len(value) <= _DIGITS
    return type(value) is int and 0 <= value < 10**_DIGITS
