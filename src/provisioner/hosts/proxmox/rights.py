"""Rights: privileges, settings of root@pam alone, and tags; what of them a plan needs, and what of it is missing.

What a token may do is asked for path by path: what is granted on one path replaces what came down from those above it,
and the members of a pool get its grants, too; so nothing can be concluded from the list of all grants.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from provisioner.hosts.proxmox import marks
from provisioner.hosts.proxmox.access import ROOT, Access
from provisioner.values.errors import ProviderError
from provisioner.values.plain_data import Foreign
from provisioner.values.plan import Change, needs_restart, setting_name
from provisioner.values.state import Artifact, Instance, Status

if TYPE_CHECKING:
    from provisioner.hosts.proxmox.api import Client
    from provisioner.hosts.proxmox.ssh import Shell

NO_ZONE = "localnetwork"
"""What Proxmox calls the zone of bridges that are no vnets."""
ZONE = f"/sdn/zones/{NO_ZONE}"
NEW = "/vms"
"""The path of a container that is still to be made, whose number is not known yet."""
READ_TEMPLATE = ("Datastore.AllocateSpace", "Datastore.Audit", "Datastore.Allocate")
LIST_DISKS = ("Datastore.Audit", "Datastore.Allocate")
TO_CREATE = (
    "VM.Allocate",
    "VM.Config.CPU",
    "VM.Config.Disk",
    "VM.Config.Memory",
    "VM.Config.Network",
    "VM.Config.Options",
    "VM.PowerMgmt",
)
TO_KEEP = ("VM.Snapshot", "VM.Clone")
GO_BACK = ("VM.Snapshot", "VM.Snapshot.Rollback")
_FOR_ATTRIBUTE: Mapping[str, str] = {
    "cpu": "VM.Config.CPU",
    "memory": "VM.Config.Memory",
    "swap": "VM.Config.Memory",
    "disk": "VM.Config.Disk",
    "devices": "VM.Config.Disk",
    "mounts": "VM.Config.Disk",
    "network": "VM.Config.Network",
    "reaches": "VM.Config.Network",
    "features": "VM.Allocate",
    "pool": "VM.Allocate",
}
BY_ROOT = setting_name("devices")
_FOR_ACTION: Mapping[str, tuple[str, ...]] = {
    "start": ("VM.PowerMgmt",),
    "stop": ("VM.PowerMgmt",),
    "delete": ("VM.Allocate", "VM.PowerMgmt"),
    "rollback": ("VM.PowerMgmt",),
    "adopt": ("VM.Config.Options",),
}


@dataclass(frozen=True, slots=True)
class Right:
    """One of ``privileges`` on ``path``; on the pool ``pool`` it would do as well."""

    path: str
    privileges: tuple[str, ...]
    pool: str = ""

    @property
    def storage(self) -> str:
        """The storage that it is about; "" for another thing, or for all of them."""
        return self.path.partition("/storage/")[2]

    def __str__(self) -> str:
        return f"{' or '.join(self.privileges)} on {self.path}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where things are made unless they say otherwise; ``downloads``: images whose template is not there yet."""

    storage: str
    templates: str
    bridge: str
    pool: str = ""
    downloads: frozenset[str] = frozenset()
    vnets: frozenset[str] = frozenset()
    """Bridges that belong to a zone of PVE's own network: they are listed for those only who may use them."""


def holder(access: Access) -> str:
    """Who calls, in Proxmox' words: "token root@pam!lab", "user penny@pve"."""
    return f"token {access.user}!{access.token_id}" if access.token_id else f"user {access.user}"


def may_all(access: Access) -> bool:
    """Whether nothing has to be asked: root@pam in person."""
    return access.user == ROOT and access.token_id is None


def of_every_plan(lab: str = "") -> tuple[Right, ...]:
    """What each run needs: to see the cluster, and to take the lab's lock, which is a pool."""
    lock = f"/pool/provisioner-lock-{lab}-1" if lab else "/pool"
    return (Right("/", ("Sys.Audit",)), Right(lock, ("Pool.Allocate",)), Right(lock, ("Pool.Audit",)))


