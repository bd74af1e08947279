"""Facts about a Proxmox node: what it is, what it has, and what we may do there. Changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from provisioner.hosts.proxmox import failures, marks, preconditions, rights
from provisioner.hosts.proxmox.access import Access
from provisioner.hosts.proxmox.preconditions import Grounds, Node
from provisioner.hosts.proxmox.preflight import (
    default_place,
    hints_text,
    images_offered,
    look_at_node,
    template_storages,
    unless_forbidden,
)
from provisioner.hosts.proxmox.rights import Place, Right
from provisioner.hosts.proxmox.ssh import Shell, no_ssh_error
from provisioner.hosts.proxmox.templates import HINT
from provisioner.values.errors import PreflightError, ProviderError, UnavailableError
from provisioner.values.host_facts import (
    ApiRights,
    BridgeState,
    CertificateAge,
    ClockSkew,
    ClusterMembers,
    HostAnswers,
    HostFact,
    HostVersion,
    ImageState,
    NodeState,
    SshState,
    StorageRoom,
    TagRules,
)

if TYPE_CHECKING:
    from provisioner.hosts.proxmox.api import Client
    from provisioner.hosts.proxmox.ssh import Shell

DAY_S = 86_400
OWN_CERTIFICATE, CERTIFICATE = "pveproxy-ssl.pem", "pve-ssl.pem"
"""What a node shows to its clients: one that somebody put there, else Proxmox' own."""
UPGRADE = "Upgrade it: apt update && apt full-upgrade; from 7: https://pve.proxmox.com/wiki/Upgrade_from_7_to_8"
_ON_NODE = "id -u; command -v pct || echo; readlink /etc/pve/local || echo"
_SSH_PATIENCE_S = 30.0
_DISKS_HINT = "Let a storage take them: pvesm set NAME --content rootdir,images"


def examine(host: str, client: Client, shell: Shell | None, images: Collection[str], lab: str) -> tuple[HostFact, ...]:
    """What was seen; a host that does not answer, or does not let us in, is a fact, too."""
    try:
        with failures.reachable(f"Unable to use Proxmox VE at {client.access.url}"):
            node = look_at_node(client)
            seen = [*_members(host, node), *_seen(host, client, node, images, lab)]
    except UnavailableError as error:
        return (HostAnswers(host, error.message, error.resolution, error.details),)
    return (HostAnswers(host), *seen, _ssh(host, client.access, shell, node.name, images))


def _members(host: str, node: Node) -> Iterator[ClusterMembers]:
    """The other nodes of its cluster, where there are some that it does not see."""
    off = sorted(name for name, is_there in node.members.items() if not is_there and name != node.name)
    if off and node.is_quorate is not None:
        yield ClusterMembers(host, tuple(off), node.is_quorate, f"provision cluster check {host}")


def _seen(host: str, client: Client, node: Node, images: Collection[str], lab: str) -> list[HostFact]:
    """What the API says."""
    access = client.access
    version = str(client.get("version")["version"])
    release = HostVersion(host, "Proxmox VE", version, rights.OLDEST_WITH_DEVICES, UPGRADE)
    facts: list[HostFact] = [release, _state(host, node)]
    if not node.is_online:
        return facts
    place = default_place(access, node)
    calls: list[Callable[[], Any]] = [
        lambda: images_offered(client, node, template_storages(access, node)) if images else {},
        partial(_lacking, client, place),
        partial(unless_forbidden, partial(_ahead_s, client, node.name), None),
        partial(_certificate, host, client, node.name),
        partial(_tags, host, client, lab),
    ]
    known, lacking, ahead_s, certificate, tag_rules = client.many(calls)
    lacking = preconditions.without_absent(lacking, node, sees_all=rights.sees_all_storages(lacking))
    grounds = Grounds(access, node, place, lacking=lacking)
    facts += [_storage_for_disks(host, grounds), _storage_for_templates(host, grounds)]
    facts += [_image(host, image, known) for image in sorted(images)]
    facts += [_bridge(host, grounds), _rights(host, client, lacking), tag_rules]
    if ahead_s is not None:
        facts.append(ClockSkew(host, ahead_s))
    if certificate is not None:
        facts.append(certificate)
    return facts


def _state(host: str, node: Node) -> NodeState:
    """The node's name, and the first reason why nothing can be changed there."""
    for objection in preconditions.cluster_objections(node):
        return NodeState(host, node.name, objection.message, objection.hint)
    return NodeState(host, node.name)


def _storage_for_disks(host: str, grounds: Grounds) -> StorageRoom:
    name = grounds.place.storage
    free, total = _room(grounds, name)
    return StorageRoom(host, name, "disks", free, total, preconditions.storage_problem(name, grounds), _DISKS_HINT)


