"""What every verb needs to know of one Proxmox node: its client, and whose and where a container is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cached_property, partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from provisioner.hosts.base import Provider
from provisioner.hosts.proxmox import api, failures, marks
from provisioner.hosts.proxmox.access import Access
from provisioner.hosts.proxmox.api import Client
from provisioner.hosts.proxmox.failures import PveError
from provisioner.hosts.proxmox.guest import Guest, address_in, guest_of, pools_of, snapshots_of, status_of
from provisioner.hosts.proxmox.ssh import Shell
from provisioner.hosts.proxmox.translate import instance_of
from provisioner.values.errors import ProviderError
from provisioner.values.state import Instance, Status

if TYPE_CHECKING:
    from provisioner.hosts.proxmox.api import Client

DISKS = "rootdir"
MACHINE = "x86_64"
"""What a node is unless it says something else: Proxmox supports nothing else."""
CAN_SNAPSHOT = frozenset({"lvmthin", "zfspool", "btrfs", "rbd"})
"""The types of storage that can remember the disk of a container."""

Entry = Mapping[str, Any]


@contextmanager
def worded(message: str) -> Iterator[None]:
    """Turn whatever fails into an error that begins with ``message``; what cannot be reached stays that."""
    try:
        with failures.worded(message):
            yield
    except ProviderError as error:
        if error.message.startswith(message):
            raise
        details = "\n".join(filter(None, (error.message, error.details)))
        raise type(error)(message, details=details, resolution=error.resolution) from error


class ProxmoxHost(Provider):
    """One node of Proxmox VE, reached through its API, and over ssh where the file says how."""

    def __init__(self, host: str, *, access: Access) -> None:
        super().__init__(host)
        self.access = access
        self.client = Client(access)
        self.ssh = Shell(access)
        self._vmids: dict[str, int] = {}
        self._begun: set[str] = set()
        self._is_pct_explained = False
        self._lock = threading.Lock()

    @property
    def shell(self) -> Shell | None:
        """The way to run commands on the node; None where the file gives none."""
        return self.ssh if self.access.ssh else None

    def path(self, vmid: int, *rest: object) -> tuple[object, ...]:
        """Where the API has a container."""
        return ("nodes", self.client.node, "lxc", vmid, *rest)

    def entries(self) -> list[Entry]:
        """The node's containers as they are now."""
        found: list[Entry] = self.client.get("nodes", self.client.node, "lxc")
        return found

    def turn(self, storage: str) -> AbstractContextManager[None]:
        """Wait until nothing else of ours creates, copies or starts on that storage."""
        return storage_turn(self.access.url, self.client.node, storage)

    def task(self, start: Callable[[], Any], name: str, timeout_s: float = api.TASK_TIMEOUT_S) -> str:
        """Start a task, tell how it goes, and wait for its end."""
        return self.client.run(lambda: str(start()), name=name, on_progress=self.on_progress, timeout_s=timeout_s)

    def explain_pct(self, why: str) -> None:
        """Say once why containers of this node are entered by ``pct`` itself."""
        with self._lock:
            is_explained, self._is_pct_explained = self._is_pct_explained, True
        if not is_explained:
            self.on_progress(self.host, f"each command in a container takes a second more here, by pct: {why}")

    def begun(self, upid: Any) -> str:
        """Remember a task as ours."""
        with self._lock:
            self._begun.add(str(upid))
        return str(upid)

    def is_orphaned(self, task: Entry) -> bool:
        """Whether an active task was begun by this user or token, but not by this run."""
        ours = f"{self.access.user}!{self.access.token_id}" if self.access.token_secret else self.access.user
        user = str(task.get("user", ""))
        if task.get("tokenid"):
            user += f"!{task['tokenid']}"
        if user != ours or task.get("endtime"):
            return False
        with self._lock:
            return str(task["upid"]) not in self._begun

    def bears_mark(self, vmid: int, wanted: Instance) -> bool:
        """Whether the container of that number is the one that was wanted: its name and its lab's mark say so."""
        config = self.client.find(*self.path(vmid, "config"))
        found = guest_of(vmid, config, {}) if config is not None else None
        return found is not None and (found.name, found.lab) == (wanted.name, wanted.lab)

    def settle(self, vmid: int, name: str) -> None:
        """Wait for the end of whatever works on a container, well or badly; what came of it is read back."""
        for task in self.client.get("nodes", self.client.node, "tasks", source="active", vmid=vmid):
            try:
                self.client.task(str(task["upid"]), name=name, on_progress=self.on_progress)
            except PveError as error:
                if isinstance(error, failures.UnreachableError):
                    raise

    def guest(self, entry: Entry, pool: str = "") -> Guest | None:
        """The container in a list's entry; None when it has gone since."""
        vmid = int(entry["vmid"])
        config = self.client.find(*self.path(vmid, "config"))
        if config is None:
            return None
        return guest_of(vmid, config, entry, pool)

    def remember(self, guest: Guest) -> None:
        """Remember under which number a container is found by its name: another lab may have one of that name."""
        with self._lock:
            self._vmids[guest.name] = guest.vmid

    def config(self, vmid: int) -> Guest:
        """A container's configuration alone; its status is not asked for."""
        return guest_of(vmid, self.client.get(*self.path(vmid, "config")), {})

    def now(self, vmid: int) -> Guest:
        """A container's configuration and status."""
        config, status = self.client.many(
            [partial(self.client.get, *self.path(vmid, *rest)) for rest in (("config",), ("status", "current"))]
        )
        return guest_of(vmid, config, status)

    def whole(self, vmid: int) -> Guest:
        """All that is known of a container."""
        calls = ("config",), ("status", "current"), ("snapshot",)
        asked: list[Callable[[], Any]] = [partial(self.client.get, *self.path(vmid, *rest)) for rest in calls]
        config, status, kept, pools = self.client.many([*asked, self.pools])
        found = guest_of(vmid, config, status, pools.get(vmid, ""))
        seen = self.client.get(*self.path(vmid, "interfaces")) if found.status is Status.RUNNING else None
        self.remember(found)
        return replace(found, snapshots=snapshots_of(kept, vmid), address=address_in(seen))

    def pools(self) -> dict[int, str]:
        """The pools of the cluster's guests."""
        return pools_of(self.client.get("cluster", "resources", type="vm"))

    def seen(self, vmid: int) -> Instance:
        """A container read back, its disks as large as they are, whether or not their file systems have grown."""
        return instance_of(self.whole(vmid).as_if_grown, self.host)

    def guests_named(self, name: str) -> list[Guest]:
        """The containers of that name that are still there."""
        guests = []
        for entry in self.entries():
            if entry.get("name") != name:
                continue
            guest = self.guest(entry)
            if guest is not None:
                guests.append(guest)
        return guests

    def owned(self, instance: Instance, verb: str) -> Guest | None:
        """The container; None when there is none, ``ProviderError`` when it is not this lab's."""
        guests = self.guests_named(instance.name)
        ours = [guest for guest in guests if guest.lab == instance.lab]
        if len(ours) > 1:
            numbers = ", ".join(str(guest.vmid) for guest in ours)
            raise ProviderError(
                f"Unable to {verb} container {instance.name}: there are {len(ours)} of that name",
                details=f"CT {numbers} bear the mark of lab {instance.lab}.",
                resolution="Rename or delete all but one: pct set VMID --hostname NAME",
            )
        if ours:
            self.remember(ours[0])
            return ours[0]
        if guests:
            raise ProviderError(
                f"Unable to {verb} container {instance.name}",
                details=f"CT {guests[0].vmid} does not bear the mark of lab {instance.lab}: provision did not make it.",
                resolution="Choose another name in the file; provision never touches what it did not make.",
            )
        return None

    def existing(self, instance: Instance, verb: str) -> Guest:
        """The container of this lab; ``ProviderError`` when there is none."""
        found = self.owned(instance, verb)
        if found is None:
            raise self._absent(f"Unable to {verb} container {instance.name}", instance.name, instance.lab)
        return found

    def status(self, vmid: int) -> Status:
        """What a container is doing now."""
        return status_of(self.client.get(*self.path(vmid, "status", "current")))

    def find_vmid(self, name: str) -> int | None:
        """The VMID of the container of that name, one of ours if there is one.

        Raises ``ProviderError`` where several labs have one, and nobody has said which is meant.
        """
        with self._lock:
            if name in self._vmids:
                return self._vmids[name]
        guests = self.guests_named(name)
        ours = {guest.vmid: guest.lab for guest in guests if guest.mark is not None}
        if len(set(ours.values())) > 1:
            named = " and ".join(f"CT {vmid} of lab {lab}" for vmid, lab in sorted(ours.items()))
            raise ProviderError(
                f"Unable to tell which container {name} is meant",
                details=f"Node {self.client.node} has {named}.",
                resolution="Rename one of them (pct set VMID --hostname NAME) and write the name into its lab's file.",
            )
        return min(ours or [guest.vmid for guest in guests], default=None)

    def vmid(self, name: str, what: str) -> int:
        """The VMID of the container of that name; ``ProviderError`` that begins with ``what`` when there is none."""
        found = self.find_vmid(name)
        if found is None:
            raise self._absent(what, name)
        return found

    def _absent(self, what: str, name: str, lab: str = "") -> ProviderError:
        """The error for a container that is not on the node: it may have been moved to another one."""
        named = [guest for guest in self.client.get("cluster", "resources", type="vm") if guest.get("name") == name]
        guest = containers_elsewhere(self.client, named, lab).get(name)
        if guest is not None:
            details = f"It is on {elsewhere_text(guest)} now."
            return ProviderError(what, details=details, resolution=elsewhere_hint(self.client.node, guest))
        return ProviderError(what, details=f"There is no container {name} on node {self.client.node}.")

    def forget(self, vmid: int) -> None:
        """Remember a VMID no longer: somebody else may get it."""
        with self._lock:
            self._vmids = {name: one for name, one in self._vmids.items() if one != vmid}

    @cached_property
    def _node_status(self) -> Entry:
        try:
            status: Entry = self.client.get("nodes", self.client.node, "status")
        except PveError as error:
            if error.status != HTTPStatus.FORBIDDEN:
                raise
            return {}  # who may not ask can work all the same
        return status

    @property
    def machine(self) -> str:
        """What kind of processor the node has, as ``uname -m`` says it."""
        return str((self._node_status.get("current-kernel") or {}).get("machine", MACHINE))

    @property
    def processor_flags(self) -> frozenset[str]:
        """The flags of the node's processors, as the kernel names them; empty where the node does not tell."""
        return frozenset(str((self._node_status.get("cpuinfo") or {}).get("flags", "")).split())

    @cached_property
    def storage(self) -> str:
        """The storage for new disks: the file's, or the first fit one, such as has snapshots before all others."""
        if self.access.storage:
            return self.access.storage
        storages = self.client.get("nodes", self.client.node, "storage", content=DISKS, enabled=True)
        active = [storage for storage in storages if storage.get("active", 1)]
        fit = [(storage["type"] not in CAN_SNAPSHOT, str(storage["storage"])) for storage in active]
        if not fit:
            raise ProviderError(
                f"Unable to use node {self.client.node}: no storage holds disks of containers",
                resolution="Let one hold them: pvesm set NAME --content rootdir,images",
            )
        _, name = min(fit)
        return name