def of_change(change: Change, place: Place) -> Iterator[Right]:
    """What one change needs."""
    before, after = change.before, change.after
    if isinstance(after, Artifact):
        builder = Instance(after.builder, after.host, "", after.image, settings=after.builder_settings)
        yield from _of_creation(builder, place)
    elif change.action in ("create", "replace") and isinstance(after, Instance):
        yield from _of_creation(after, place)
    elif change.action == "update" and isinstance(before, Instance) and isinstance(after, Instance):
        yield from _of_update(change, before, after, place)
    else:
        container = before or after
        if isinstance(container, Instance):
            yield from _of_action(change.action, container)


def _of_action(action: str, container: Instance) -> Iterator[Right]:
    """What something needs that is done to a container as it is."""
    if action == "rollback":
        yield replace(_of_guest(container, ""), privileges=GO_BACK)
    for privilege in _FOR_ACTION.get(action, ()):
        yield _of_guest(container, privilege)


def of_whole_life(place: Place) -> tuple[Right, ...]:
    """What everything that can be done with a container needs."""
    any_container = Instance("", "", "", "")
    for_snapshots = [Right(NEW, (privilege,), place.pool) for privilege in TO_KEEP]
    for_download = Right(_storage_path(place.templates), ("Datastore.AllocateTemplate",))
    return (*_of_creation(any_container, place), *for_snapshots, for_download, *to_list_disks([place.storage]))


def to_list_disks(names: Iterable[str]) -> tuple[Right, ...]:
    """What is needed to see all disks on these storages, and that there are no other storages.

    Proxmox leaves out of a list what whoever asks may not see, and says nothing of it.
    """
    rights = [Right(_storage_path(name), LIST_DISKS) for name in ("", *names)]
    return (*rights, Right(NEW, ("VM.Config.Disk",)))


def missing(client: Client, rights: Iterable[Right], next_vmid: str = "") -> tuple[Right, ...]:
    """Those of ``rights`` that whoever calls has not; ``next_vmid`` is asked about for what is still to be made."""
    if may_all(client.access):
        return ()
    wanted = list(dict.fromkeys(rights))
    path_of_new = f"{NEW}/{next_vmid}" if next_vmid else NEW
    paths: set[str] = set()
    for right in wanted:
        paths.update(_paths(right, path_of_new))
    privileges = _privileges_on(client, sorted(paths))
    lacking = []
    for right in wanted:
        held = frozenset[str]().union(*(privileges[path] for path in _paths(right, path_of_new)))
        if held.isdisjoint(right.privileges):
            lacking.append(right)
    return tuple(lacking)


def _privileges_on(client: Client, paths: Sequence[str]) -> dict[str, frozenset[str]]:
    """The privileges that whoever calls has, by path."""
    answers = client.many([partial(client.get, "access", "permissions", path=path) for path in paths])
    privileges: dict[str, frozenset[str]] = {}
    for path, answer in zip(paths, answers, strict=True):
        privileges[path] = frozenset(answer.get(path) or ())
    return privileges


def by_path(rights: Iterable[Right]) -> dict[str, str]:
    """The privileges in words, by path: ``/vms`` to "VM.Allocate, VM.PowerMgmt"."""
    words: dict[str, list[str]] = {}
    for right in rights:
        words.setdefault(right.path, []).append(" or ".join(right.privileges))
    return {path: ", ".join(words[path]) for path in sorted(words)}


def first_on(path: str, rights: Iterable[Right]) -> list[str]:
    """Of each right on a path the first privilege, which is enough."""
    return [right.privileges[0] for right in rights if right.path == path]


def bridge_path(network: Mapping[str, Any], bridge: str) -> str:
    """Where the right to use a network card's bridge is granted; with a VLAN, that VLAN of it is enough."""
    path = f"{ZONE}/{network.get('bridge') or bridge}"
    vlan = network.get("vlan")
    return f"{path}/{vlan}" if vlan else path


def storages(after: Instance, place: Place, before: Instance | None = None) -> Iterator[str]:
    """The storages that the container's disks are on, or will be; "" where there is none to be used by default."""
    before_settings = before.settings if before else {}
    own = after.settings.get("storage") or before_settings.get("storage") or place.storage
    yield own
    for mount in after.settings.get("mounts", ()):
        yield mount.get("storage") or own


