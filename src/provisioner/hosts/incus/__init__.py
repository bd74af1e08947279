"""Incus, here or elsewhere: the verbs of ``Provider``; pylxd is imported here only, and only by what needs it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from provisioner.hosts.base import PLUGIN_MODULES, READY_TIMEOUT_S, Kind, Provider
from provisioner.hosts.incus import api, observe, translate
from provisioner.hosts.incus.api import Endpoint, WireError, local_endpoint
from provisioner.hosts.incus.inside import Inside
from provisioner.hosts.incus.translate import LAB, instance_of, ports_of_others, request_for, updated
from provisioner.values import paths
from provisioner.values.errors import ProviderError
from provisioner.values.plan import Change
from provisioner.values.state import Fleet, HostState, Instance

if TYPE_CHECKING:
    from provisioner.hosts.incus.network import Network
    from provisioner.hosts.incus.volumes import Volumes
    from provisioner.inside.file_systems import Run
    from provisioner.lab.resolved import ResolvedLab
    from provisioner.labfile.hosts import IncusHost
    from provisioner.values.host_facts import Capacity, HostFact

_PARALLEL = 10


class IncusProvider(Inside, Provider):
    """One Incus host, reached through its unix socket or over https; one object serves many threads."""

    kind: ClassVar[str] = "incus"

    volumes: cached_property[Volumes]
    network: cached_property[Network]

    def check_available(self) -> None:
        """Return when Incus answers and this user may use it; ``UnavailableError`` that says what to do, else."""
        with api.reachable(self.endpoint):
            api.require_trust(self.endpoint, self.client.get())

    def observe(self, lab: str, *, detailed: bool = True, adopt: Collection[str] = ()) -> Fleet:
        """The containers of ``lab`` as they are now, and what else the host has."""
        with api.reachable(self.endpoint):
            found, others = observe.divided_by_project(self.client)
            found = self._complete(found)
            moved = observe.in_other_projects(others, lab)
            aliases = self.client.get("images", "aliases", recursion="1")
            server = self.client.get()
            processor_flags = observe.flags_of(self.client, server, is_remote=self.endpoint.is_remote)
            complete = self.volumes.ready()
            ours = [entry for entry in found if entry["config"].get(LAB) == lab]
            ours.sort(key=lambda entry: str(entry["name"]))
            if detailed:
                ours = self._detailed(ours)
            held = self.network.read(lab, server, ours)
        names = frozenset(entry["name"] for entry in found)
        our_names = frozenset(entry["name"] for entry in ours)
        state = HostState(
            name=self.host,
            architecture=server["environment"]["kernel_architecture"],
            processor_flags=processor_flags,
            unmanaged=names - our_names,
            images=frozenset(alias["name"] for alias in aliases),
            volumes=complete,
            published=ports_of_others([*found, *others], lab),
            adoptable=self._adoptable(found, adopt) if adopt else {},
            confines=held is not None,
            moved={name: observe.project_text(project) for name, project in moved.items()},
            moved_hints={name: observe.project_hint(name, project) for name, project in moved.items()},
        )
        instances = [replace(instance_of(one, self.host), **(held or {}).get(one["name"], {})) for one in ours]
        return Fleet(lab, tuple(instances), hosts={self.host: state})

    def _adoptable(self, found: Sequence[Mapping[str, Any]], names: Collection[str]) -> dict[str, Instance]:
        from provisioner.hosts.incus import containers

        return containers.adoptable(found, names, self.host)

    def review(self, changes: Sequence[Change]) -> tuple[str, ...]:
        """What should be known of the containers that are to be adopted."""
        from provisioner.hosts.incus import containers

        notes = list[str]()
        for change in changes:
            if change.action != "adopt":
                continue
            with api.reachable(self.endpoint):
                found = self.client.find("instances", change.container)
            if found is not None:
                notes += containers.adoption_notes(found)
        return tuple(notes)

    def read(self, reference: str) -> Instance | None:
        """The container of that name, whoever made it; a virtual machine is none."""
        from provisioner.hosts.incus import containers

        with self.worded(f"Unable to look at container {reference}"):
            found = self.whole(reference)
            if found is None or found["type"] != "container":
                return None
            return containers.described_unmarked(self.client, found, self.host)

    def adopt(self, instance: Instance) -> Instance:
        """Put the lab's mark on a container that bears none, and read it back."""
        from provisioner.hosts.incus import containers

        with self.worded(f"Unable to adopt container {instance.name}"):
            marked = partial(containers.with_mark, instance=instance)
            containers.change(self.client, instance.name, marked, self.root_disk)
            return self.read_back(instance.name)

    def capacity(self, changes: Sequence[Change]) -> Capacity:
        """Return the host's memory, and the storages on which these changes make or enlarge disks."""
        from provisioner.hosts.incus import health  # nothing that a run without changes needs

        with api.reachable(self.endpoint):
            return health.capacity(self.client, self.pool, changes)

    def examine(self, images: Collection[str], lab: str) -> tuple[HostFact, ...]:  # noqa: ARG002 - all labs are alike
        """What was seen of this host."""
        from provisioner.hosts.incus import health  # nothing that a run needs

        return health.examine(self.host, self.client, self.profile, lambda: self.pool, images)

    def create(self, instance: Instance) -> Instance:
        """Create the container from a local image, unprivileged and stopped, and read it back."""
        with self.worded(f"Unable to create container {instance.name}"):
            self._require_image(instance)
            body = request_for(instance, self.root_disk, self.pool) | {"profiles": [self.profile]}
            try:
                self.client.change("post", "instances", body=body)
                if translate.needed_groups(instance.devices):
                    self._make(instance)
            except (WireError, ProviderError) as error:
                if not (isinstance(error, WireError) and api.is_name_clash(error)):
                    self.delete(instance)
                raise
            return self.read_back(instance.name)

    def update(self, instance: Instance) -> Instance:
        """Make the container what ``instance`` says, and read it back; nesting counts from the next start."""
        from provisioner.hosts.incus import containers

        with self.worded(f"Unable to change container {instance.name}"):
            before = instance_of(self.existing(instance, "change"), self.host)
            with containers.watched_growth(
                before, instance, self._asked_in(instance.name), self._saying(instance), self.pool
            ):
                self._make(instance)
            self._keep_processors(before, instance)
            return self.read_back(instance.name)

    def _keep_processors(self, before: Instance, wanted: Instance) -> None:
        """Have a changed number of processors count."""
        if wanted.cpu in (None, before.cpu):
            return
        from provisioner.hosts.incus import containers

        host_has = self.client.get("resources")["cpu"]["total"]
        containers.keep_processors(
            before,
            wanted,
            self._asked_in(wanted.name),
            lambda number: self._make(replace(wanted, cpu=number)),
            host_has,
        )

    def _asked_in(self, name: str) -> Run:
        from provisioner.inside import file_systems

        return lambda command: self.execute(name, command, timeout_s=file_systems.TIMEOUT_S)

    def _saying(self, instance: Instance) -> Callable[[str], None]:
        return lambda words: self.on_progress(instance.name, words)

    def _make(self, instance: Instance) -> None:
        from provisioner.hosts.incus import containers

        needed = translate.needed_groups(instance.devices)
        groups = self._groups(instance.name, needed) if needed else translate.NO_GROUPS
        root, pool = self.root_disk, self.pool
        containers.change(self.client, instance.name, lambda body: updated(body, instance, root, pool, groups), root)

    def _groups(self, name: str, needed: Collection[str]) -> translate.Groups:
        from provisioner.gpus.choice import FILE, numbers_in
        from provisioner.hosts.incus import files

        return numbers_in(files.read(self.endpoint, name, FILE).decode(errors="replace"), needed)

    def start(self, instance: Instance) -> None:
        """Start the container, or resume one that is frozen; a running one is success."""
        from provisioner.hosts.incus import containers

        with self.worded(f"Unable to start container {instance.name}"):
            status = self.owned(instance, "start").get("status")
            if status != "Running":
                # Incus says of a frozen one that it is running already, and starts nothing.
                action = "unfreeze" if status == "Frozen" else "start"
                containers.begin(self.client, self.endpoint, instance.name, action)

    def stop(self, instance: Instance, timeout_s: float | None = None) -> None:
        """Stop it cleanly, by force after ``timeout_s`` or its ``stop_s``; a stopped or missing one is success."""
        from provisioner.hosts.incus import stopping

        patience_s = instance.stop_s if timeout_s is None else timeout_s
        with self.worded(f"Unable to stop container {instance.name}"):
            found = self.owned(instance, "stop")
            if found.get("status", "Stopped") == "Stopped":
                return
            if found["status"] == "Frozen":
                self._change_state(instance.name, "unfreeze")  # it could not hear that it shall stop
            if not stopping.stop_cleanly(self.client, instance.name, patience_s):
                self._stop_by_force(instance.name)

    def delete(self, instance: Instance) -> None:
        """Delete the container, running or not; a missing one is success, one without this lab's mark is refused."""
        with self.worded(f"Unable to delete container {instance.name}"):
            found = self.owned(instance, "delete")
            if not found:
                return
            if found["status"] != "Stopped":
                self._stop_by_force(instance.name)
            self.client.change("delete", "instances", instance.name)
            self.network.delete(instance)

    def wait_until_ready(self, instance: Instance, timeout_s: float = READY_TIMEOUT_S) -> Instance:
        """Block until systemd has started and the container has an IPv4 address, and read it back."""
        from provisioner.hosts.incus import containers

        with self.worded(f"Unable to wait for container {instance.name}"):
            containers.wait_until_ready(self.client, instance.name, timeout_s, self._saying(instance))
            return self.read_back(instance.name)

    def clone(self, instance: Instance, name: str) -> Instance:
        """Copy the container as it is now, running or not, and read the copy back."""
        from provisioner.hosts.incus import snapshots

        with self.worded(f"Unable to clone container {instance.name} as {name}"):
            self.existing(instance, "clone")
            snapshots.copy(self.client, instance.name, name, self.root_disk)
            return self.read_back(name)

    def connection_variables(self, name: str) -> dict[str, str]:
        """Our connection plugin, and where Incus is."""
        return {
            "ansible_connection": "provision_incus",
            "provision_instance": name,
            **self.endpoint.variables,
        }

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
        """Run ``command`` as root in the container, its streams joined to ours while it runs."""
        from provisioner.hosts.incus import attach  # a terminal is nothing that every run needs

        with self.worded(f"Unable to run {command[0]} in container {name}"):
            ends = attach.Ends(stdin, stdout, stderr, terminal)
            return attach.attach(self.endpoint, name, command, ends, environment)

    def _detailed(self, found: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """The containers with their states and snapshots, each asked for by its name.

        A listing with the states of all fails as a whole when any container of the host just starts or stops.
        """
        with ThreadPoolExecutor(_PARALLEL) as pool:
            entries = pool.map(lambda entry: self.whole(entry["name"]), found)
            return [entry for entry in entries if entry is not None]

    def _complete(self, found: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """The containers with their marks: one that is just starting or stopping is listed as an error without any."""
        complete: list[Mapping[str, Any]] = []
        for entry in found:
            has_mark = entry["config"] is not None
            whole = entry if has_mark else self._without_state(entry["name"])
            if whole is not None:
                complete.append(whole)
        return complete


# The same for each host of this kind: how it is reached by its page in the file, and what an ejected lab takes along.


def client_pair() -> tuple[Path, Path]:
    """The files of this user's client certificate and of its key, whether they are there or not."""
    return paths.config() / "client.crt", paths.config() / "client.key"


def endpoint_of(page: IncusHost, folder: Path) -> Endpoint:
    """Where that Incus is, by its page; one elsewhere is shown this user's certificate where the page names none."""
    if page.is_here:
        return local_endpoint()
    cert, key = (folder / Path(one).expanduser() if one else None for one in (page.cert, page.key))
    own = client_pair()
    return Endpoint(page.incus.rstrip("/"), str(cert or own[0]), str(key or own[1]), page.fingerprint or "")


def _settings(_name: str, page: IncusHost, folder: Path, _lab: ResolvedLab | None) -> dict[str, Any]:
    return {"endpoint": endpoint_of(page, folder)}


def _beyond_the_file(provider: IncusProvider, instance: Instance) -> tuple[str, ...]:
    """Keys and devices of the container and its profiles that have no word in a file."""
    with provider.worded(f"Unable to look at container {instance.name}"):
        return tuple(translate.beyond_the_file(provider.client.get("instances", instance.name)))


KIND = Kind(
    _settings,
    start_command="incus start {name}",
    beyond_the_file=_beyond_the_file,
    plugin_modules=(
        *PLUGIN_MODULES,
        "values/regular_files",
        "hosts/incus/api",
        "hosts/incus/execute",
        "hosts/incus/files",
        "hosts/incus/inside",
        "hosts/incus/stopping",
        "hosts/incus/translate",
    ),
    plugin_words="`provision_incus` speaks to the socket of Incus on this machine; you have to be in its group "
    "(`incus-admin`). An Incus elsewhere is shown the client certificate that `hosts.yml` names; its key is not here. "
    "With the program `incus` and the collection community.general, `ansible_connection: "
    "community.general.incus` does the same.",
)
DRIVER = IncusProvider
