"""What forgetting a node would do, and what it did: as text and for machine-readable output."""

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
    silent = [sign for sign in forgetting.signs if not sign.is_alive]
    lines += [f"  silent  {sign.address} ({sign.how}): {safe_line(sign.said)}" for sign in silent]
    for fate in forgetting.guests:
        lines += _guest_lines(fate, style)
    lines += _key_lines(forgetting)
    if not runbooks:
        lines.append(NOTHING)
    for runbook in runbooks:
        lines += ["", *_runbook_lines(runbook, target.name, style)]
    return "\n".join([*lines, *_references(forgetting.leftovers.references)])


def _key_lines(forgetting: Forgetting) -> list[str]:
    """The keys of the node that others still trust."""
    node = safe_line(forgetting.target.name)
    lines = [f"  key     {safe_line(key)} (root@{node}) opens every node" for key in forgetting.leftovers.keys]
    lines += [f"  host key of {safe_line(name)}" for name in forgetting.leftovers.host_names]
    return lines


def _runbook_lines(runbook: Runbook, node: str, style: Style) -> list[str]:
    """A runbook's title and its steps; "~" stands before each that changes something."""
    lines = [style.paint(f"{runbook.id}: {runbook.title}", "bold")]
    for step in runbook.steps:
        mark = "~" if step.changes else " "
        lines.append(f"  {mark} {step.id}: {_named(step.does, node)}")
    return lines


def done_text(forgetting: Forgetting, references: Sequence[Reference], folders: Sequence[str]) -> str:
    """What is so now, what a person has still to decide, and where the records lie."""
    lines = [f"{forgetting.target.name} is forgotten."]
    if forgetting.target.kind is Kind.MEMBER:
        lines.append(NEVER_BOOT)
    lines += [f"Record: {folder}" for folder in folders]
    return "\n".join([*lines, *_references(references)])


def forgetting_content(forgetting: Forgetting) -> dict[str, Any]:
    """What forgetting a node would do, for machine-readable output."""
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


def _named(does: str, node: str) -> str:
    """A step's sentence with the node's name where the page says NODE."""
    return re.sub(r"\bNODE\b", lambda _match: safe_line(node), " ".join(does.split()))


def _guest_lines(fate: GuestFate, style: Style) -> list[str]:
    guest = fate.guest
    name = f" {safe_line(guest.name)}" if guest.name else ""
    lines = [f"  guest   {guest.vmid}{name} ({guest.kind}): its configuration is {safe_line(_becomes(fate))}"]
    for volume, disk_fate in fate.disks:
        lines.append(indent(f"{safe_line(volume)}: {style.paint(disk_fate.value, 'yellow')}", 10))
    return lines


def _becomes(fate: GuestFate) -> str:
    if fate.to:
        return f"moved to {fate.to}"
    return "archived" if fate.is_archived else "not decided about yet"


def _references(references: Sequence[Reference]) -> list[str]:
    """What names the node and is not ours to decide about, each with what to type."""
    if not references:
        return []
    lines = ["", "Left for you to decide, each with what to type:"]
    for reference in references:
        place = f"{safe_line(reference.file)}, {safe_line(reference.section)}"
        lines += [f"  {place}: {safe_line(reference.line)}", f"      {safe_line(reference.command)}"]
    return lines
