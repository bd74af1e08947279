"""Tags that the datacenter lets nobody set but those with ``Sys.Modify`` on ``/``: ours may be among them.

Who has that right, or is root@pam in person, sets any tag. For everybody else ``user-tag-access`` says which tags there
are (``free``: any), and no tag of ``registered-tags`` is theirs to set.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from provisioner.providers.proxmox import marks, rights
from provisioner.providers.proxmox.rights import Right
from provisioner.values.plan import Change
from provisioner.values.state import Instance

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
        refused = set(tags) & set(self.registered)
        if self.mode != FREE:
            refused |= set(tags) - self.allowed
        return sorted(refused)


def rules(client: Client) -> Rules:
    """What holds for whoever calls; nothing is forbidden to those who may set any tag."""
    if rights.may_all(client.access):
        return Rules()
    options = client.get("cluster", "options")
    access = _parts(options.get("user-tag-access", {}))
    written = Rules(
        mode=str(access.get("user-allow", FREE)),
        listed=_names(access.get("user-allow-list", ())),
        registered=_names(options.get("registered-tags", ())),
        allowed=frozenset(_names(options.get("allowed-tags", ()))),
    )
    forbids_nothing = written.mode == FREE and not written.registered
    if forbids_nothing or rights.missing(client, [_MODIFY]):
        return written
    return Rules()


def set_by(changes: Iterable[Change]) -> dict[str, set[str]]:
    """The tags that a plan adds or takes away, by container."""
    tags: dict[str, set[str]] = {}
    for change in changes:
        before, after = change.before, change.after
        if not isinstance(after, Instance):
            continue
        if change.action in ("create", "replace"):
            tags[change.target] = _tags_of(after)
        elif change.action == "adopt":
            tags[change.target] = {marks.TAG, marks.tag_of(after.lab)}
        elif change.action == "update" and isinstance(before, Instance):
            tags[change.target] = _tags_of(before) ^ _tags_of(after)
    return tags


def words(names: Sequence[str], seen: Rules) -> str:
    """That tags may not be set, and by which option of the datacenter."""
    reasons = []
    if seen.mode != FREE:
        reasons.append(f"user-tag-access is {seen.mode}")
    if not set(names).isdisjoint(seen.registered):
        reasons.append("they are in registered-tags")
    why = " and ".join(reasons)
    return f"the datacenter lets nobody without Sys.Modify on / set tags {', '.join(names)} ({why})"


def hint(names: Sequence[str], seen: Rules, grant: str) -> str:
    """What to do about it; ``grant``: how the right is given instead."""
    wanted = set(names)
    commands = []
    if seen.mode != FREE:
        mode = BY_LIST if seen.mode == NONE else seen.mode
        listed = ";".join(sorted({*seen.listed, *wanted}))
        commands.append(f"pvesh set /cluster/options --user-tag-access 'user-allow={mode},user-allow-list={listed}'")
    if not wanted.isdisjoint(seen.registered):
        commands.append(f"pvesh set /cluster/options {_unregister(wanted, seen.registered)}")
    return f"Let them be set, on the node: {'; '.join(commands)}. Or give Sys.Modify. {grant}"


def _unregister(names: set[str], registered: Sequence[str]) -> str:
    """The option of ``pvesh`` that takes tags out of registered-tags."""
    left = ";".join(tag for tag in registered if tag not in names)
    return f"--registered-tags '{left}'" if left else "--delete registered-tags"


def _tags_of(instance: Instance) -> set[str]:
    return {marks.TAG, marks.tag_of(instance.lab), *instance.settings.get("tags", ())}


def _parts(written: Any) -> Mapping[str, Any]:
    """A property string, which the API may have taken apart already."""
    if isinstance(written, Mapping):
        return written
    values: dict[str, str] = {}
    for part in str(written).split(","):
        name, equals, value = part.partition("=")
        if equals:
            values[name] = value
    return values


def _names(written: Any) -> tuple[str, ...]:
    if isinstance(written, str):
        return tuple(filter(None, _SEPARATOR.split(written)))
    return tuple(map(str, written))
