"""Who may do what: roles, access control lists by path, and the checks that the schema names for a method."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.doubles.proxmox.errors import ApiError, forbidden

ROOT = "root@pam"
# kinds of privileges: what only root, an administrator, a user and an auditor get by the built-in roles
GROUPS: Mapping[str, tuple[str, str, str, str]] = {
    "VM": (
        "",
        """Config.Disk Config.CPU Config.Memory Config.Network Config.HWType Config.Options Allocate Clone Migrate
        Replicate Snapshot Snapshot.Rollback GuestAgent.Unrestricted""",
        """Config.CDROM Config.Cloudinit Console Backup PowerMgmt GuestAgent.FileRead GuestAgent.FileSystemMgmt
        GuestAgent.FileWrite""",
        "Audit GuestAgent.Audit",
    ),
    "Sys": ("PowerMgmt Modify Incoming AccessNetwork", "Console Syslog", "", "Audit"),
    "Datastore": ("", "Allocate AllocateTemplate", "AllocateSpace", "Audit"),
    "SDN": ("", "Allocate Audit", "Use", "Audit"),
    "User": ("", "Modify", "", ""),
    "Group": ("", "Allocate", "", ""),
    "Realm": ("Allocate", "AllocateUser", "", ""),
    "Pool": ("", "Allocate", "Audit", "Audit"),
    "Mapping": ("Modify", "", "Use", "Audit"),
}


def _privileges(kind: str, *levels: int) -> frozenset[str]:
    return frozenset(f"{kind}.{name}" for level in levels for name in GROUPS[kind][level].split())


def _built_in() -> dict[str, frozenset[str]]:
    everything = frozenset().union(*(_privileges(kind, 0, 1, 2, 3) for kind in GROUPS)) | {"Permissions.Modify"}
    roles = {
        "Administrator": everything,
        "NoAccess": frozenset[str](),
        "PVEAdmin": frozenset().union(*(_privileges(kind, 1, 2, 3) for kind in GROUPS)),
        "PVEAuditor": frozenset().union(*(_privileges(kind, 3) for kind in GROUPS)),
        "PVETemplateUser": frozenset({"VM.Clone", "VM.Audit"}),
    }
    for kind in ("VM", "Sys", "Datastore", "SDN", "Pool"):
        roles[f"PVE{kind}Admin"] = _privileges(kind, 1, 2, 3)
        if GROUPS[kind][2]:
            roles[f"PVE{kind}User"] = _privileges(kind, 2, 3)
    return roles


@dataclass(frozen=True)
class Grant:
    """One line of the access control list: a role for a user, group (``@name``) or token on a path."""

    path: str
    who: str
    role: str
    propagate: bool = True


class Permissions:
    """The access control list and what follows from it."""

    def __init__(self, owner: Callable[[str], tuple[str, bool]]) -> None:
        self.roles = _built_in()
        self.grants: set[Grant] = set()
        self.pool_of: Callable[[str], str] = lambda _path: ""
        self._owner = owner

    def grant(self, path: str, who: str, role: str, *, propagate: bool = True) -> None:
        """Give a role on a path and, unless told otherwise, on all below it."""
        self.grants.add(Grant(path, who, role, propagate))

    def add_role(self, name: str, *privileges: str) -> None:
        """A role of one's own."""
        self.roles[name] = frozenset(privileges)

    def of(self, who: str, path: str) -> dict[str, bool]:
        """The privileges on a path, each with whether it goes on to what is below."""
        if who == ROOT:
            return dict.fromkeys(sorted(self.roles["Administrator"]), True)
        if not path:
            return {}
        userid, apart = self._owner(who)
        if who == userid:
            return self._granted(who, path)
        mine = self.of(userid, path)
        if not apart:
            return mine
        return {name: mine[name] and on for name, on in self._granted(who, path).items() if name in mine}

    def _granted(self, who: str, path: str) -> dict[str, bool]:
        found = self._roles(who, path)
        pool = self.pool_of(path)
        if pool and "NoAccess" not in found:
            found = {**dict.fromkeys(self._roles(who, f"/pool/{pool}"), False), **found}
        privileges: dict[str, bool] = {}
        for role, on in found.items():
            for name in self.roles.get(role, ()):
                privileges[name] = privileges.get(name, False) or on
        return privileges

    def _roles(self, who: str, path: str) -> dict[str, bool]:
        """Roles on a path: those given nearest to it replace those from above."""
        steps = [part for part in path.split("/") if part]
        found: dict[str, bool] = {}
        for depth in range(len(steps) + 1):
            here = "/" + "/".join(steps[:depth])
            given = {
                grant.role: grant.propagate
                for grant in self.grants
                if (grant.path, grant.who) == (here, who) and (grant.propagate or depth == len(steps))
            }
            found = given or found
        return {"NoAccess": True} if "NoAccess" in found else found

    def may(self, who: str, path: str, privileges: Sequence[str], *, one_is_enough: bool = False) -> bool:
        """Whether somebody has all of the privileges on a path, or one of them."""
        mine = self.of(who, path)
        return (any if one_is_enough else all)(name in mine for name in privileges)

    def check(self, who: str, path: str, privileges: Sequence[str], *, one_is_enough: bool = False) -> None:
        """Refuse who has not; the text names what is missing first."""
        if self.may(who, path, privileges, one_is_enough=one_is_enough):
            return
        if one_is_enough:
            raise forbidden(f"{path}, {'|'.join(privileges)}")
        raise forbidden(f"{path}, {next(name for name in privileges if name not in self.of(who, path))}")

    def check_method(self, who: str, page: Mapping[str, Any] | None, given: Mapping[str, Any]) -> None:
        """The schema's own check of a method; root@pam (as a user, not as a token) passes each."""
        if who == ROOT:
            return
        if not page:
            raise forbidden("user != root@pam")
        if page.get("user") in ("all", "world"):
            return
        self._test(page["check"], who, given)

    def _test(self, test: Sequence[Any], who: str, given: Mapping[str, Any]) -> None:
        kind = test[0]
        if kind == "and":
            for part in test[1:]:
                self._test(part, who, given)
        elif kind == "or":
            if not any(self._passes(part, who, given) for part in test[1:]):
                raise forbidden()
        elif kind == "perm":
            options = dict(zip(test[3::2], test[4::2], strict=True))
            if options.get("require_param", kind) not in {*given, kind}:
                raise forbidden()
            self.check(who, _filled(test[1], given), test[2], one_is_enough=bool(options.get("any")))
        elif kind == "perm-modify":
            self.check(who, _filled(test[1], given), ["Permissions.Modify"])
        elif kind == "userid-param" and test[1] == "self":
            if given.get("userid") != who:
                raise forbidden()
        else:
            self.check(who, "/access/groups", test[1], one_is_enough=True)

    def _passes(self, test: Sequence[Any], who: str, given: Mapping[str, Any]) -> bool:
        try:
            self._test(test, who, given)
        except ApiError:
            return False
        return True


def _filled(template: str, given: Mapping[str, Any]) -> str:
    """A path with its parameters; nothing when that is no path, which nobody has permissions on."""
    path = re.sub(r"\{([^}]+)\}", lambda match: str(given.get(match[1], "")), template)
    path = re.sub("/+", "/", path).rstrip("/") or "/"
    return path if re.fullmatch(r"[\w.\-/]+", path) else ""
