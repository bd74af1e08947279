"""What forgetting a node would do, and what it did: text, and the same for programs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from provisioner.catalog.runbooks import Runbook
from provisioner.repair.forgetting import Forgetting, GuestFate, Kind
from provisioner.repair.leftovers import Reference
from provisioner.report.style import PLAIN, Style, indent, safe_line

KINDS = {
    Kind.MEMBER: "a member that is to leave the cluster",
    Kind.GHOST: "no member; its directory is still in /etc/pve/nodes",
    Kind.REMOVED: "neither a member nor a directory in /etc/pve/nodes",
}
NOTHING = "Nothing to do: nothing of the node is left that this program removes."
NEVER_BOOT = (
    "Never boot the machine again in this network as it is: it would run on its own with old guests. "
    "Install it anew, or wipe its disks."
)


def plan_text(forgetting: Forgetting, runbooks: Sequence[Runbook], style: Style = PLAIN) -> str:
    """What was seen of the node, what becomes of its guests, and every step that would be done."""
    target = forgetting.target
    lines = [style.paint(f"{safe_line(target.name)}: {KINDS[target.kind]}", "bold"), f"Done from {forgetting.lead}."]
    lines += [
        f"  silent  {one.address} ({one.how}): {safe_line(one.said)}" for one in forgetting.signs if not one.is_alive
    ]
    lines += [line for one in forgetting.guests for line in _guest_lines(one, style)]
    lines += [
        f"  key     {safe_line(key)} (root@{safe_line(target.name)}) opens every node"
        for key in forgetting.leftovers.keys
    ]
    lines += [f"  host key of {safe_line(name)}" for name in forgetting.leftovers.host_names]
    if not runbooks:
        lines.append(NOTHING)
    for book in runbooks:
        lines += ["", style.paint(f"{book.id}: {book.title}", "bold")]
        lines += [f"  {'~' if step.changes else ' '} {step.id}: {_said(step.does, target.name)}" for step in book.steps]
    return "\n".join([*lines, *_references(forgetting.leftovers.references)])


def done_text(forgetting: Forgetting, references: Sequence[Reference], folders: Sequence[str]) -> str:
    """What is so now, what a person has still to decide, and where the records lie."""
    lines = [f"{forgetting.target.name} is forgotten."]
    lines += [NEVER_BOOT] if forgetting.target.kind is Kind.MEMBER else []
    lines += [f"Record: {folder}" for folder in folders]
    return "\n".join([*lines, *_references(references)])


def forgetting_content(forgetting: Forgetting) -> dict[str, Any]:
    """The same for programs."""
    return {
        "node": forgetting.target.name,
        "kind": forgetting.target.kind,
        "lead": forgetting.lead,
        "runbooks": forgetting.runbooks,
        "objections": forgetting.objections,
        "signs": forgetting.signs,
        "guests": forgetting.guests,
        "leftovers": forgetting.leftovers,
        "storages": forgetting.storages,
    }


def _said(does: str, node: str) -> str:
    """A step's sentence with the node's name where the page says NODE."""
    return re.sub(r"\bNODE\b", lambda _match: safe_line(node), " ".join(does.split()))


def _guest_lines(fate: GuestFate, style: Style) -> list[str]:
    guest = fate.guest
    to = f"moved to {fate.to}" if fate.to else "archived" if fate.is_archived else "not decided about yet"
    name = f" {safe_line(guest.name)}" if guest.name else ""
    head = f"  guest   {guest.vmid}{name} ({guest.kind}): its configuration is {safe_line(to)}"
    disks = [f"{safe_line(volume)}: {style.paint(what.value, 'yellow')}" for volume, what in fate.disks]
    return [head, *(indent(one, 10) for one in disks)]


def _references(references: Sequence[Reference]) -> list[str]:
    """What names the node and is not ours to decide about, each with what to type."""
    if not references:
        return []
    named = [
        f"  {safe_line(one.file)}, {safe_line(one.section)}: {safe_line(one.line)}\n      {safe_line(one.command)}"
        for one in references
    ]
    return ["", "Left for you to decide, each with what to type:", *named]
