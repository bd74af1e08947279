"""The forms of Proxmox' answers, as far as this driver relies on them; an answer of another form is the host's error.

A node in trouble, a proxy or another program in its place may answer anything, so every answer is checked on arrival.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from provisioner.providers.proxmox.failures import PveError

Path = Sequence[object]


@dataclass(frozen=True, slots=True)
class _Form:
    """The form of one answer: with ``rows`` a list of mappings that have ``keys``, else one mapping that has them.

    ``foreign``: keys such as memory and rootfs are no options of a container there, so only ``_PARTS`` are checked.
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
"""Keys whose values are whole numbers."""
_TEXTS = frozenset(
    "name node type storage status pool poolid tags template volid upid lock parent description digest comment iface "  # noqa: SIM905
    "t hostname rootfs features filename version exitstatus user tokenid content inet inet6 ip-address".split()
)
_PARTS = {"cpuinfo": dict, "current-kernel": dict, "ip-addresses": list}
_CHECKED = _NUMBERS | _TEXTS | _PARTS.keys()
_PARENTS = frozenset({"nodes", "lxc", "storage", "tasks", "snapshot", "pools"})
"""The parts of a path behind which stands a name or a number."""
_MOST = 100_000
"""Rows of one answer."""
_SHOWN = 80
_DIGITS = 15
_FIRST_TOO_LARGE = 10**15


def checked(path: Path, answer: Any) -> Any:
    """Return the answer unchanged; raise ``PveError`` when it does not have the form that is known of that path."""
    form = _FORMS.get(_place(path))
    if form is None:
        return answer
    if answer is None and form.may_be_nothing:
        return answer
    fault = _fault(answer, form)
    if fault:
        shown = "/".join(map(str, path))
        raise PveError(f"The answer at {shown[:_SHOWN]} is not one of Proxmox VE: {fault}.")
    return answer


def _place(path: Path) -> str:
    """The path with a star in the place of each name: ``nodes/*/lxc``."""
    parts: list[str] = []
    parent = ""
    for part in path:
        is_name = parent in _PARENTS
        parts.append("*" if is_name else str(part))
        parent = parts[-1]
    return "/".join(parts)


def _fault(answer: Any, form: _Form) -> str:
    """What is wrong with an answer, in words; nothing when it has its form."""
    if form.rows:
        return _fault_in_rows(answer, form.keys)
    checked_keys = frozenset(_PARTS) if form.foreign else _CHECKED
    return _fault_in_mapping(answer, form.keys, checked_keys)


def _fault_in_rows(answer: Any, keys: Sequence[str]) -> str:
    if not isinstance(answer, list):
        return "it is no list"
    if len(answer) > _MOST:
        return f"it has more than {_MOST} rows"
    for row in answer:
        fault = _fault_in_mapping(row, keys, _CHECKED)
        if fault:
            return fault
    return ""


def _fault_in_mapping(value: Any, keys: Sequence[str], checked_keys: frozenset[str]) -> str:
    if not isinstance(value, dict):
        return "where it should have keys it has none"
    for key in keys:
        if value.get(key) is None:
            return f"there is no {key} in it"
    for key, part in value.items():
        if part is None or key not in checked_keys:
            continue
        fault = _fault_in_part(key, part)
        if fault:
            return fault
    return ""


def _fault_in_part(key: str, value: Any) -> str:
    if key in _NUMBERS:
        return "" if _is_number(value) else f"its {key} is no number"
    if key in _TEXTS:
        return "" if isinstance(value, str | int | float) else f"its {key} is no text"
    if not isinstance(value, _PARTS[key]):
        return f"its {key} has another form"
    if isinstance(value, list):
        return _fault_in_rows(value, ())
    return ""


def _is_number(value: object) -> bool:
    """Whether it is a whole number of a usual size, or the digits of one: Perl knows both."""
    if isinstance(value, str):
        is_short = len(value) <= _DIGITS
        return is_short and value.isascii() and value.isdigit()
    if isinstance(value, bool) or not isinstance(value, int):
        return False
    return 0 <= value < _FIRST_TOO_LARGE
