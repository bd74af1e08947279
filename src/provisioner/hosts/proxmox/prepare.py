"""Prepare a node for a user and its token that may do no more than is needed, and containers for Ansible over ssh.

``pvesh`` on the node reads and makes roles, the user, grants and the token as root; it takes what the API does.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from provisioner.hosts.proxmox import execute, rights
from provisioner.hosts.proxmox.access import ROLE, ROLE_PRIVILEGES, ROOT, Access, Direct
from provisioner.hosts.proxmox.guest import address_in
from provisioner.hosts.proxmox.host import CAN_SNAPSHOT, DISKS, ProxmoxHost
from provisioner.hosts.proxmox.ssh import CONNECT_TIMEOUT_S, Shell, ssh_environment, ssh_failure
from provisioner.hosts.proxmox.templates import CONTENT
from provisioner.values.errors import PreflightError, ProviderError
from provisioner.values.plain_data import Foreign
from provisioner.values.regular_files import content_of
from provisioner.values.state import Status

SEES = "ProvisionerSees"
ROLES: Mapping[str, frozenset[str]] = {
    ROLE: ROLE_PRIVILEGES,
    SEES: frozenset({"Datastore.Audit", "Sys.Audit"}),
}
COMMENT = "provision up"


@dataclass(frozen=True, slots=True)
class Need:
    """Where we work on a node: the storages and bridges that containers of the file use; the zone of each vnet."""

    storages: frozenset[str]
    bridges: frozenset[str]
    zones: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def grants(self) -> tuple[tuple[str, str], ...]:
        """Paths and the roles that we need on them."""
        storages = [f"/storage/{name}" for name in sorted(self.storages)] or ["/storage"]
        bridges = [f"/sdn/zones/{self.zones.get(name, rights.NO_ZONE)}/{name}" for name in sorted(self.bridges)]
        return (("/", SEES), *((path, ROLE) for path in ("/vms", "/pool", *storages, *bridges)))


@dataclass(frozen=True, slots=True)
class Step:
    """Something that the node lacks: in words, as a command for a person there, and as a call of ``pvesh``."""

    what: str
    command: str
    call: tuple[str, ...]


_TAKEN = (
    "$(pvesm status --enabled 1 --content {content} | awk '$3 == \"active\" {{ print ({last}), $1 }}' | LC_ALL=C sort "
    "| head -n 1 | cut -d ' ' -f 2)"
)
"""For a shell on the node: the first storage that takes such content, those last of which awk says 1 of ``last``."""
TAKEN_STORAGES = (
    _TAKEN.format(content=DISKS, last=f"$2 !~ /^({'|'.join(sorted(CAN_SNAPSHOT))})$/"),
    _TAKEN.format(content=CONTENT, last='$1 != "local"'),
)
"""The storages that ``places`` gives for disks and templates, as a shell on the node finds them."""
VNETS = "/etc/pve/sdn/vnets.cfg"
_ZONE = (
    f'$(cat {VNETS} 2>/dev/null | awk \'$1 == "vnet:" {{{{ vnet = $2 }}}} '
    '$1 == "zone" && vnet == "{vnet}" {{ zone = $2 }} END {{ print zone ? zone : "{none}" }}\')'
)


def zone_in_shell(bridge: str) -> str:
    """The zone of a bridge, as a shell on the node finds it; plain bridges (``vmbr0``) need no question."""
    if re.fullmatch(r"vmbr\d+", bridge):
        return rights.NO_ZONE
    return _ZONE.format(vnet=bridge, none=rights.NO_ZONE)


def grant_commands(access: Access, need: Need) -> list[str]:
    """All that a person would type on a node that knows nothing of us."""
    token = [f"pveum user token add {access.user} {access.token_id} --privsep 0"] if access.token_id else []
    return [step.command for step in _lacking_steps(access, need, {}, set(), set())] + token


class NodeToPrepare:
    """A node, asked over ssh as root."""

    def __init__(self, access: Access, shell: Shell) -> None:
        self._access = access
        self._shell = shell

    def lacking(self, need: Need) -> list[Step]:
        """What has to be made there, in its order; the token is not in it."""
        if self._access.user == ROOT:
            return []
        roles: dict[str, frozenset[str]] = {}
        for role in self.ask("/access/roles"):
            privileges = str(role.get("privs") or "")
            roles[role["roleid"]] = frozenset(privileges.split(","))
        users = {user["userid"] for user in self.ask("/access/users")}
        grants = self.ask("/access/acl")
        steps = list(_lacking_steps(self._access, need, roles, users, _held_by(self._access.user, grants)))
        if self._is_token_separate():
            steps += _grant_steps(need, _held_by(self._token_name, grants), self._token_name, "tokens")
        return steps

    def make(self, step: Step) -> None:
        """Make what one step names."""
        self._call(*step.call)

    def has_token(self) -> bool:
        """Whether the user has the token; one whose user is not there has none."""
        return self._found_token() is not None

    def make_token(self) -> str:
        """Make the token and return its secret, which the node shows only now."""
        made = self._call("create", self._token, "--privsep", "0", "--comment", COMMENT)
        return str(json.loads(made)["value"])

    def delete_token(self) -> None:
        """Delete the token."""
        self._call("delete", self._token)

    def places(self) -> tuple[str, str]:
        """The storages that are taken for disks and templates where the file names none; "" where there is none."""
        for_disks: list[tuple[bool, str]] = []
        for_templates: list[tuple[bool, str]] = []
        for storage in self.ask(f"/nodes/{self.name()}/storage", "--enabled", "1"):
            if not storage.get("active", 1):
                continue
            name = str(storage["storage"])
            if _takes(storage, DISKS):
                for_disks.append((storage["type"] not in CAN_SNAPSHOT, name))
            if _takes(storage, CONTENT):
                for_templates.append((name != "local", name))
        _, disks = min(for_disks, default=(False, ""))
        _, templates = min(for_templates, default=(False, ""))
        return disks, templates

    def with_zones(self, need: Need) -> Need:
        """The need with the zone of each bridge that is a vnet of Proxmox' own network (SDN)."""
        zones = {}
        for name in need.bridges:
            zone = zone_in_shell(name)
            if zone != rights.NO_ZONE:
                zone = self._shell.run(["sh", "-c", f"echo {zone}"]).stdout.decode(errors="replace").strip()
            zones[name] = zone
        return replace(need, zones=zones)

    def require_storages(self, need: Need) -> None:
        """Raise ``PreflightError`` for a storage that the node has not: a grant on one changes nothing."""
        there = {str(storage["storage"]) for storage in self.ask(f"/nodes/{self.name()}/storage")}
        absent = ", ".join(sorted(need.storages - there))
        if absent:
            raise PreflightError(
                f"Unable to prepare node {self.name()}: it has no storage {absent}",
                resolution=f"Name one of these on the page of the host or container: {', '.join(sorted(there))}",
            )

    def name(self) -> str:
        """The node's own name; ``PreflightError`` where ssh leads to something else, or not as root."""
        done = self._shell.run(["sh", "-c", "id -u; readlink /etc/pve/local || echo"])
        user, place = (*done.stdout.decode(errors="replace").split(), "", "")[:2]
        problem = ""
        if user != "0":
            problem = "Its user is not root."
        elif not place:
            problem = "It is no node of Proxmox VE."
        if problem:
            raise PreflightError(
                f"Unable to prepare the node behind {self._shell.destination}",
                details=problem,
                resolution="Write ssh: root@ADDRESS of the node itself.",
            )
        return place.rpartition("/")[2]

    def authority(self) -> bytes:
        """The certificate that the node's own was signed with."""
        done = self._shell.run(["cat", "/etc/pve/pve-root-ca.pem"])
        if done.returncode:
            what = f"Unable to read the certificate authority of {self._shell.destination}"
            raise ProviderError(what, details=Foreign.of_output(done.stderr))
        return done.stdout

    def ask(self, path: str, *options: str) -> Any:
        """What the API has there."""
        return json.loads(self._call("get", path, *options))

    def _call(self, verb: str, path: str, *options: str) -> bytes:
        done = self._shell.run(["pvesh", verb, path, *options, "--output-format", "json"])
        if done.returncode:
            what = f"Unable to {verb} {path} on {self._shell.destination}"
            raise ProviderError(what, details=Foreign.of_output(done.stderr))
        return done.stdout

    def _found_token(self) -> dict[str, Any] | None:
        users = {user["userid"] for user in self.ask("/access/users")}
        if self._access.user not in users:
            return None
        tokens = {token["tokenid"]: token for token in self.ask(f"{self._user}/token")}
        return tokens.get(self._access.token_id)

    def _is_token_separate(self) -> bool:
        """Whether the token may only what both it and its user were granted; Proxmox makes it so unless told not to."""
        token = self._found_token()
        return token is not None and bool(int(token.get("privsep", 1)))

    @property
    def _token_name(self) -> str:
        return f"{self._access.user}!{self._access.token_id}"

    @property
    def _user(self) -> str:
        return f"/access/users/{self._access.user}"

    @property
    def _token(self) -> str:
        return f"{self._user}/token/{self._access.token_id}"