# Containers of a lab that are on another node now: somebody has migrated them, or they failed over.


def containers_elsewhere(client: Client, guests: Iterable[Mapping[str, Any]], lab: str) -> dict[str, Mapping[str, Any]]:
    """The lab's containers on other nodes by their names, as ``/cluster/resources`` lists them in ``guests``.

    ``lab``: "" for those of any lab.
    Tags say which may be the lab's, and the mark of each decides; of a node that is down the tags are all there is.
    """
    candidates = [guest for guest in guests if _may_be_elsewhere(guest, client.node, lab)]
    owners = client.many([partial(_lab_elsewhere, client, guest) for guest in candidates])
    found: dict[str, Mapping[str, Any]] = {}
    for guest, owner in zip(candidates, owners, strict=True):
        is_of_any_lab = bool(owner) and not lab
        if owner is None or owner == lab or is_of_any_lab:
            found[str(guest["name"])] = {**guest, "is_silent": owner is None}
    return found


def _may_be_elsewhere(guest: Mapping[str, Any], node: str, lab: str) -> bool:
    """Whether a guest is a container on another node whose tags are the lab's; ``lab``: "" for any lab."""
    if not guest.get("name") or guest.get("type") != "lxc" or guest.get("node") == node:
        return False
    tags = str(guest.get("tags", ""))
    if lab:
        return marks.is_candidate(tags, lab)
    return marks.TAG in marks.tags_in(tags)


