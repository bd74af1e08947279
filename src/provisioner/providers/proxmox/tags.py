"""Tags that the datacenter lets nobody set but those with ``Sys.Modify`` on ``/``: ours may be among them.

Who has that right, or is root@pam in person, sets any tag. For everybody else ``user-tag-access`` says which tags there
are (``free``: any), and no tag of ``registered-tags`` is theirs to set.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from provisioner.plan import Change
from provisioner.providers.proxmox import marks, rights
from provisioner.providers.proxmox.rights import Right
from provisioner.state import Instance

if TYPE_CHECKING:
    from provisioner.providers.proxmox.client import Client

FREE, BY_LIST, NONE = "free", "list", "none"
_MODIFY = Right("/", ("Sys.Modify",))
_SEPARATOR = re.compile(r"[;, ]+")


@dataclass(frozen=True, slots=True)
class Rules:
    """Who may set which tags: ``mode`` and ``listed`` of ``user-tag-access``, ``allowed``: what exists and is ours."""

    mode: str = FREE
    listed: tuple[str, ...] = ()
    registered: tuple[str, ...] = ()
    allowed: frozenset[str] = frozenset()

    def refused(self, tags: Iterable[str]) -> list[str]:
        """Those of ``tags`` that may not be set."""
        is_free = self.mode == FREE
        return sorted(tag for tag in set(tags) if tag in self.registered or not (is_free or tag in self.allowed))


def rules(client: Client) -> Rules:
    """What holds for whoever calls; nothing is forbidden to those who may set any tag."""
    if rights.may_all(client.access):
        return Rules()
    found = client.get("cluster", "options")
    access = _parts(found.get("user-tag-access", {}))
    seen = Rules(
        str(access.get("user-allow", FREE)),
        _names(access.get("user-allow-list", ())),
        _names(found.get("registered-tags", ())),
        frozenset(_names(found.get("allowed-tags", ()))),
    )
    if seen.mode == FREE and not seen.registered:
        return seen
    return seen if rights.missing(client, [_MODIFY]) else Rules()


def set_by(changes: Iterable[Change]) -> dict[str, set[str]]:
    """The tags that a plan adds or takes away, by container."""
    found: dict[str, set[str]] = {}
    for change in changes:
        before, after = change.before, change.after
        if not isinstance(after, Instance):
            continue
        if change.action in ("create", "replace"):
            found[change.target] = _tags_of(after)
        elif change.action == "adopt":
            found[change.target] = {marks.TAG, marks.tag_of(after.lab)}
        elif change.action == "update" and isinstance(before, Instance):
            found[change.target] = _tags_of(before) ^ _tags_of(after)
    return found


def words(names: Iterable[str], seen: Rules) -> str:
    """That tags may not be set, and by which option of the datacenter."""
    why = [f"user-tag-access is {seen.mode}"] if seen.mode != FREE else []
    why += ["they are in registered-tags"] if set(names) & set(seen.registered) else []
    return f"the datacenter lets nobody without Sys.Modify on / set tags {', '.join(names)} ({' and '.join(why)})"


def hint(names: Iterable[str], seen: Rules, grant: str) -> str:
    """What to do about it; ``grant``: how the right is given instead."""
    wanted = set(names)
    commands = []
    if seen.mode != FREE:
        mode = BY_LIST if seen.mode == NONE else seen.mode
        listed = ";".join(sorted({*seen.listed, *wanted}))
        commands.append(f"pvesh set /cluster/options --user-tag-access 'user-allow={mode},user-allow-list={listed}'")
    if wanted & set(seen.registered):
        left = ";".join(tag for tag in seen.registered if tag not in wanted)
        change = f"--registered-tags '{left}'" if left else "--delete registered-tags"
        commands.append(f"pvesh set /cluster/options {change}")
    return f"Let them be set, on the node: {'; '.join(commands)}. Or give Sys.Modify. {grant}"


def _tags_of(instance: Instance) -> set[str]:
    return {marks.TAG, marks.tag_of(instance.lab), *instance.settings.get("tags", ())}


def _parts(written: Any) -> Mapping[str, Any]:
    """A property string, which the API may have taken apart already."""
    if isinstance(written, Mapping):
        return written
    return dict(part.split("=", 1) for part in str(written).split(",") if "=" in part)


def _names(written: Any) -> tuple[str, ...]:
    if isinstance(written, str):
        return tuple(name for name in _SEPARATOR.split(written) if name)
    return tuple(str(name) for name in written)
