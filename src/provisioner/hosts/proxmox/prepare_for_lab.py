"""Prepare a node for the lab of a file: a way in, and no more rights than the lab needs there."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from provisioner.hosts.proxmox import ProxmoxProvider, ssh
from provisioner.hosts.proxmox.access import ROOT, Access
from provisioner.hosts.proxmox.prepare import TAKEN_STORAGES, Need, NodeToPrepare, grant_commands, zone_in_shell
from provisioner.lab import images_by_host
from provisioner.lab.opening import Lab
from provisioner.labfile.hosts import ProxmoxHost
from provisioner.labfile.starter import keep_secret
from provisioner.values.errors import PreflightError, ProvisionError
from provisioner.values.facts import of_kind
from provisioner.values.host_facts import ApiRights, HostAnswers
from provisioner.values.state import Secret

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Way:
    """A host of the file, its page, and how its node is reached.

    ``giver``: what gives the token's secret, where ``secrets.env`` does not; ``said``: why it gave none.
    """

    lab: Lab
    name: str
    page: ProxmoxHost
    access: Access
    giver: str = ""
    said: str = ""


def commands(way: Way) -> list[str]:
    """What a person types on the node as root to have the same, but for the templates."""
    _require_login(way)
    need = _need(way, TAKEN_STORAGES)
    return grant_commands(way.access, replace(need, zones={name: zone_in_shell(name) for name in need.bridges}))


def prepare_node(way: Way, open_provider: Callable[..., ProxmoxProvider], say: Say) -> int:
    """Make what the node lacks, and prove that it suffices; how much was made.

    The token's secret goes into ``secrets.env`` beside the file and nowhere else.
    """
    _require_login(way)
    node = NodeToPrepare(way.access, ssh.Shell(way.access))
    say(f"ssh leads to node {node.name()}, whose host key is known here")
    lacks_token = _lacks_token(way, node)
    need = node.with_zones(_need(way, node.places()))
    node.require_storages(need)
    made = _fetch_authority(way, node, say)
    for step in node.lacking(need):
        node.make(step)
        say(f"made {step.what}")
        made += 1
    access = replace(way.access, token_secret=_new_token(way, node, say)) if lacks_token else way.access
    provider = open_provider(access=access)
    provider.check_available()
    made += _download(way, provider, say)
    _prove(way, provider)
    return made + lacks_token


def _need(way: Way, found: tuple[str, str]) -> Need:
    """The storages and bridges that the file's containers there use; ``found``: what stands for what is left out."""
    lab, page = way.lab, way.page
    containers = lab.resolved.containers.values()
    here = [container.written.block for container in containers if container.host == way.name]
    disks, templates = page.storage or found[0], page.templates or found[1]
    storages = {disks, templates}
    bridges = {page.bridge}
    if page.build is not None:
        bridges.add(page.build.network.bridge or page.bridge)
    for one in filter(None, here):
        storages |= {one.storage or disks, *(mount.storage or disks for mount in one.mounts)}
        bridges |= {one.network.bridge or page.bridge}
    return Need(frozenset(storages - {""} if "" not in (disks, templates) else ()), frozenset(bridges))


def _fetch_authority(way: Way, node: NodeToPrepare, say: Say) -> int:
    file = way.access.ca
    if file is None or file.exists():
        return 0
    partial = file.with_name(f".{file.name}-{os.getpid()}")
    try:
        partial.write_bytes(node.authority())
        partial.replace(file)
    except OSError as error:
        raise PreflightError(f"Unable to write {file}", details=error.strerror or str(error)) from error
    say(f"wrote the node's certificate authority into {file}")
    return 1


def _require_login(way: Way) -> None:
    """Raise ``PreflightError`` where a user would be made who could not log in: no password is made for one."""
    if way.page.token is None and way.page.user != ROOT:
        raise PreflightError(
            f"Unable to prepare host {way.name}: its page has no token for {way.page.user}",
            details="A user who is made here has no password; a token is what it logs in with.",
            resolution="Write on its page: token: { id: provision, secret: !secret NAME }",
        )


def _lacks_token(way: Way, node: NodeToPrepare) -> bool:
    """Whether the token has to be made; ``PreflightError`` where nobody here would know its secret."""
    token = way.page.token
    if token is None:
        return False
    secret, title = way.access.token_secret or token.secret, f"token {way.page.user}!{token.id}"
    once = "Proxmox tells the secret of a token once, when it is made."
    if not node.has_token():
        if way.giver:
            raise PreflightError(
                f"Unable to make {title}: the value of secret {secret.name} comes from {way.giver}",
                details=f"{once} It would be written into secrets.env.",
                resolution=f"Make the token by hand (see: provision host prepare {way.lab.loaded.path} {way.name} "
                f"--print) and put its secret there; or take {way.giver} away.",
            )
        return True
    if not secret.is_known:
        where = f"Put it where {way.giver} finds it" if way.giver else f"Write {secret.name}=SECRET into secrets.env"
        raise PreflightError(
            f"Unable to use {title}: it is there, and its secret is not known here",
            details="\n".join(filter(None, (once, way.said))),
            resolution=f"{where}; or, where nobody has it any more, remove the token "
            f"(pveum user token remove {way.page.user} {token.id}) and run this again.",
        )
    return False


def _new_token(way: Way, node: NodeToPrepare, say: Say) -> Secret:
    """The secret of the token that is made, and kept in ``secrets.env``."""
    token = way.page.token
    if token is None:
        raise TypeError(f"host {way.name} has no token")
    made = node.make_token()
    try:
        file = keep_secret(way.lab.loaded.path, token.secret.name, made)
    except ProvisionError:
        node.delete_token()  # nobody would ever know its secret
        raise
    say(f"made token {way.page.user}!{token.id}; its secret is {token.secret.name} in {file}")
    return Secret(token.secret.name, made)


def _download(way: Way, provider: ProxmoxProvider, say: Say) -> int:
    wanted = images_by_host(way.lab.resolved).get(way.name, frozenset())
    count = 0
    for image in sorted(wanted):
        if provider.ensure_template(image):
            say(f"downloaded the template of {image}")
            count += 1
    return count


def _prove(way: Way, provider: ProxmoxProvider) -> None:
    """Raise ``PreflightError`` where something is lacking all the same, or the node does not say."""
    facts = provider.examine((), way.lab.name)
    told = of_kind(facts, ApiRights)
    if not told:
        why = "\n".join(filter(None, (one.problem for one in of_kind(facts, HostAnswers))))
        raise PreflightError(
            f"Unable to prove that host {way.name} is prepared: it does not say what {way.page.user} may do",
            details=why,
            resolution="Run this again: what is there stays as it is.",
        )
    lacking: list[str] = []
    for rights in told:
        lacking += rights.lacking
    if lacking:
        raise PreflightError(
            f"Unable to prepare host {way.name}: {way.page.user} lacks rights there",
            details="\n".join(lacking),
            resolution=f"A grant on a path replaces what comes down to it: pveum user permissions {way.page.user}",
        )