def sees_all_storages(missing: Iterable[Right]) -> bool:
    """Whether a list of storages has all of them, by what is missing of ``to_list_disks``."""
    return _storage_path("") not in {right.path for right in missing}


def _storage_path(name: str) -> str:
    """Where rights to a storage are granted; those who may use none see none."""
    return f"/storage/{name}" if name else "/storage"


def _paths(right: Right, path_of_new: str) -> list[str]:
    """The paths on each of which a right may be granted."""
    path = path_of_new if right.path == NEW else right.path
    return [path, f"/pool/{right.pool}"] if right.pool else [path]


def _of_guest(container: Instance, privilege: str) -> Right:
    vmid = container.settings.get("vmid")
    path = NEW if vmid is None else f"{NEW}/{vmid}"
    return Right(path, (privilege,))


def _of_new(container: Instance, privilege: str, place: Place) -> Right:
    pool = str(container.settings.get("pool", place.pool))
    return replace(_of_guest(container, privilege), pool=pool)


def _of_creation(after: Instance, place: Place) -> Iterator[Right]:
    for name in ("VM.Audit", *TO_CREATE):
        yield _of_new(after, name, place)
    yield _of_guest(after, "VM.Config.Options")  # of tags: the pool does not count there
    for storage in storages(after, place):
        yield Right(_storage_path(storage), ("Datastore.AllocateSpace",))
    yield Right(_storage_path(place.templates), READ_TEMPLATE)
    if after.image in place.downloads:
        yield Right(_storage_path(place.templates), ("Datastore.AllocateTemplate",))
    yield from _of_bridges([after.settings.get("network", {})], place)
    pool = after.settings.get("pool", place.pool)
    if pool:
        yield Right(f"/pool/{pool}", ("Pool.Audit",))
    if not after.settings.get("unprivileged", True):
        yield Right("/", ("Sys.Modify",))


def _of_bridges(networks: Iterable[Mapping[str, Any]], place: Place) -> Iterator[Right]:
    for network in networks:
        if (network.get("bridge") or place.bridge) not in place.vnets:
            yield Right(bridge_path(network, place.bridge), ("SDN.Use",))


def _of_update(change: Change, before: Instance, after: Instance, place: Place) -> Iterator[Right]:
    differing = change.attributes()
    for name in sorted(differing.keys() - {BY_ROOT, *root_only_settings(before, after)}):
        yield _of_guest(before, _FOR_ATTRIBUTE.get(name, "VM.Config.Options"))
    if differing.keys() & {"disk", "mounts", "devices"}:
        for storage in storages(after, place, before):
            yield Right(_storage_path(storage), ("Datastore.AllocateSpace",))
    if "network" in differing:
        networks = [container.settings.get("network", {}) for container in (before, after)]
        yield from _of_bridges(networks, place)
    for pool in filter(None, differing.get("pool", ())):
        yield Right(f"/pool/{pool}", ("Pool.Allocate",))
        yield Right(f"/pool/{pool}", ("Pool.Audit",))
    is_running = before.status is Status.RUNNING
    if is_running:
        yield _of_guest(before, "VM.Snapshot")
    if not is_running or needs_restart(differing):
        yield _of_guest(before, "VM.PowerMgmt")


# Settings that only root@pam itself may write (no token of root's either), and two ways to write them. The rules are
# those of `check_ct_modify_config_perm` in PVE's own `LXC.pm`: device files of the host, features other than nesting,
# every feature of a privileged container, folders and devices of the host as mount points, hook scripts.

OLDEST_WITH_DEVICES = "8.2"
"""The first release whose containers can be given device files of the host."""
NESTING = "nesting"
RootWay = Literal["ticket", "ssh", ""]
ROOT_WAY_TEXTS: Mapping[RootWay, str] = {
    "ticket": f"with the password of {ROOT} (a token may not)",
    "ssh": "over ssh with pct set (a token may not)",
}
ROOT_ONLY_HINT = (
    f"Write ssh: root@NODE on the host's page, or user: {ROOT} and password: !secret NAME beside the token; "
    "or leave those settings out."
)
_OLD_RELEASE = (
    f"Its pct is older than Proxmox VE {OLDEST_WITH_DEVICES}: upgrade the node (apt update && apt full-upgrade)."
)
_NOT_ROOT = "The user after ssh: must be root, on the node itself."
_PCT_RESOLUTIONS: Mapping[str, str] = {
    "Unknown option": _OLD_RELEASE,
    "unable to parse option": _OLD_RELEASE,
    "run as root": _NOT_ROOT,
    "ermission denied": _NOT_ROOT,
    "not found": _NOT_ROOT,
}
"""What to do about an error of ``pct``, by words in its output."""
_DEVICE_OPTION = re.compile(r"dev\d+")
_MOUNT_OPTION = re.compile(r"rootfs|mp\d+")