def _storage_for_templates(host: str, grounds: Grounds) -> StorageRoom:
    name = grounds.place.templates
    free, total = _room(grounds, name)
    if name:
        return StorageRoom(host, name, "templates", free, total, hint=_DISKS_HINT)
    wanted = grounds.access.templates
    problem = f"storage {wanted} takes no templates" if wanted else "no storage takes templates"
    return StorageRoom(host, name, "templates", free, total, problem, preconditions.TEMPLATES_HINT)


def _room(grounds: Grounds, name: str) -> tuple[int, int]:
    """The bytes of a storage that are free, and all of them."""
    storage = grounds.node.storages.get(name)
    if storage is None:
        return 0, 0
    return storage.available, storage.total


def _image(host: str, image: str, known: Mapping[str, bool]) -> ImageState:
    there = sorted(name for name, is_there in known.items() if is_there)
    names = ", ".join(there) or "none"
    hint = f"There: {names}. {HINT.format(image=image)}"
    if image not in known:
        return ImageState(host, image, "missing", hint)
    return ImageState(host, image, "there" if known[image] else "downloadable", hint)


def _bridge(host: str, grounds: Grounds) -> BridgeState:
    bridge, node = grounds.place.bridge, grounds.node
    problem = "" if bridge in node.bridges else preconditions.bridge_problem(bridge, grounds)
    return BridgeState(host, bridge, problem, preconditions.bridges_hint(node))


def _lacking(client: Client, place: Place) -> tuple[Right, ...]:
    wanted = [*rights.of_every_plan(), *rights.of_whole_life(place)]
    return rights.missing(client, wanted, str(client.get("cluster", "nextid")))


def _rights(host: str, client: Client, missing: tuple[Right, ...]) -> ApiRights:
    hints = hints_text(preconditions.rights_objections(missing, client.access))
    lacking = tuple(f"{names} on {path}" for path, names in rights.by_path(missing).items())
    return ApiRights(host, rights.holder(client.access), lacking, hints)


def _tags(host: str, client: Client, lab: str) -> TagRules:
    """Whether the tags may be set that mark the lab's containers."""
    seen = rights.tag_access(client)
    refused = seen.refused([marks.TAG, marks.tag_of(lab)])
    if not refused:
        return TagRules(host)
    why = preconditions.refused_tags(refused, seen, client.access)
    return TagRules(host, why.message, why.hint)


def _ahead_s(client: Client, node: str) -> float:
    """For how long the node's clock is surely ahead of ours: it gives whole seconds, some time during the call."""
    before = time.time()
    on_node = float(client.get("nodes", node, "time")["time"])
    after = time.time()
    return max(on_node - after, 0.0) or min(on_node + 1 - before, 0.0)


def _certificate(host: str, client: Client, node: str) -> CertificateAge | None:
    """The certificate that the node shows: one that somebody put there, else its own."""
    certificates = {entry["filename"]: entry for entry in client.get("nodes", node, "certificates", "info")}
    shown = certificates.get(OWN_CERTIFICATE) or certificates.get(CERTIFICATE)
    if shown is None or "notafter" not in shown:
        return None
    days_left = (int(shown["notafter"]) - time.time()) / DAY_S
    return CertificateAge(host, shown["filename"], days_left)


def _ssh(host: str, access: Access, shell: Shell | None, node: str, images: Collection[str]) -> SshState:
    if shell is None:
        return _ssh_failed(host, "", no_ssh_error("not given")) if images else SshState(host, "")
    destination = str(access.ssh)
    try:
        done = shell.run(["sh", "-c", _ON_NODE], timeout_s=_SSH_PATIENCE_S)
    except (PreflightError, ProviderError) as error:
        return _ssh_failed(host, destination, error)
    problem, hint = _behind(done.stdout.decode(errors="replace").splitlines(), node)
    return SshState(host, destination, problem, hint)


def _ssh_failed(host: str, destination: str, error: PreflightError | ProviderError) -> SshState:
    return SshState(host, destination, error.message, error.resolution, error.details)


def _behind(lines: list[str], node: str) -> tuple[str, str]:
    """What is wrong with the machine that ssh leads to, and what to do; both are empty when all is well."""
    user, pct, place = (*lines, "", "", "")[:3]
    name = place.strip().rpartition("/")[2]
    if user.strip() != "0":
        return "its user is not root, and only root may use pct", "Write ssh: root@ADDRESS."
    if not pct.strip():
        return "there is no pct: it is no Proxmox VE node", f"Write the address of node {node}."
    if name not in ("", node):
        return f"it leads to node {name}, not to {node}", f"Write the address of node {node}."
    return "", ""
