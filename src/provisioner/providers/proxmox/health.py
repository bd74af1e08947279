"""Facts about a Proxmox node for ``doctor``: what it is, what it has, what we may do there. Changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from provisioner.errors import PreflightError, ProviderError, UnavailableError
from provisioner.providers.proxmox import failures, marks, objections, rights, tags
from provisioner.providers.proxmox.access import Access
from provisioner.providers.proxmox.node import Node, look, permitted
from provisioner.providers.proxmox.objections import Grounds
from provisioner.providers.proxmox.review import images_of, place_of, template_storages
from provisioner.providers.proxmox.rights import Place, Right
from provisioner.providers.proxmox.ssh_failures import no_ssh
from provisioner.providers.proxmox.tags import Rules
from provisioner.providers.proxmox.templates import HINT
from provisioner.state import Fact

if TYPE_CHECKING:
    from provisioner.providers.proxmox.client import Client
    from provisioner.providers.proxmox.shell import Shell

DAY_S = 86_400
OWN_CERTIFICATE, CERTIFICATE = "pveproxy-ssl.pem", "pve-ssl.pem"
"""What a node shows to its clients: one that somebody put there, else Proxmox' own."""
_ON_NODE = "id -u; command -v pct || echo; readlink /etc/pve/local || echo"
_SSH_PATIENCE_S = 30.0
_DISKS_HINT = "Let a storage take them: pvesm set NAME --content rootdir,images"


def examine(
    host: str, client: Client, access: Access, shell: Shell | None, images: Collection[str]
) -> tuple[Fact, ...]:
    """What was seen; a host that does not answer, or does not let us in, is a fact, too."""
    try:
        with failures.reachable(f"Unable to use Proxmox VE at {access.url}"):
            node = look(client)
            seen = [*_members(host, node), *_seen(client, access, node, images)]
    except UnavailableError as error:
        return (Fact(host, "answers", _problem(error)),)
    every = [("answers", {"problem": ""}), *seen, ("ssh", _ssh(access, shell, node.name, images))]
    return tuple(Fact(host, name, value) for name, value in every)


def _members(host: str, node: Node) -> Iterator[tuple[str, Any]]:
    """The other nodes of its cluster, where there are some that it does not see."""
    off = sorted(name for name, is_there in node.members.items() if not is_there and name != node.name)
    if off and node.is_quorate is not None:
        yield "members", {"off": off, "is_quorate": node.is_quorate, "check": f"provision cluster check {host}"}


def _seen(client: Client, access: Access, node: Node, images: Collection[str]) -> list[tuple[str, Any]]:
    """What the API says, by the names of facts."""
    version = {"program": "Proxmox VE", "version": str(client.get("version")["version"])}
    facts: list[tuple[str, Any]] = [("version", version), ("node", _state(node))]
    if not node.is_online:
        return facts
    place = place_of(access, node)
    calls: list[Callable[[], Any]] = [
        lambda: images_of(client, node, template_storages(access, node)) if images else {},
        partial(_lacking, client, place),
        partial(permitted, partial(_ahead_s, client, node.name), None),
        partial(_certificate, client, node.name),
        partial(tags.rules, client),
    ]
    known, lacking, clock, certificate, tag_rules = client.many(calls)
    grounds = Grounds(access, node, place, lacking=lacking)
    facts += [("storage", _storage_for_disks(grounds)), ("storage", _storage_for_templates(grounds))]
    facts += [("image", _image(image, known)) for image in sorted(images)]
    facts += [("bridge", _bridge(grounds)), ("rights", _rights(client, lacking))]
    facts.append(("tags", _tags(tag_rules, access)))
    if clock is not None:
        facts.append(("clock", clock))
    if certificate:
        facts.append(("certificate", certificate))
    return facts


def _state(node: Node) -> dict[str, str]:
    """The node's name, and the first reason why nothing can be changed there."""
    for objection in objections.of_cluster(node):
        return {"name": node.name, "problem": objection.message, "hint": objection.hint}
    return {"name": node.name, "problem": "", "hint": ""}


def _storage_for_disks(grounds: Grounds) -> dict[str, Any]:
    name = grounds.place.storage
    problem = objections.unfit(name, grounds)
    return {"name": name, "use": "disks", **_room(grounds, name), "problem": problem, "hint": _DISKS_HINT}


def _storage_for_templates(grounds: Grounds) -> dict[str, Any]:
    name = grounds.place.templates
    fact = {"name": name, "use": "templates", **_room(grounds, name)}
    if name:
        return {**fact, "problem": "", "hint": _DISKS_HINT}
    wanted = grounds.access.templates
    problem = f"storage {wanted} takes no templates" if wanted else "no storage takes templates"
    return {**fact, "problem": problem, "hint": objections.TEMPLATES_HINT}


