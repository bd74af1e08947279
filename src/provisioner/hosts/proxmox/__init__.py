"""Proxmox VE over its API: the verbs of ``Provider``; proxmoxer is imported here only, and at the first call.

Proxmox cannot run programs in containers over its API: these verbs, and artifact volumes, use ssh to the node.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from provisioner.hosts.base import PLUGIN_MODULES, READY_TIMEOUT_S, Kind, Looked
from provisioner.hosts.proxmox import (
    containers,
    create,
    execute,
    failures,
    observe,
    snapshots,
    templates,
    translate,
)
from provisioner.hosts.proxmox.access import SSH_CONFIG, Access, Direct
from provisioner.hosts.proxmox.host import ProxmoxHost, worded
from provisioner.values import limits, paths
from provisioner.values.plan import Change
from provisioner.values.state import Execution, Fleet, Instance

if TYPE_CHECKING:
    from provisioner.lab.resolved import ResolvedLab
    from provisioner.labfile.hosts import ProxmoxHost as Page
    from provisioner.values.host_facts import Capacity, HostFact


class ProxmoxProvider(ProxmoxHost):
    """One node of Proxmox VE; one object serves many threads."""

    kind: ClassVar[str] = "proxmox"
    can_publish: ClassVar[bool] = False

    def check_available(self) -> None:
        """Return when the API answers and lets us in, and the node is one of its cluster's."""
        with failures.reachable(f"Unable to use Proxmox VE at {self.access.url}"):
            self.client.get("nodes", self.client.node, "lxc")

    def observe(self, lab: str, *, detailed: bool = True, adopt: Collection[str] = ()) -> Fleet:
        """The containers of ``lab`` as they are now, and what else the node has."""
        with failures.reachable(f"Unable to look at node {self.host} at {self.access.url}"):
            return observe.observe(self, lab, detailed=detailed, adopt=adopt)

    def read(self, reference: str) -> Instance | None:
        """Any container of the node, by its host name or its VMID."""
        with failures.reachable(f"Unable to look at container {reference} of host {self.host}"):
            return containers.read_container(self, reference)

    def adopt(self, instance: Instance) -> Instance:
        """Put the lab's mark on a container that bears none."""
        with worded(f"Unable to adopt container {instance.name}"):
            return self.seen(containers.adopt_container(self, instance))

    def review(self, changes: Sequence[Change]) -> tuple[str, ...]:
        """What will be written as root@pam itself; ``PreflightError`` for all that the node would refuse."""
        from provisioner.hosts.proxmox.preflight import review_plan  # nothing that every run needs

        with failures.reachable(f"Unable to review the plan for host {self.host}"):
            return review_plan(self.client, self.access, self.shell, changes)

    def capacity(self, changes: Sequence[Change]) -> Capacity:
        """Return the node's memory, and the storages on which these changes make or enlarge disks."""
        from provisioner.hosts.proxmox import preflight  # nothing that a run without changes needs

        with failures.reachable(f"Unable to look at the storages of host {self.host}"):
            return preflight.plan_capacity(self.client, self.access, changes)

    def examine(self, images: Collection[str], lab: str) -> tuple[HostFact, ...]:
        """What was seen of the node and of what we may do there."""
        from provisioner.hosts.proxmox import health  # nothing that a run needs

        return health.examine(self.host, self.client, self.shell, images, lab)

    def ensure_template(self, image: str) -> bool:
        """Have the template of an image on the node; whether it was not there before."""
        with worded(f"Unable to have image {image} on host {self.host}"):
            before = templates.there(self.client, self.machine)
            if image in before:
                return False
            templates.provided(self.client, image, self.host, self.machine, self.on_progress)
            return True

    def create(self, instance: Instance) -> Instance:
        """Create the container of a template, stopped, and read it back."""
        with worded(f"Unable to create container {instance.name}"):
            return self.seen(create.create_container(self, instance))

    def update(self, instance: Instance) -> Instance:
        """Make the container what ``instance`` says, and read it back; what fails half-way is put back."""
        with worded(f"Unable to change container {instance.name}"):
            return self.seen(containers.update_container(self, instance))

    def start(self, instance: Instance) -> None:
        """Start the container; a running one is success."""
        with worded(f"Unable to start container {instance.name}"):
            containers.start_container(self, self.existing(instance, "start"))

    def stop(self, instance: Instance, timeout_s: float | None = None) -> None:
        """Stop it cleanly, by force after ``timeout_s`` or its ``stop_s``; a stopped or missing one is success."""
        patience_s = instance.stop_s if timeout_s is None else timeout_s
        with worded(f"Unable to stop container {instance.name}"):
            guest = self.owned(instance, "stop")
            if guest is not None:
                containers.stop_container(self, guest, patience_s)

    def delete(self, instance: Instance) -> None:
        """Delete the container and its disks, running or not; one without this lab's mark is refused."""
        with worded(f"Unable to delete container {instance.name}"):
            guest = self.owned(instance, "delete")
            if guest is not None:
                create.delete_container(self, guest)

    def wait_until_ready(self, instance: Instance, timeout_s: float = READY_TIMEOUT_S) -> Instance:
        """Block until it has an IPv4 address and, where ssh is there to ask, its systemd has started."""
        with worded(f"Unable to wait for container {instance.name}"):
            guest = self.existing(instance, "wait for")
            containers.wait_until_ready(self, guest, timeout_s)
            return self.seen(guest.vmid)

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
        """Run ``command`` as root in the container; one that is not there gives 127, one that hangs is killed."""
        what = f"Unable to run {command[0]} in container {name}"
        with worded(what):
            vmid = self.vmid(name, what)
            return execute.execute(
                self.ssh,
                vmid,
                command,
                stdin=stdin,
                environment=environment,
                timeout_s=timeout_s,
                limit=limit,
                name=name,
            )

    def look(
        self, command: Sequence[str], stdins: Mapping[str, bytes], *, shared: bytes = b"", timeout_s: float
    ) -> Looked:
        """Run ``command`` in all of these containers by one command on the node, which tells its volumes, too."""
        with worded(f"Unable to look into the containers of host {self.host}"):
            vmids = {name: self.vmid(name, f"Unable to look into container {name}") for name in stdins}
            return observe.look_into_containers(
                self.shell, command, vmids, stdins, shared=shared, timeout_s=timeout_s, on_pct=self.explain_pct
            )

    def push(
        self, name: str, source: Path | bytes, path: str, *, mode: int = 0o600, uid: int = 0, gid: int = 0
    ) -> None:
        """Write a file into the container, streamed."""
        what = f"Unable to copy a file to {path} in container {name}"
        with worded(what):
            execute.push_file(self.ssh, self.vmid(name, what), source, path, mode=mode, uid=uid, gid=gid, name=name)

    def pull(self, name: str, path: str, target: Path) -> None:
        """Copy a file out of the container, streamed; ``target`` appears when it is whole."""
        what = f"Unable to copy {path} from container {name}"
        with worded(what):
            execute.pull_file(self.ssh, self.vmid(name, what), path, target, name=name)

    def connection_variables(self, name: str) -> dict[str, str]:
        """Our connection plugin, the container's number, and how its node is reached; or its own sshd, made ready."""
        direct = self.access.direct
        if direct is not None and name in direct.ways:
            from provisioner.hosts.proxmox.prepare import direct_variables  # nothing that most labs need

            with worded(f"Unable to reach container {name}"):
                return direct_variables(self, direct, name)
        with worded(f"Unable to look for container {name}"):
            vmid = self.find_vmid(name)
        config = self.access.ssh_config
        found = {
            "ansible_connection": "provision_proxmox",
            "provision_instance": name,
            "provision_node": self.client.node,
            "provision_vmid": str(vmid or ""),
            "provision_ssh": self.access.ssh or "",
            "provision_ssh_config": str(config or ""),
        }
        return {key: value for key, value in found.items() if value}

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
        from provisioner.hosts.proxmox import attach  # a terminal is nothing that every run needs

        what = f"Unable to run {command[0]} in container {name}"
        with worded(what):
            ends = attach.Ends(stdin, stdout, stderr, terminal)
            return attach.attach(self.ssh, self.vmid(name, what), command, ends, environment, name=name)

    def clone(self, instance: Instance, name: str) -> Instance:
        """Copy the container as it is now, running or not, and read the copy back."""
        with worded(f"Unable to clone container {instance.name} as {name}"):
            guest = self.existing(instance, "clone")
            guest = replace(guest, pool=self.pools().get(guest.vmid, ""))
            return self.seen(snapshots.clone_container(self, guest, replace(instance, name=name)))