def elsewhere_text(guest: Mapping[str, Any]) -> str:
    """Where such a container is."""
    return f"node {guest['node']}, as CT {guest['vmid']}"


def elsewhere_hint(node: str, guest: Mapping[str, Any]) -> str:
    """What to do about it; ``node``: the host's own."""
    back = f"Bring it back, on node {guest['node']}: pct migrate {guest['vmid']} {node}"
    hint = f"{back} (--restart where it runs); or write node: {guest['node']} on the host's page."
    if guest.get("is_silent"):
        return f"Node {guest['node']} does not answer, and nothing can be done there before it is started. {hint}"
    return hint


def _lab_elsewhere(client: Client, entry: Mapping[str, Any]) -> str | None:
    """The lab of a guest on another node, "" for none; None where its node is down, and its tags are all there is."""
    vmid = int(entry["vmid"])
    try:
        config = client.find("nodes", entry["node"], "lxc", vmid, "config") or {}
    except PveError as error:
        if error.status not in failures.NODE_DOWN:
            raise
        return None
    _, mark = marks.read_mark(str(config.get("description", "")), vmid)
    return mark.lab if mark else ""


# Turns in this process: one create, clone or start at a time on each storage of each node, because PVE's own locks
# time out before they are done.

_TURNS: dict[tuple[str, str, str], threading.RLock] = {}
_LOCK = threading.Lock()


@contextmanager
def storage_turn(url: str, node: str, storage: str) -> Iterator[None]:
    """Wait until nobody else of this process works there; nodes and storages go side by side."""
    key = (url.rstrip("/").lower(), node, storage)
    with _LOCK:
        mine = _TURNS.setdefault(key, threading.RLock())
    with mine:
        yield