@dataclass(frozen=True, slots=True)
class ConfigWrite:
    """One change of a container's configuration, in Proxmox' words."""

    options: Mapping[str, str] = field(default_factory=dict)
    delete: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.options or self.delete)


def root_way(access: Access) -> RootWay:
    """How to write what only root@pam may: with its own ticket, by ``pct`` over ssh, or not at all ("")."""
    if access.user == ROOT and access.password is not None:
        return "ticket"
    return "ssh" if access.ssh else ""


def split_root_only(
    options: Mapping[str, str], delete: Sequence[str], current: Mapping[str, str], *, unprivileged: bool = True
) -> tuple[ConfigWrite, ConfigWrite]:
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
        features = _features_by_name(rooted.get("features", ""))
        if NESTING in features:
            ordinary["features"] = f"{NESTING}={features[NESTING]}"
    ordinary_delete: list[str] = []
    rooted_delete: list[str] = []
    for name in delete:
        is_root_only = needs_root(name, options.get(name), current.get(name), unprivileged=unprivileged)
        names = rooted_delete if is_root_only else ordinary_delete
        names.append(name)
    return ConfigWrite(ordinary, tuple(ordinary_delete)), ConfigWrite(rooted, tuple(rooted_delete))


def needs_root(option: str, value: str | None, before: str | None, *, unprivileged: bool = True) -> bool:
    """Whether only root@pam may make ``option`` ``value`` (None: delete it) where it is ``before`` now."""
    if option == "features":
        if not unprivileged:
            return True
        return _changes_more_than_nesting(_features_by_name(value or ""), _features_by_name(before or ""))
    if _MOUNT_OPTION.fullmatch(option):
        return value is not None and _is_of_the_host(value)
    if option == "hookscript":
        return True
    return _DEVICE_OPTION.fullmatch(option) is not None


def root_only_settings(before: Instance | None, after: Instance) -> tuple[str, ...]:
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


def write_as_root(
    client: Client, shell: Shell | None, vmid: int, options: Mapping[str, str], delete: Sequence[str] = ()
) -> None:
    """Write what only root@pam may, by the way that there is; ``ProviderError`` when there is none."""
    if not options and not delete:
        return
    chosen = root_way(client.access)
    if chosen == "ticket":
        removed = ",".join(delete) or None
        client.put("nodes", client.node, "lxc", vmid, "config", as_root=True, **options, delete=removed)
    elif chosen == "ssh" and shell is not None:
        _write_with_pct(shell, vmid, options, delete)
    else:
        names = ", ".join([*options, *delete])
        raise ProviderError(f"Unable to set {names} of CT {vmid}: only {ROOT} itself may", resolution=ROOT_ONLY_HINT)


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
        raise ProviderError(what, details=output, resolution=_pct_resolution(output))


def _pct_resolution(output: str) -> str:
    """What to do about what ``pct`` said; nothing where that is not known."""
    if "does not exist" in output and "/lxc/" in output:
        return "The address after ssh: must be that of the node itself, not of another one of its cluster."
    for words, resolution in _PCT_RESOLUTIONS.items():
        if words in output:
            return resolution
    return ""


def _features_by_name(features: str) -> dict[str, str]:
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


# Tags that only those with `Sys.Modify` on `/`, and root@pam in person, may set. For everybody else `user-tag-access`
# says which tags there are (`free`: any), and no tag of `registered-tags` is theirs to set. Ours may be among them.

TAGS_FREE, TAGS_BY_LIST, TAGS_NONE = "free", "list", "none"
TO_SET_ANY_TAG = Right("/", ("Sys.Modify",))


