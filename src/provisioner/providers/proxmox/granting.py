"""Grant a user and its token on a node no more than is needed to work there: roles, the user, grants and the token.

``pvesh`` on the node reads and makes all of it as root; it takes and gives what the API does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from provisioner.providers.proxmox import rights
from provisioner.providers.proxmox.access import Access
from provisioner.providers.proxmox.host import CAN_SNAPSHOT
from provisioner.providers.proxmox.node import DISKS, TEMPLATES
from provisioner.providers.proxmox.root_only import ROOT
from provisioner.providers.proxmox.shell import Shell
from provisioner.values.errors import PreflightError, ProviderError
from provisioner.values.plain_data import Foreign

ROLE, SEES = "Provisioner", "ProvisionerSees"
ROLES: Mapping[str, frozenset[str]] = {
    ROLE: frozenset(
        {
            "VM.Audit",
            *rights.TO_CREATE,
            *rights.TO_KEEP,
            "Datastore.AllocateSpace",
            "Datastore.AllocateTemplate",
            "Datastore.Audit",
            "Pool.Allocate",
            "Pool.Audit",
            "SDN.Use",
        }
    ),
    SEES: frozenset({"Datastore.Audit", "Sys.Audit"}),
}
COMMENT = "provision up"


@dataclass(frozen=True, slots=True)
class Need:
    """Where we work on a node: the storages and bridges that containers of the file use."""

    storages: frozenset[str]
    bridges: frozenset[str]

    @property
    def grants(self) -> tuple[tuple[str, str], ...]:
        """Paths and the roles that we need on them."""
        storages = [f"/storage/{name}" for name in sorted(self.storages)] or ["/storage"]
        bridges = [f"{rights.ZONE}/{name}" for name in sorted(self.bridges)]
        return (("/", SEES), *((path, ROLE) for path in ("/vms", "/pool", *storages, *bridges)))


@dataclass(frozen=True, slots=True)
class Step:
    """Something that the node lacks: in words, as a command for a person there, and as a call of ``pvesh``."""

    what: str
    command: str
    call: tuple[str, ...]


def commands(access: Access, need: Need) -> list[str]:
    """All that a person would type on a node that knows nothing of us."""
    token = [f"pveum user token add {access.user} {access.token_id} --privsep 0"] if access.token_id else []
    return [step.command for step in _lacking(access, need, {}, set(), set())] + token


class Node:
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
        steps = list(_lacking(self._access, need, roles, users, _held_by(self._access.user, grants)))
        if self._is_token_separate():
            steps += _grants(need, _held_by(self._token_name, grants), self._token_name, "tokens")
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
            if _takes(storage, TEMPLATES):
                for_templates.append((name != "local", name))
        _, disks = min(for_disks, default=(False, ""))
        _, templates = min(for_templates, default=(False, ""))
        return disks, templates

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


def _lacking(
    access: Access,
    need: Need,
    roles: Mapping[str, frozenset[str]],
    users: set[str],
    grants: set[tuple[str, str]],
) -> Iterator[Step]:
    if access.user == ROOT:
        return
    used = {role for _, role in need.grants}
    yield from (step for name in ROLES if name in used for step in _role(name, roles.get(name)))
    if access.user not in users:
        command = f'pveum user add {access.user} --comment "{COMMENT}"'
        call = ("create", "/access/users", "--userid", access.user, "--comment", COMMENT)
        yield Step(f"user {access.user}", command, call)
    yield from _grants(need, grants, access.user, "users")


def _held_by(holder: str, grants: Iterable[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """The paths and roles that a user or token was granted."""
    held = set()
    for grant in grants:
        if grant["ugid"] == holder:
            held.add((grant["path"], grant["roleid"]))
    return held


def _grants(need: Need, held: set[tuple[str, str]], who: str, kind: str) -> Iterator[Step]:
    """The grants that somebody lacks; ``kind``: "users" or "tokens"."""
    for path, role in need.grants:
        if (path, role) not in held:
            quoted = f"'{who}'" if "!" in who else who  # a shell would take it for its history
            command = f"pveum acl modify {path} --{kind} {quoted} --roles {role}"
            grant = ("set", "/access/acl", "--path", path, f"--{kind}", who, "--roles", role)
            yield Step(f"role {role} for {who} on {path}", command, grant)


def _role(name: str, held: frozenset[str] | None) -> Iterator[Step]:
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
