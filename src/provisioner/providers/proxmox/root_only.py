"""The settings that Proxmox lets only root@pam itself write (no token of root's either), and two ways to write them.

The rules are those of ``check_ct_modify_config_perm`` in PVE's own ``LXC.pm``: device files of the host, features other
than nesting, every feature of a privileged container, folders and devices of the host as mount points, hook scripts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from provisioner.values.errors import ProviderError
from provisioner.values.plain_data import Foreign
from provisioner.values.state import Instance

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
_OLD_RELEASE = f"Its pct is older than Proxmox VE {OLDEST}: upgrade the node (apt update && apt full-upgrade)."
_NOT_ROOT = "The user after ssh: must be root, on the node itself."
_RESOLUTIONS: Mapping[str, str] = {
    "Unknown option": _OLD_RELEASE,
    "unable to parse option": _OLD_RELEASE,
    "run as root": _NOT_ROOT,
    "ermission denied": _NOT_ROOT,
    "not found": _NOT_ROOT,
}
"""What to do about an error of ``pct``, by words in its output."""
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
    """How to write what only root@pam may: with its own ticket, by ``pct`` over ssh, or not at all ("")."""
    if access.user == ROOT and access.password is not None:
        return "ticket"
    return "ssh" if access.ssh else ""


def divided(
    options: Mapping[str, str], delete: Sequence[str], current: Mapping[str, str], *, unprivileged: bool = True
) -> tuple[Write, Write]:
    """What a token with the privileges may write, and what only root@pam may; ``current``: empty for a new container.

    A new unprivileged container gets ``nesting`` at once, whatever is added to it afterwards.
    """
    ordinary: dict[str, str] = {}
    rooted: dict[str, str] = {}
    for name, value in options.items():
        is_root_only = needs_root(name, value, current.get(name), unprivileged=unprivileged)
        chosen = rooted if is_root_only else ordinary
        chosen[name] = value
    is_new = not current
    if is_new and unprivileged:
        features = _parts(rooted.get("features", ""))
        if NESTING in features:
            ordinary["features"] = f"{NESTING}={features[NESTING]}"
    ordinary_delete: list[str] = []
    rooted_delete: list[str] = []
    for name in delete:
        is_root_only = needs_root(name, options.get(name), current.get(name), unprivileged=unprivileged)
        names = rooted_delete if is_root_only else ordinary_delete
        names.append(name)
    return Write(ordinary, tuple(ordinary_delete)), Write(rooted, tuple(rooted_delete))


def needs_root(option: str, value: str | None, before: str | None, *, unprivileged: bool = True) -> bool:
    """Whether only root@pam may make ``option`` ``value`` (None: delete it) where it is ``before`` now."""
    if option == "features":
        if not unprivileged:
            return True
        return _changes_more_than_nesting(_parts(value or ""), _parts(before or ""))
    if _MOUNT.fullmatch(option):
        return value is not None and _is_of_the_host(value)
    if option == "hookscript":
        return True
    return _DEVICE.fullmatch(option) is not None


def subjects(before: Instance | None, after: Instance) -> tuple[str, ...]:
    """The settings of a container that only root@pam may make what they are to be, by their names in the file."""
    old = before.settings if before else {}
    new = after.settings
    names: list[str] = []
    if tuple(new.get("devices", ())) != tuple(old.get("devices", ())):
        names.append("devices")
    changed_features = set(new.get("features", ())) ^ set(old.get("features", ()))
    is_unprivileged = new.get("unprivileged", True)
    root_only_features = changed_features - {NESTING} if is_unprivileged else changed_features
    if root_only_features:
        names.append("features")
    return tuple(names)


def write(
    client: Client, shell: Shell | None, vmid: int, options: Mapping[str, str], delete: Sequence[str] = ()
) -> None:
    """Write what only root@pam may, by the way that there is; ``ProviderError`` when there is none."""
    if not options and not delete:
        return
    chosen = way(client.access)
    if chosen == "ticket":
        removed = ",".join(delete) or None
        client.put("nodes", client.node, "lxc", vmid, "config", as_root=True, **options, delete=removed)
    elif chosen == "ssh" and shell is not None:
        _write_with_pct(shell, vmid, options, delete)
    else:
        names = ", ".join([*options, *delete])
        raise ProviderError(f"Unable to set {names} of CT {vmid}: only {ROOT} itself may", resolution=HOW)


def _write_with_pct(shell: Shell, vmid: int, options: Mapping[str, str], delete: Sequence[str]) -> None:
    argv = ["pct", "set", str(vmid)]
    for name, value in options.items():
        argv += [f"--{name}", value]
    if delete:
        argv += ["--delete", ",".join(delete)]
    done = shell.run(argv)
    if done.returncode:
        output = Foreign.of_output(done.stderr or done.stdout)
        names = ", ".join([*options, *delete])
        what = f"Unable to set {names} of CT {vmid} over ssh"
        raise ProviderError(what, details=output, resolution=_resolution(output))


def _resolution(output: str) -> str:
    """What to do about what ``pct`` said; nothing where that is not known."""
    if "does not exist" in output and "/lxc/" in output:
        return "The address after ssh: must be that of the node itself, not of another one of its cluster."
    for words, resolution in _RESOLUTIONS.items():
        if words in output:
            return resolution
    return ""


def _parts(features: str) -> dict[str, str]:
    """The features by name: ``nesting=1,keyctl=1``."""
    values: dict[str, str] = {}
    for part in features.split(","):
        name, _, value = part.partition("=")
        if part.strip():
            values[name.strip()] = value.strip()
    return values


def _changes_more_than_nesting(new: Mapping[str, str], old: Mapping[str, str]) -> bool:
    names = {*new, *old} - {NESTING}
    return any(new.get(name, "") != old.get(name, "") for name in names)


def _is_of_the_host(value: str) -> bool:
    """Whether a mount point is a folder or a device of the host instead of a volume on a storage."""
    parts = [part.removeprefix("volume=") for part in value.split(",")]
    return any(part.startswith("/") for part in parts)