@dataclass(frozen=True, slots=True)
class TagAccess:
    """Who may set which tags: ``mode`` and ``listed`` of ``user-tag-access``, ``allowed``: what exists and is ours."""

    mode: str = TAGS_FREE
    listed: tuple[str, ...] = ()
    registered: tuple[str, ...] = ()
    allowed: frozenset[str] = frozenset()

    def refused(self, tags: Iterable[str]) -> list[str]:
        """Those of ``tags`` that may not be set."""
        refused = set(tags) & set(self.registered)
        if self.mode != TAGS_FREE:
            refused |= set(tags) - self.allowed
        return sorted(refused)


def tag_access(client: Client) -> TagAccess:
    """What holds for whoever calls; nothing is forbidden to those who may set any tag."""
    if may_all(client.access):
        return TagAccess()
    options = client.get("cluster", "options")
    access = _tag_access_parts(options.get("user-tag-access", {}))
    written = TagAccess(
        mode=str(access.get("user-allow", TAGS_FREE)),
        listed=_tag_names(access.get("user-allow-list", ())),
        registered=_tag_names(options.get("registered-tags", ())),
        allowed=frozenset(_tag_names(options.get("allowed-tags", ()))),
    )
    forbids_nothing = written.mode == TAGS_FREE and not written.registered
    if forbids_nothing or missing(client, [TO_SET_ANY_TAG]):
        return written
    return TagAccess()


def tags_set_by(changes: Iterable[Change]) -> dict[str, set[str]]:
    """The tags that a plan adds or takes away, by container."""
    tags: dict[str, set[str]] = {}
    for change in changes:
        before, after = change.before, change.after
        if not isinstance(after, Instance):
            continue
        if change.action in ("create", "replace"):
            tags[change.target] = _tags_of(after)
        elif change.action == "adopt":
            tags[change.target] = {marks.TAG, marks.tag_of(after.lab)}
        elif change.action == "update" and isinstance(before, Instance):
            tags[change.target] = _tags_of(before) ^ _tags_of(after)
    return tags


def refused_tags_text(names: Sequence[str], seen: TagAccess) -> str:
    """That tags may not be set, and by which option of the datacenter."""
    reasons = []
    if seen.mode != TAGS_FREE:
        reasons.append(f"user-tag-access is {seen.mode}")
    if not set(names).isdisjoint(seen.registered):
        reasons.append("they are in registered-tags")
    why = " and ".join(reasons)
    return f"the datacenter lets nobody without Sys.Modify on / set tags {', '.join(names)} ({why})"


def refused_tags_hint(names: Sequence[str], seen: TagAccess, grant: str) -> str:
    """What to do about it; ``grant``: how the right is given instead."""
    wanted = set(names)
    commands = []
    if seen.mode != TAGS_FREE:
        mode = TAGS_BY_LIST if seen.mode == TAGS_NONE else seen.mode
        listed = ";".join(sorted({*seen.listed, *wanted}))
        commands.append(f"pvesh set /cluster/options --user-tag-access 'user-allow={mode},user-allow-list={listed}'")
    if not wanted.isdisjoint(seen.registered):
        commands.append(f"pvesh set /cluster/options {_unregister(wanted, seen.registered)}")
    return f"Let them be set, on the node: {'; '.join(commands)}. Or give Sys.Modify.\n{grant}"


def _unregister(names: set[str], registered: Sequence[str]) -> str:
    """The option of ``pvesh`` that takes tags out of registered-tags."""
    left = ";".join(tag for tag in registered if tag not in names)
    return f"--registered-tags '{left}'" if left else "--delete registered-tags"


def _tags_of(instance: Instance) -> set[str]:
    return {marks.TAG, marks.tag_of(instance.lab), *instance.settings.get("tags", ())}


def _tag_access_parts(written: Any) -> Mapping[str, Any]:
    """A property string, which the API may have taken apart already."""
    if isinstance(written, Mapping):
        return written
    values: dict[str, str] = {}
    for part in str(written).split(","):
        name, equals, value = part.partition("=")
        if equals:
            values[name] = value
    return values


def _tag_names(written: Any) -> tuple[str, ...]:
    if isinstance(written, str):
        return tuple(marks.tags_in(written))
    return tuple(map(str, written))
