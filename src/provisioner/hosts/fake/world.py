"""What the fake host consists of, and how its containers are found."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from provisioner.values.errors import ProviderError
from provisioner.values.host_facts import UNKNOWN, Pool
from provisioner.values.state import Device, Execution, Instance

Program = Callable[["Container", Sequence[str], bytes, Mapping[str, str]], Execution]


@dataclass
class State:
    """What a snapshot holds of a container: what it was, and its files."""

    instance: Instance
    files: dict[str, bytes]
    modes: dict[str, int]


@dataclass
class Container:
    """One container of the fake: what it is, and its files."""

    instance: Instance
    files: dict[str, bytes] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)
    """What its snapshots hold, by their names."""

    def state(self) -> State:
        """A copy of what it is now."""
        return State(self.instance, dict(self.files), dict(self.modes))


class World:
    """The fake's host; its attributes are its state, for tests to set and read."""

    memory = 0
    """Bytes that the host says it has; it says nothing where they are 0."""
    pool = Pool("disks", UNKNOWN, UNKNOWN)
    """The storage of all disks."""
    dhcp = True
    """Whether anybody answers containers that ask for an address, as those do whose settings name none."""
    confines = False
    refusal = ""
    """Why it cannot hold containers to what they reach although it says that it may."""

    def __init__(self, images: Iterable[str], room: int) -> None:
        self.images = set(images)
        self.room = room
        """How many containers the storage pool can hold."""
        self.published: dict[tuple[str, int], str] = {}
        """The ports of the host that others publish, and who they are."""
        self.architecture = "x86_64"
        self.processor_flags: frozenset[str] = frozenset()
        self.available = True
        self.never_ready: set[str] = set()
        """Names of containers that start and never come up."""
        self.stops_in: dict[str, float] = {}
        """Seconds that running containers take to end cleanly, by their names; at once, where nothing is said."""
        self.killed: set[str] = set()
        """Names of containers that were ended by force before they had ended by themselves."""
        self.elsewhere: dict[str, str] = {}
        """Containers that were moved out of reach, and where they are."""
        self.alters: dict[str, object] = {}
        """Attributes that the host sets to something else than asked for, as a host with own limits would."""
        self.obstacles: dict[str, str] = {}
        self.newest_only = False
        """Why no snapshot can be taken of a container, by its name."""
        self.profile: tuple[Device, ...] = ()
        """Devices that every container of the host has beside its own."""
        self.containers: dict[str, Container] = {}
        self.mutex = threading.RLock()
        """Held by whoever changes something."""

    def container(self, name: str, what: str) -> Container:
        """The container of that name; ``ProviderError`` that begins with ``what`` when there is none."""
        if name not in self.containers:
            raise ProviderError(what, details="There is no such container.")
        return self.containers[name]

    def owned(self, instance: Instance, verb: str) -> Container | None:
        """The container; None when there is none, ``ProviderError`` when it is not this lab's."""
        container = self.containers.get(instance.name)
        if container is not None and container.instance.lab != instance.lab:
            details = f"It does not bear the mark of lab {instance.lab}: provision did not make it."
            raise ProviderError(f"Unable to {verb} container {instance.name}", details=details)
        return container

    def existing(self, instance: Instance, verb: str) -> Container:
        """The container of this lab; ``ProviderError`` when there is none."""
        found = self.owned(instance, verb)
        return found or self.container(instance.name, f"Unable to {verb} container {instance.name}")

    def require_room(self, name: str, what: str) -> None:
        """Refuse a name that is taken, and any when the pool is full."""
        if name in self.containers:
            raise ProviderError(what, details="The name is taken.")
        if len(self.containers) >= self.room:
            raise ProviderError(what, details="No space left on device", resolution="The pool is full: grow it.")


def asks_dhcp(instance: Instance) -> bool:
    """Whether it asks for an address: its settings name none."""
    network: Mapping[str, str] = instance.settings.get("network", {})
    return network.get("ip", "dhcp") == "dhcp"


# The few programs that a container of the fake knows.


def _cat(_container: Container, _command: Sequence[str], stdin: bytes, _environment: Mapping[str, str]) -> Execution:
    return Execution(0, stdin, b"")


def _true(_container: Container, _command: Sequence[str], _stdin: bytes, _environment: Mapping[str, str]) -> Execution:
    return Execution(0, b"", b"")


def _false(_container: Container, _command: Sequence[str], _stdin: bytes, _env: Mapping[str, str]) -> Execution:
    return Execution(1, b"", b"")


def _printenv(_container: Container, command: Sequence[str], _stdin: bytes, env: Mapping[str, str]) -> Execution:
    return Execution(0, env[command[1]].encode() + b"\n", b"") if command[1] in env else Execution(1, b"", b"")


def _stat(container: Container, command: Sequence[str], _stdin: bytes, _environment: Mapping[str, str]) -> Execution:
    """``stat -c %a PATH``."""
    mode = container.modes.get(command[-1])
    return Execution(1, b"", b"No such file") if mode is None else Execution(0, f"{mode:o}\n".encode(), b"")


def _tail(container: Container, command: Sequence[str], _stdin: bytes, _environment: Mapping[str, str]) -> Execution:
    """``tail -c BYTES -- PATH``."""
    content = container.files.get(command[-1])
    if content is None:
        return Execution(1, b"", f"tail: cannot open '{command[-1]}' for reading: No such file or directory".encode())
    return Execution(0, content[-int(command[2]) :], b"")


PROGRAMS: Mapping[str, Program] = {
    "cat": _cat,
    "true": _true,
    "false": _false,
    "printenv": _printenv,
    "stat": _stat,
    "tail": _tail,
}
