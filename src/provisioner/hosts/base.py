"""The promises of every provider, the few verbs by which the program touches a host; and what drivers share.

A provider contains no decisions: it is told exactly what to make and reads back what it made. Deleting what is
missing succeeds. Nothing without this lab's mark is ever changed. Each driver decides in one function what
"not found" is, and retries only transient errors that it names.
"""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from provisioner.values import limits
from provisioner.values.errors import ProviderError
from provisioner.values.plan import Change
from provisioner.values.state import Device, Execution, Fleet, Instance, Snapshot

if TYPE_CHECKING:
    from provisioner.gpus.cards import Card
    from provisioner.gpus.health import HostDriver
    from provisioner.lab.resolved import ResolvedLab
    from provisioner.values.host_facts import Capacity, HostFact

READY_TIMEOUT_S = 120.0
LOOKS = 20
"""Containers that are looked into at once on one host."""

PLUGIN_MODULES = (
    "values/errors",
    "values/limits",
    "values/one_version",
    "values/plain_data",
    "values/declared",
    "values/state",
    "values/address",
    "inside/module_server/client",
    "inside/module_server/handing",
    "inside/module_server/server",
    "inside/module_server/start",
    "inside/module_server/stop",
)
"""Modules below ``provisioner`` that each connection plugin of ours imports."""

OnProgress = Callable[[str, str], None]
Promise = TypeVar("Promise", bound="Part")