def _room(grounds: Grounds, name: str) -> dict[str, int]:
    storage = grounds.node.storages.get(name)
    if storage is None:
        return {"free": 0, "total": 0}
    return {"free": storage.available, "total": storage.total}


def _image(image: str, known: Mapping[str, bool]) -> dict[str, str]:
    there = sorted(name for name, is_there in known.items() if is_there)
    names = ", ".join(there) or "none"
    state = "missing"
    if image in known:
        state = "there" if known[image] else "downloadable"
    return {"name": image, "state": state, "hint": f"There: {names}. {HINT.format(image=image)}"}


def _bridge(grounds: Grounds) -> dict[str, str]:
    bridge, node = grounds.place.bridge, grounds.node
    problem = "" if bridge in node.bridges else objections.no_bridge(bridge, grounds)
    return {"name": bridge, "problem": problem, "hint": objections.bridges_hint(node)}


def _lacking(client: Client, place: Place) -> tuple[Right, ...]:
    wanted = [*rights.of_every_plan(), *rights.of_whole_life(place)]
    return rights.missing(client, wanted, str(client.get("cluster", "nextid")))


def _rights(client: Client, missing: tuple[Right, ...]) -> dict[str, Any]:
    hints = dict.fromkeys(objection.hint for objection in objections.of_rights(missing, client.access))
    lacking = [f"{names} on {path}" for path, names in rights.by_path(missing).items()]
    return {"holder": rights.holder(client.access), "lacking": lacking, "hint": "\n".join(hints)}


def _tags(seen: Rules, access: Access) -> dict[str, str]:
    """Whether our tags may be set; a lab's own one has its name in it, and stands here for those of all labs."""
    refused = seen.refused([marks.TAG])
    allows_one_of_a_lab = any(tag.startswith(f"{marks.TAG}-") for tag in seen.allowed)
    if seen.mode != tags.FREE and not allows_one_of_a_lab:
        refused.append(f"{marks.TAG}-LAB")
    if not refused:
        return {"problem": ""}
    why = objections.refused_tags(refused, seen, access)
    return {"problem": why.message, "hint": why.hint}


def _ahead_s(client: Client, node: str) -> float:
    """For how long the node's clock is surely ahead of ours: it gives whole seconds, some time during the call."""
    before = time.time()
    on_node = float(client.get("nodes", node, "time")["time"])
    after = time.time()
    return max(on_node - after, 0.0) or min(on_node + 1 - before, 0.0)


def _certificate(client: Client, node: str) -> dict[str, Any] | None:
    """The certificate that the node shows: one that somebody put there, else its own."""
    certificates = {entry["filename"]: entry for entry in client.get("nodes", node, "certificates", "info")}
    shown = certificates.get(OWN_CERTIFICATE) or certificates.get(CERTIFICATE)
    if shown is None or "notafter" not in shown:
        return None
    days_left = (int(shown["notafter"]) - time.time()) / DAY_S
    return {"file": shown["filename"], "days": days_left}


def _ssh(access: Access, shell: Shell | None, node: str, images: Collection[str]) -> dict[str, str]:
    if shell is None:
        needed = _problem(no_ssh("not given")) if images else {"problem": ""}
        return {"to": "", **needed}
    try:
        done = shell.run(["sh", "-c", _ON_NODE], timeout_s=_SSH_PATIENCE_S)
    except (PreflightError, ProviderError) as error:
        return {"to": str(access.ssh), **_problem(error)}
    return {"to": str(access.ssh), **_behind(done.stdout.decode(errors="replace").splitlines(), node)}


def _behind(lines: list[str], node: str) -> dict[str, str]:
    """What is wrong with the machine that ssh leads to."""
    user, pct, place = (*lines, "", "", "")[:3]
    name = place.strip().rpartition("/")[2]
    if user.strip() != "0":
        return {"problem": "its user is not root, and only root may use pct", "hint": "Write ssh: root@ADDRESS."}
    if not pct.strip():
        return {"problem": "there is no pct: it is no Proxmox VE node", "hint": f"Write the address of node {node}."}
    if name not in ("", node):
        return {"problem": f"it leads to node {name}, not to {node}", "hint": f"Write the address of node {node}."}
    return {"problem": ""}


def _problem(error: PreflightError | ProviderError) -> dict[str, str]:
    return {"problem": error.message, "details": error.details, "hint": error.resolution}