# The same for each host of this kind: how it is reached by its page in the file, and what an ejected lab takes along.


def access_of(page: Page, folder: Path) -> Access:
    """How the node is reached, by its page; a relative path in it is one in ``folder``."""
    config = os.environ.get(SSH_CONFIG)
    return Access(
        url=page.proxmox,
        user=page.user,
        token_id=page.token.id if page.token else None,
        token_secret=page.token.secret if page.token else None,
        password=page.password,
        ssh=page.ssh,
        ssh_config=Path(config) if config else None,
        ca=folder / Path(page.ca).expanduser() if page.ca else None,
        fingerprint=page.fingerprint,
        node=page.node,
        storage=page.storage,
        templates=page.templates,
        bridge=page.bridge,
        pool=page.pool,
    )


def _settings(name: str, page: Page, folder: Path, lab: ResolvedLab | None) -> dict[str, Any]:
    access = access_of(page, folder)
    return {"access": replace(access, direct=_direct(name, page, folder, lab)) if lab else access}


def _direct(name: str, page: Page, folder: Path, lab: ResolvedLab) -> Direct | None:
    """The containers of host ``name`` whose own sshd Ansible uses; None where there is none."""
    ways: dict[str, str] = {}
    for container in lab.containers.values():
        way = page.direct_way(container.written.block)
        if container.host == name and way:
            ways[container.name] = way
    if not ways:
        return None
    key = folder / Path(page.ssh_key).expanduser() if page.ssh_key else None
    return Direct((paths.state(lab.name) / "ssh").absolute(), ways, key.absolute() if key else None)


def _beyond_the_file(provider: ProxmoxProvider, instance: Instance) -> tuple[str, ...]:
    """Raw ``lxc`` lines, further network cards, hook scripts, limits and whatever else has no word in a file."""
    what = f"Unable to look at container {instance.name}"
    with worded(what):
        vmid = provider.vmid(instance.name, what)
        return tuple(translate.beyond_the_file(provider.client.get(*provider.path(vmid, "config"))))


KIND = Kind(
    _settings,
    start_command="pct start {vmid}",
    beyond_the_file=_beyond_the_file,
    plugin_modules=(
        *PLUGIN_MODULES,
        "hosts/proxmox/access",
        "hosts/proxmox/execute",
        "hosts/proxmox/ssh",
    ),
    plugin_words="`provision_proxmox` enters containers from their node, over ssh; you need a key for it.",
)
DRIVER = ProxmoxProvider
