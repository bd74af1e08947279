"""What Proxmox lets only root@pam itself write, no token of root's either; and the two ways to write it all the same.

The rules are those of ``check_ct_modify_config_perm`` in PVE's own ``LXC.pm``: device files of the host, features other
than nesting, every feature of a privileged container, folders and devices of the host as mount points, hook scripts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from provisioner.errors import ProviderError
from provisioner.state import Instance

if TYPE_CHECKING:  # what is decided here is decided without a connection
    from provisioner.providers.proxmox.access import Access
    from provisioner.providers.proxmox.client import Client
    from provisioner.providers.proxmox.shell import Shell

OLDEST = "8.2"
"""The first release whose containers can be given device files of the host."""
ROOT = "root@pam"
NESTING = "nesting"
Way = Literal["ticket", "ssh", ""]
WORDS: Mapping[Way, str] = {
    "ticket": f"with the password of {ROOT} (a token may not)",
    "ssh": "over ssh with pct set (a token may not)",
}
HOW = (
    f"Write ssh: root@NODE on the host's page, or user: {ROOT} and password: !secret NAME beside the token; "
    "or leave those settings out."
)
_DEVICE = re.compile(r"dev\d+")
_MOUNT = re.compile(r"rootfs|mp\d+")


@dataclass(frozen=True, slots=True)
class Write:
    """One change of a container's configuration, in Proxmox' words."""

    options: Mapping[str, str] = field(default_factory=dict)
    delete: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.options or self.delete)


def way(access: Access) -> Way:
    """How what only root@pam may write can be written: with its own ticket, by ``pct`` over ssh, or not at all."""
    if access.user == ROOT and access.password is not None:
        return "ticket"
    return "ssh" if access.ssh else ""


def divided(
    options: Mapping[str, str], delete: Sequence[str], current: Mapping[str, str], *, unprivileged: bool = True
) -> tuple[Write, Write]:
    """What a token with the privileges may write, and what only root@pam may; ``current``: empty for a new container.

    A new unprivileged container gets ``nesting`` at once, whatever is added to it afterwards.
    """

    def is_root_only(option: str) -> bool:
        return needs_root(option, options.get(option), current.get(option), unprivileged=unprivileged)

    ordinary = {name: value for name, value in options.items() if not is_root_only(name)}
    rooted = {name: value for name, value in options.items() if name not in ordinary}
    if unprivileged and not current and "features" in rooted and NESTING in _parts(rooted["features"]):
        ordinary["features"] = f"{NESTING}={_parts(rooted['features'])[NESTING]}"
    doomed = tuple(name for name in delete if is_root_only(name))
    return Write(ordinary, tuple(name for name in delete if name not in doomed)), Write(rooted, doomed)


def needs_root(option: str, value: str | None, before: str | None, *, unprivileged: bool = True) -> bool:
    """Whether only root@pam may make ``option`` ``value`` (None: delete it) where it is ``before`` now."""
    if option == "features":
        return not unprivileged or _changes_more_than_nesting(_parts(value or ""), _parts(before or ""))
    if _MOUNT.fullmatch(option):
        return value is not None and _is_of_the_host(value)
    return option == "hookscript" or bool(_DEVICE.fullmatch(option))


def subjects(before: Instance | None, after: Instance) -> tuple[str, ...]:
    """The settings of a container that only root@pam may make what they are to be, by the file's words."""
    old, new = before.settings if before else {}, after.settings
    found = ["devices"] if tuple(new.get("devices", ())) != tuple(old.get("devices", ())) else []
    changed = set(new.get("features", ())) ^ set(old.get("features", ()))
    if changed - {NESTING} or (changed and not new.get("unprivileged", True)):
        found.append("features")
    return tuple(found)


def write(
    client: Client, shell: Shell | None, vmid: int, options: Mapping[str, str], delete: Sequence[str] = ()
) -> None:
    """Write what only root@pam may, by the way that there is; ``ProviderError`` when there is none."""
    if not options and not delete:
        return
    what = ", ".join([*options, *delete])
    chosen = way(client.access)
    if chosen == "ticket":
        removed = ",".join(delete) or None
        client.put("nodes", client.node, "lxc", vmid, "config", as_root=True, **options, delete=removed)
    elif chosen == "ssh" and shell is not None:
        _write_by_hand(shell, vmid, options, delete)
    else:
        raise ProviderError(f"Unable to set {what} of CT {vmid}: only {ROOT} itself may", resolution=HOW)


def _write_by_hand(shell: Shell, vmid: int, options: Mapping[str, str], delete: Sequence[str]) -> None:
    argv = ["pct", "set", str(vmid)]
    for name, value in options.items():
        argv += [f"--{name}", value]
    if delete:
        argv += ["--delete", ",".join(delete)]
    done = shell.run(argv)
    if done.returncode:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()
        names = ", ".join([*options, *delete])
        raise ProviderError(f"Unable to set {names} of CT {vmid} over ssh", details=said, resolution=_resolution(said))


def _resolution(said: str) -> str:
    if "does not exist" in said and "/lxc/" in said:
        return "The address after ssh: must be that of the node itself, not of another one of its cluster."
    if "Unknown option" in said or "unable to parse option" in said:
        return f"Its pct is older than Proxmox VE {OLDEST}: upgrade the node (apt update && apt full-upgrade)."
    if "run as root" in said or "ermission denied" in said or "not found" in said:
        return "The user after ssh: must be root, on the node itself."
    return ""


def _parts(features: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in features.split(",") if part.strip())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _changes_more_than_nesting(new: Mapping[str, str], old: Mapping[str, str]) -> bool:
    names = {*new, *old}
    return any(name != NESTING and new.get(name, "") != old.get(name, "") for name in names)


def _is_of_the_host(value: str) -> bool:
    """Whether a mount point is a folder or a device of the host instead of a volume on a storage."""
    parts = (part.removeprefix("volume=") for part in value.split(","))
    return any(part.startswith("/") for part in parts)