@dataclass(frozen=True, slots=True)
class Looked:
    """What one look into containers gave, by their names; ``volumes``: those of the host, where a look tells them.

    ``failures``: of the containers in which it could not be run, or did not end within its limits.
    """

    executions: Mapping[str, Execution]
    volumes: frozenset[str] | None = None
    failures: Mapping[str, ProviderError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Kind:
    """What a driver says of all hosts of its kind, as ``KIND`` of its package.

    What follows from a host's page in the file alone is said by that: ``labfile.hosts.KindOfHost``.
    """

    settings: Callable[[str, Any, Path, ResolvedLab | None], Mapping[str, Any]]
    """The provider's settings for a host, by its name and page; a relative path in the page is one in the folder.
    Without a lab nothing is said of single containers."""
    start_command: str
    """How people start a container on the host itself: ``name`` and the container's ``settings`` are filled in."""
    beyond_the_file: Callable[[Any, Instance], tuple[str, ...]] = lambda *_: ()
    """What a container of a provider has that no block can say, and that changes leave as it is; each in words."""
    plugin_modules: tuple[str, ...] = ()
    """All modules below ``provisioner`` that the connection plugin ``provision_<kind>`` imports."""
    plugin_words: str = ""
    """How that plugin reaches containers, and what it takes, for the README of an ejected lab."""


class Part:
    """What a provider has one of: the driver's own class of that name, in its module of that name."""

    def __init__(self, host: Any) -> None:
        self._host = host


class Locks(Part, ABC):
    """Objects of a host of which the server alone decides who made one."""

    kind: ClassVar[str]
    """What such an object is, in the host's own words."""
    removal: ClassVar[str]
    """How people delete one, ``name`` filled in."""
    heartbeat_s: ClassVar[float] = 3.0
    """How often the holder of a lock writes on it."""
    patience_s: ClassVar[float] = 20.0
    """For how long a lock must stand still until its holder counts as dead."""

    @abstractmethod
    def create(self, name: str, properties: Mapping[str, str]) -> bool:
        """Make the lock object ``name``; False when there is one: of any number at once the host lets one win."""

    @abstractmethod
    def read(self, prefix: str) -> dict[str, dict[str, str]]:
        """The properties of the lock objects whose names begin with ``prefix``, by name."""

    @abstractmethod
    def renew(self, name: str, properties: Mapping[str, str]) -> bool:
        """Replace its properties; False when it is gone, or another one (of another ``nonce``) has its name."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete the lock object; a missing one is success."""


class Volumes(Part, ABC):
    """Artifact volumes of a host; ``Provider.observe`` tells which of them are complete."""

    forms: ClassVar[tuple[str, ...]] = ("tar",)
    """Endings of exported volumes that ``import_from`` reads; the first is what ``export`` writes."""

    @property
    def store(self) -> str:
        """The name of the host's store of volumes, where other hosts have the same ``locks``; else empty."""
        return ""

    @abstractmethod
    def ready(self) -> frozenset[str]:
        """Return the names of the volumes whose content is complete."""

    @abstractmethod
    def builder(self, volume: str) -> str:
        """Return what ``Provider.read`` takes for the container, of any lab, in which the volume is made, or ""."""

    @abstractmethod
    def create(self, volume: str, digest: str) -> None:
        """Make an empty volume, not ready yet; a half-made one of that name is replaced."""

    @abstractmethod
    def mark_ready(self, volume: str) -> None:
        """Say that the volume's content is complete; only such volumes are observed."""

    @abstractmethod
    def delete(self, volume: str) -> None:
        """Delete the volume; a missing one is success; so is one in use, by a snapshot too, which is left."""

    @abstractmethod
    def export(self, volume: str, target: Path) -> None:
        """Write the volume's content as one file, atomically (a partial file never has the final name)."""

    @abstractmethod
    def import_from(self, volume: str, digest: str, source: Path) -> None:
        """Make the volume from an exported file and mark it ready."""


class Snapshots(Part, ABC):
    """Snapshots of the containers of a host."""

    @abstractmethod
    def take(self, instance: Instance, name: str) -> Snapshot:
        """Keep the container's disk and settings as they are now under ``name``, until ``delete``."""

    @abstractmethod
    def delete(self, instance: Instance, name: str) -> None:
        """Delete one of the container's snapshots; a missing one is success."""

    @abstractmethod
    def rollback(self, instance: Instance, name: str) -> Instance:
        """Make disk and settings what the snapshot holds, running as it was before; all snapshots stay."""

    @abstractmethod
    def obstacle(self, instance: Instance) -> str:
        """Why a snapshot would not hold all of it, in words; empty when it would; asked of nobody's containers, too."""

    def is_newest_only(self, instance: Instance) -> bool:  # noqa: ARG002 - for drivers that know of one
        """Whether only the newest snapshot can be rolled back to: then what it is now cannot be kept before."""
        return False


class Cards(Part, ABC):
    """The graphics cards of a host; all but ``repair`` only look, and raise ``UnavailableError`` when we may not."""

    @abstractmethod
    def read(self) -> tuple[Card, ...]:
        """The cards, in the order of their addresses."""

    def driver(self) -> HostDriver:
        """What the host does for its cards, for ``doctor``."""
        from provisioner.gpus.health import HostDriver  # nothing that a lab without cards needs

        return HostDriver()

    def repair(self) -> str:
        """Make the nodes of NVIDIA's cards that are missing, where the host is this machine; what was done, in words.

        Empty where nothing can be done from here; raises ``ProviderError`` when it was tried and failed.
        """
        return ""


class Network(Part):
    """How containers of a host are reached, and what they reach; a driver says what its host can do."""

    def confine(self, instance: Instance) -> str:  # noqa: ARG002 - for drivers whose hosts have such rules
        """Have the host itself hold a running container to what it ``reaches``; no rules where that is None.

        Addresses are those of now. Why the host cannot, in its own words, is given back; empty where it does.
        """
        return ""

    def publications(self, name: str) -> tuple[Device, ...]:  # noqa: ARG002 - for drivers whose hosts pass ports on
        """Return the container's devices of kind ``publish``, whoever added them, also to what it inherits from."""
        return ()

    def address(self, name: str) -> str | None:  # noqa: ARG002 - for drivers whose containers have one
        """The container's own address in the LAN while it runs; None where it has none, or none yet."""
        return None


def _part(promise: Callable[..., Promise]) -> cached_property[Promise]:
    """An attribute of a provider that is the part of its driver which keeps a promise, imported at its first use."""

    def made(provider: Provider) -> Promise:
        module = import_module(f"provisioner.hosts.{provider.kind}.{promise.__name__.lower()}")
        part: Promise = getattr(module, promise.__name__)(provider)
        return part

    return cached_property(made)


class Provider(ABC):
    """One host of a lab, reached through its own API."""

    kind: ClassVar[str]
    """The name of the driver's folder."""
    can_publish: ClassVar[bool] = True
    """Whether the host passes ports of its own on to containers; else a container has an address in the LAN itself."""

    locks = _part(Locks)
    volumes = _part(Volumes)
    snapshots = _part(Snapshots)
    cards = _part(Cards)
    network = _part(Network)

    def __init__(self, host: str) -> None:
        self.host = host
        self.on_progress: OnProgress = lambda _name, _message: None
        """Told what a long task of the host is doing, by the container's name; called from any thread."""

    @abstractmethod
    def check_available(self) -> None:
        """Return when the host answers and lets us work; raise ``UnavailableError`` that says what to do, else."""

    @abstractmethod
    def observe(self, lab: str, *, detailed: bool = True, adopt: Collection[str] = ()) -> Fleet:
        """The containers of ``lab`` as they are now, and this host's ``HostState``.

        ``detailed`` False leaves out addresses and snapshots, for which a host has to look into each container, and
        volumes where ``look`` tells them. Of the containers named in ``adopt``, those that are there without any lab's
        mark are ``HostState.adoptable``.
        """

    @abstractmethod
    def read(self, reference: str) -> Instance | None:
        """Any container of the host, ours or not, by its name or the host's own id; ``lab`` "" when it is nobody's.

        Its ``image`` is "" when the host does not know what it was made of.
        """

    @abstractmethod
    def adopt(self, instance: Instance) -> Instance:
        """Put the lab's mark on a container that bears none, change nothing else of it, and read it back.

        One that bears this lab's mark already is success, one of another lab is refused; so is one that is missing.
        """

    def review(self, changes: Sequence[Change]) -> tuple[str, ...]:  # noqa: ARG002 - for drivers that know more
        """What should be known of changes on this host before they are begun, in words; only looks.

        Raises ``PreflightError`` for what the host would refuse.
        """
        return ()

    def capacity(self, changes: Sequence[Change]) -> Capacity:  # noqa: ARG002 - for drivers that know more
        """Return the host's memory, and the storages on which these changes make or enlarge disks; only looks."""
        from provisioner.values.host_facts import Capacity  # nothing that a run without changes needs

        return Capacity()

    def examine(self, images: Collection[str], lab: str) -> tuple[HostFact, ...]:  # noqa: ARG002 - for other drivers
        """What was seen of the host itself for ``lab``, as ``doctor`` says it; ``images``: what the file needs there.

        Only looks. A host that does not answer is no error here: that it does not is what was seen.
        """
        return ()

    @abstractmethod
    def create(self, instance: Instance) -> Instance:
        """Create the container (stopped), wait for the host's task, read it back; on failure nothing is left of it."""

    @abstractmethod
    def update(self, instance: Instance) -> Instance:
        """Make cpu, memory, disk, nesting and devices of an existing one what ``instance`` says, and read it back.

        All in one request, running or stopped; nesting counts from the next start. On failure nothing is changed.
        """

    @abstractmethod
    def start(self, instance: Instance) -> None:
        """Start it, or resume one that is frozen; a running one is success."""

    @abstractmethod
    def stop(self, instance: Instance, timeout_s: float | None = None) -> None:
        """Stop it cleanly, by force after ``timeout_s`` or its ``stop_s``; a stopped or missing one is success."""

    @abstractmethod
    def delete(self, instance: Instance) -> None:
        """Delete it, running or not; a missing one is success, one without this lab's mark is refused."""

    @abstractmethod
    def wait_until_ready(self, instance: Instance, timeout_s: float = READY_TIMEOUT_S) -> Instance:
        """Block until its system runs and it has an address; raise ``ReadyTimeoutError`` with its console log."""

    @abstractmethod
    def execute(
        self,
        name: str,
        command: Sequence[str],
        *,
        stdin: bytes = b"",
        environment: dict[str, str] | None = None,
        timeout_s: float = limits.COMMAND_S,
        limit: int = limits.OUTPUT_BYTES,
    ) -> Execution:
        """Run ``command`` as root in the container and give all of its output; a non-zero exit is not an error.

        One that takes longer than ``timeout_s``, or writes more than ``limit`` bytes to one of its outputs, is killed:
        ``ProviderError`` says which.
        """

    def look(
        self, command: Sequence[str], stdins: Mapping[str, bytes], *, shared: bytes = b"", timeout_s: float
    ) -> Looked:
        """Run ``command`` in each container that ``stdins`` names, all at once: on ``shared``, then on its own input.

        One in which it cannot be run, or that hangs, is among the failures and keeps no other from answering.
        """

        def run(name: str) -> Execution | ProviderError:
            try:
                return self.execute(name, command, stdin=shared + stdins[name], timeout_s=timeout_s)
            except ProviderError as error:
                return error

        executions: dict[str, Execution] = {}
        failures: dict[str, ProviderError] = {}
        for name, ended in zip(stdins, _each(run, list(stdins)), strict=True):
            if isinstance(ended, ProviderError):
                failures[name] = ended
            else:
                executions[name] = ended
        return Looked(executions, failures=failures)

    @abstractmethod
    def push(
        self, name: str, source: Path | bytes, path: str, *, mode: int = 0o600, uid: int = 0, gid: int = 0
    ) -> None:
        """Write a file into the container, streamed from ``source``; raise ``ProviderError`` when it did not arrive."""

    @abstractmethod
    def pull(self, name: str, path: str, target: Path) -> None:
        """Copy a file out of the container to ``target``, streamed; raise ``ProviderError`` when it is missing."""

    @abstractmethod
    def clone(self, instance: Instance, name: str) -> Instance:
        """Copy it under ``name``: stopped, of the same lab, with an identity of its own, unpublished, no snapshots."""

    @abstractmethod
    def connection_variables(self, name: str) -> dict[str, str]:
        """The inventory variables by which Ansible reaches the container (``ansible_connection`` and its options)."""

    @abstractmethod
    def attach(
        self,
        name: str,
        command: Sequence[str],
        *,
        stdin: int,
        stdout: int,
        stderr: int,
        terminal: bool,
        environment: Mapping[str, str] | None = None,
    ) -> int:
        """Run ``command`` as root in the container, its streams joined to these descriptors, and give its exit code.

        ``terminal``: it gets a terminal of its own, and ours becomes raw meanwhile. Else an interruption ends it, with
        its children, and gives 130; a reader that goes away does, too, and gives 141.
        """


def _each(run: Callable[[str], Execution | ProviderError], names: Sequence[str]) -> list[Execution | ProviderError]:
    """What ``run`` gives for each name, all at once; a single one is run by this thread, which ctrl-c interrupts."""
    if len(names) == 1:
        return [run(names[0])]
    with ThreadPoolExecutor(max(1, min(LOOKS, len(names)))) as pool:
        return list(pool.map(run, names))


# Ways out of a container: what is public, and where names lead.

PRIVATE = (
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
    *("192.0.0.0/24", "192.0.2.0/24", "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/3"),
)
"""What is nobody's on the internet, as role ``egress`` has it; a test holds both."""
PRIVATE_6 = ("::/3", "4000::/2", "8000::/1")
"""All of IPv6 that is nobody's on the internet."""


def public_ranges(near: Iterable[str]) -> Iterator[str]:
    """All ranges that are public ("FIRST-LAST"), without the networks that a container is in itself."""
    taken = [ip_network(one) for one in (*PRIVATE, *PRIVATE_6, *near)]
    taken.sort(key=lambda one: (one.version, int(one.network_address)))
    free = {4: 0, 6: 0}
    for one in taken:
        first, last = int(one.network_address), int(one.broadcast_address)
        address, begin = type(one.network_address), free[one.version]
        if begin < first:
            yield f"{address(begin)}-{address(first - 1)}"
        free[one.version] = max(begin, last + 1)


def addresses_of(host: str, *, asks: bool) -> list[str]:
    """Return the addresses of a host: itself, or those that a name has for this machine, where it is ``asks``-ed."""
    with suppress(ValueError):
        return [str(ip_address(host))]
    if asks:
        with suppress(OSError):
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            return sorted({str(one[4][0]) for one in found})
    return []