def _lacking_steps(
    access: Access,
    need: Need,
    roles: Mapping[str, frozenset[str]],
    users: set[str],
    grants: set[tuple[str, str]],
) -> Iterator[Step]:
    if access.user == ROOT:
        return
    used = {role for _, role in need.grants}
    yield from (step for name in ROLES if name in used for step in _role_steps(name, roles.get(name)))
    if access.user not in users:
        command = f'pveum user add {access.user} --comment "{COMMENT}"'
        call = ("create", "/access/users", "--userid", access.user, "--comment", COMMENT)
        yield Step(f"user {access.user}", command, call)
    yield from _grant_steps(need, grants, access.user, "users")


def _held_by(holder: str, grants: Iterable[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """The paths and roles that a user or token was granted."""
    held = set()
    for grant in grants:
        if grant["ugid"] == holder:
            held.add((grant["path"], grant["roleid"]))
    return held


def _grant_steps(need: Need, held: set[tuple[str, str]], who: str, kind: str) -> Iterator[Step]:
    """The grants that somebody lacks; ``kind``: "users" or "tokens"."""
    for path, role in need.grants:
        if (path, role) not in held:
            quoted = f"'{who}'" if "!" in who else who  # a shell would take it for its history
            command = f"pveum acl modify {path} --{kind} {quoted} --roles {role}"
            grant = ("set", "/access/acl", "--path", path, f"--{kind}", who, "--roles", role)
            yield Step(f"role {role} for {who} on {path}", command, grant)


def _role_steps(name: str, held: frozenset[str] | None) -> Iterator[Step]:
    lacking = sorted(ROLES[name] - (held or frozenset()))
    if held is None:
        command = f'pveum role add {name} --privs "{" ".join(lacking)}"'
        yield Step(f"role {name}", command, ("create", "/access/roles", "--roleid", name, "--privs", ",".join(lacking)))
    elif lacking:
        command = f'pveum role modify {name} --append 1 --privs "{" ".join(lacking)}"'
        append = ("set", f"/access/roles/{name}", "--append", "1", "--privs", ",".join(lacking))
        yield Step(f"{', '.join(lacking)} in role {name}", command, append)


def _takes(storage: Mapping[str, Any], content: str) -> bool:
    return content in str(storage.get("content", "")).split(",")


# Ansible straight to a container, through its own sshd: by ansible-core's `ssh`. The node, which is trusted already,
# puts our key into the container and tells the keys of its sshd, each time anew: only what shows one of those is let
# know anything, and no key is ever taken up because somebody showed it.

JUMP = "jump"
SSH_USER = "root"
DIRECT_OPTIONS = (
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "GlobalKnownHostsFile=/dev/null",
    "CheckHostIP=no",
    "UpdateHostKeys=no",
    "IdentitiesOnly=yes",
    "PreferredAuthentications=publickey",
    f"ConnectTimeout={CONNECT_TIMEOUT_S}",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=3",
    "LogLevel=ERROR",
)
SHARED_OPTIONS = ("-oControlMaster=auto", "-oControlPersist=60s")
PREPARE_TIMEOUT_S = 60.0
_NO_SSHD = 3
_HOST_KEY = re.compile(r"((?:ssh|ecdsa|sk)-[\w@.-]+) ([A-Za-z0-9+/=]+)(?: |$)")
_PREPARE_SCRIPT = """
command -v sshd >/dev/null || exit 3
umask 077
mkdir -p /root/.ssh || exit 1
file=/root/.ssh/authorized_keys
touch "$file" || exit 1
sed 's/^ *#.*//' "$file" | grep -qF -e "$1" || {
  [ -z "$(tail -c 1 "$file")" ] || echo
  printf '%s\\n' "$2"
} >>"$file" || exit 1
cat /etc/ssh/ssh_host_*_key.pub
"""


@dataclass(frozen=True, slots=True)
class DirectWay:
    """How one container's sshd is reached; ``proxy``: the command that leads there through the node."""

    name: str
    vmid: int
    address: str
    key: Path
    known: Path
    proxy: str = ""

    def options(self) -> list[str]:
        """The options of ``ssh``; no configuration of the user's counts."""
        own = (
            f"HostKeyAlias={self.name}",
            f"UserKnownHostsFile={_quoted_path(self.known)}",
            f"IdentityFile={_quoted_path(self.key)}",
            *([f"ProxyCommand={self.proxy}"] if self.proxy else ()),
        )
        return ["-F/dev/null", *(f"-o{option}" for option in (*DIRECT_OPTIONS, *own))]


def direct_variables(host: ProxmoxHost, direct: Direct, name: str) -> dict[str, str]:
    """The inventory variables by which Ansible reaches the container, which is made ready for it and tried."""
    what = f"Unable to reach container {name} by its own sshd"
    vmid = host.vmid(name, what)
    address = _direct_address(host, vmid, what)
    key = direct.key or own_client_key(direct.folder)
    public = public_key(key)
    known = direct.folder / f"{name}.known_hosts"
    _write_whole(known, _known_hosts(name, _host_keys(host.ssh, vmid, public, name)))
    proxy = _proxy_command(host.ssh) if direct.ways[name] == JUMP else ""
    way = DirectWay(name, vmid, address, key, known, proxy)
    _try_way(way)
    return {
        "ansible_connection": "ssh",
        "ansible_host": address,
        "ansible_port": "22",
        "ansible_user": SSH_USER,
        "ansible_ssh_args": shlex.join([*way.options(), *SHARED_OPTIONS]),
        # One of its own for each run: what an earlier one has shared may lead to a container that is no more.
        "ansible_control_path": f"%(directory)s/p-{secrets.token_hex(4)}",
        "provision_instance": name,
    }


def _direct_address(host: ProxmoxHost, vmid: int, what: str) -> str:
    if host.status(vmid) is not Status.RUNNING:
        raise ProviderError(what, details="It does not run.", resolution="Start it: provision up")
    seen = host.client.get(*host.path(vmid, "interfaces"))
    address = address_in(seen) or address_in(seen, version=6)
    if address is None:
        raise ProviderError(
            what,
            details="Its card has no address that others can use.",
            resolution="Give it one (proxmox: { network: { ip: ADDRESS/PREFIX } }), or write transport: pct.",
        )
    return address


def _host_keys(shell: Shell, vmid: int, public: str, name: str) -> str:
    """Have our key let in; the public parts of its sshd's keys, a line each."""
    what = f"Unable to make container {name} ready for ssh"
    kind, blob, *_ = public.split()
    command = ["sh", "-c", _PREPARE_SCRIPT, "sh", f"{kind} {blob}", public]
    done = execute.execute(shell, vmid, command, timeout_s=PREPARE_TIMEOUT_S, name=name)
    if done.returncode == _NO_SSHD:
        raise ProviderError(
            what,
            details="There is no sshd in it.",
            resolution=f"On its node: pct exec {vmid} -- apt-get install openssh-server; or write transport: pct.",
        )
    if done.returncode:
        raise ProviderError(
            what,
            details=Foreign.of_output(done.stderr),
            resolution=f"Where its sshd has no keys: pct exec {vmid} -- ssh-keygen -A",
        )
    return done.stdout.decode(errors="replace")


def _known_hosts(name: str, told: str) -> str:
    keys = [match for line in told.splitlines() if (match := _HOST_KEY.match(line))]
    if not keys:
        raise ProviderError(f"Unable to tell the host keys of container {name}", details=told.strip())
    return "".join(f"{name} {match[1]} {match[2]}\n" for match in keys)


def _try_way(way: DirectWay) -> None:
    """Log in once; ``ProviderError`` says why not, and what to do."""
    call = ["ssh", *way.options(), "-T", "--", f"{SSH_USER}@{way.address}", "true"]
    try:
        done = subprocess.run(
            call,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=ssh_environment(),
            timeout=3 * CONNECT_TIMEOUT_S,
            check=False,
        )
        said, is_in = str(Foreign.of_output(done.stderr)), done.returncode == 0
    except subprocess.TimeoutExpired as error:
        said, is_in = f"ssh timed out after {error.timeout:.0f} s", False
    if not is_in:
        raise ProviderError(
            f"Unable to reach container {way.name} at {way.address} by ssh",
            details=said or "It ended without a word.",
            resolution=_direct_advice(ssh_failure(said), way),
        )


def _direct_advice(why: str, way: DirectWay) -> str:
    on_node = f"pct exec {way.vmid} --"
    stranger = (
        f"What answers at {way.address} shows none of the keys in /etc/ssh/ssh_host_*_key.pub of the container, as its "
        f"node tells them. Were they made anew while its sshd ran ({on_node} systemctl restart ssh), does its "
        "sshd_config name others (HostKey), or has another machine that address? If not, somebody may stand between."
    )
    return {
        "changed key": stranger,
        "unknown key": stranger,
        "refused key": "Its sshd lets root in by no key, though ours is in /root/.ssh/authorized_keys. See what it "
        f"goes by: {on_node} sshd -T (PermitRootLogin prohibit-password, PubkeyAuthentication yes).",
        "refused": f"Does its sshd run, on port 22? {on_node} systemctl enable --now ssh",
        "silent": "Does a firewall let port 22 pass? Where only its node has a way to it, write transport: jump; "
        "or transport: pct.",
    }.get(why, "Or write transport: pct.")


def _proxy_command(shell: Shell) -> str:
    """The command that leads ``ssh`` through the node, over the connection that is shared with it."""
    shell.open()
    options = [option.replace("%", "%%") for option in shell.options()]
    return shlex.join(["ssh", *options, "-W", "[%h]:%p", "--", shell.destination.login])


def _write_whole(target: Path, text: str) -> None:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    partial.write_text(text, encoding="ascii")
    partial.replace(target)


def _quoted_path(path: Path) -> str:
    """A path in a value of an option: spaces part names there, and ``%`` begins a token."""
    return '"' + str(path).replace("%", "%%") + '"'


# The key by which this machine is let into containers: one of the lab's own, or one that the file names.

KEYGEN_S = 60.0


def own_client_key(folder: Path) -> Path:
    """A private key of this lab's own, made when there is none."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = folder / "id_ed25519"
    if not key.exists():
        with tempfile.TemporaryDirectory(dir=folder) as private:
            made = Path(private, "key")
            _keygen("-t", "ed25519", "-N", "", "-C", "provision", "-f", str(made))
            with suppress(FileExistsError):  # another run was faster
                os.link(made, key)
    return key


def public_key(key: Path) -> str:
    """The public part of a private key; that of one with a passphrase lies beside it."""
    beside = key.with_name(f"{key.name}.pub")
    if beside.is_file():
        return content_of(beside).decode(errors="replace").strip()
    return _keygen("-y", "-P", "", "-f", str(key)).strip()


def _keygen(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["ssh-keygen", "-q", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=ssh_environment(),
            timeout=KEYGEN_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise PreflightError("Unable to find ssh-keygen", resolution="apt install openssh-client") from error
    except subprocess.TimeoutExpired as error:
        raise PreflightError(
            f"Unable to use the key in {arguments[-1]}: ssh-keygen has not ended after {KEYGEN_S:.0f} s"
        ) from error
    if done.returncode:
        raise PreflightError(
            f"Unable to use the key in {arguments[-1]}",
            details=done.stderr.strip(),
            resolution="Is ssh_key: the file of a private key? Of one with a passphrase, FILE.pub must lie beside it, "
            "and ssh-agent must have it.",
        )
    return done.stdout
