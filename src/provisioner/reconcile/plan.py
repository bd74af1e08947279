"""Plans: the changes by which the actual lab becomes the desired one. A pure comparison."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from provisioner.values.address import Address
from provisioner.values.errors import PreflightError
from provisioner.values.plan import (
    AS_MADE,
    AS_PROVED,
    AS_WRITTEN,
    RESUMED,
    Change,
    ImpossiblePlanError,
    Inside,
    Plan,
    Wishes,
    differences,
    needs_restart,
)
from provisioner.values.quantities import size_text
from provisioner.values.state import Artifact, Fleet, HostState, Instance, InstanceKind, Service, Status

_PLURALS = frozenset({"devices", "mounts", "host devices", "features", "tags"})
"""Attributes and settings whose names are plural."""


def make_plan(desired: Fleet, actual: Fleet, *, inside: Inside = AS_PROVED, wishes: Wishes = AS_WRITTEN) -> Plan:
    """The changes that lead from ``actual`` to ``desired``.

    Of a container that does not run only the start is planned: what is inside is looked at when it runs.
    Raises ``ImpossiblePlanError`` when a wanted name belongs to an unmanaged container or a wanted image does not
    exist.
    """
    wanted = list(desired.instances)
    if wishes.targets:
        wanted = [container for container in wanted if container.name in wishes.targets]
    refusals = [*_of_moved(wanted, actual), *_of_taken(wanted, actual)]
    reasons = [refusal.error for refusal in refusals]
    reasons += _of_images(wanted, actual)
    for refusal in refusals:
        wanted = [container for container in wanted if container not in refusal.containers]
    orphans = _orphans(desired, actual)
    changes = _builder_deletions(desired, actual)
    if wishes.prune:
        changes += _deletions(orphans, "not in the file")
        orphans = []
    changes += _artifact_changes(desired, actual, wanted)
    changes += _container_changes(wanted, actual, inside, wishes)
    plan = Plan(tuple(changes), tuple(orphans), inside.leftovers)
    if reasons:
        raise ImpossiblePlanError(reasons, plan)
    return plan


def _container_changes(wanted: list[Instance], actual: Fleet, inside: Inside, wishes: Wishes) -> Iterator[Change]:
    """Adopt what is to be adopted, then change, make or start each container, in the file's order."""
    for container in wanted:
        yield from _adoption(container, actual)
    for container in wanted:
        yield from _instance_changes(container, _present(container, actual), inside, wishes)


def _deletions(containers: Iterable[Instance], reason: str) -> list[Change]:
    return [Change("delete", container.name, container, None, reason) for container in containers]


def _orphans(desired: Fleet, actual: Fleet) -> list[Instance]:
    """The containers of the lab that are not in the file and do not only build."""
    orphans = list[Instance]()
    for container in actual.instances:
        is_serving = container.kind is InstanceKind.SERVING
        if is_serving and desired.instance(container.name) is None:
            orphans.append(container)
    return orphans


def _builder_deletions(desired: Fleet, actual: Fleet) -> list[Change]:
    """The deletion of the builders with which no build goes on."""
    going_on = [_begun(artifact, actual) for artifact in desired.artifacts]
    left_over = list[Instance]()
    for container in actual.instances:
        is_builder = container.kind is InstanceKind.BUILDER
        if is_builder and container not in going_on:
            left_over.append(container)
    return _deletions(left_over, "left over from an interrupted build")


def make_destroy_plan(
    actual: Fleet, named: Collection[str], *, targets: Collection[str] = (), prune: bool = False
) -> Plan:
    """The deletion of the containers that the file names, or of ``targets`` only; the rest of the lab are orphans.

    Orphans go with ``prune`` or by their names: another file may have the same lab. Containers that only build go, too.
    """
    doomed, orphans = _divided(actual, named, targets)
    if prune:
        doomed, orphans = [*doomed, *orphans], []
    return Plan(tuple(_deletions(doomed, "destroy was asked for")), tuple(orphans))


def make_stop_plan(actual: Fleet, named: Collection[str], *, targets: Collection[str] = ()) -> Plan:
    """The stop of the running containers that the file names, or of ``targets`` only; the rest are orphans."""
    ours, orphans = _divided(actual, named, targets)
    running = [container for container in ours if container.status is not Status.STOPPED]
    changes = [Change("stop", container.name, container, container, "down was asked for") for container in running]
    return Plan(tuple(changes), tuple(orphans))


def _divided(actual: Fleet, named: Collection[str], targets: Collection[str]) -> tuple[list[Instance], list[Instance]]:
    """The containers that are to be destroyed or stopped, and the orphans: neither file nor command line names them."""
    wanted = frozenset(targets or named)
    ours, orphans = list[Instance](), list[Instance]()
    for container in actual.instances:
        is_builder = container.kind is InstanceKind.BUILDER and not targets
        if container.name in wanted or is_builder:
            ours.append(container)
        elif container.name not in named:
            orphans.append(container)
    return ours, orphans


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why nothing is planned for these containers."""

    error: PreflightError
    containers: tuple[Instance, ...]


def _of_moved(wanted: list[Instance], actual: Fleet) -> Iterator[_Refusal]:
    """Refuse to make a second one of what is this lab's and has been moved to where its driver does not work."""
    moved, details, hints = list[Instance](), list[str](), list[str]()
    for container in wanted:
        host = _host(container.host, actual)
        there = actual.instance(container.name)
        is_at_home = there is not None and there.host == container.host
        if container.name not in host.moved or is_at_home:
            continue
        moved.append(container)
        details.append(f"{container.name} is {host.moved[container.name]} now, and the file has it on host {host.name}")
        if there is None:
            hints.append(host.moved_hints[container.name])
        else:
            hints.append(f"Write host: {there.host} for {container.name}.")
    if moved:
        error = PreflightError(
            f"Unable to plan container {_names(moved)}: it is this lab's, and elsewhere",
            details="\n".join(details),
            resolution="\n".join(hints),
        )
        yield _Refusal(error, tuple(moved))


OF_NOBODY = "that is not of this lab"


def _of_taken(wanted: list[Instance], actual: Fleet) -> Iterator[_Refusal]:
    """Refuse to make containers whose names unmanaged ones on the same host have."""
    taken, details = list[Instance](), list[str]()
    for container in wanted:
        is_taken = container.name in _host(container.host, actual).unmanaged
        if is_taken and _adopted(container, actual) is None:
            taken.append(container)
            owner = _host(container.host, actual).owners.get(container.name)
            details.append(f"host {container.host} has a container {container.name} {owner or OF_NOBODY}")
    if taken:
        error = PreflightError(
            f"Unable to plan container {_names(taken)}: the name is taken",
            details="; ".join(details),
            resolution=f"Choose another name in the file, such as {taken[0].lab}-{taken[0].name}, or rename the other "
            "container; provision never touches it. A whole lab is deleted with its own file: provision destroy FILE",
        )
        yield _Refusal(error, tuple(taken))


def _of_images(wanted: list[Instance], actual: Fleet) -> Iterator[PreflightError]:
    """An error for each image of a new container that its host does not have."""
    containers_by_image = dict[tuple[str, str], list[Instance]]()
    for container in wanted:
        host = actual.hosts.get(container.host)
        is_new = _present(container, actual) is None
        if is_new and host is not None and container.image not in host.images:
            containers_by_image.setdefault((container.host, container.image), []).append(container)
    for (host_name, image), containers in containers_by_image.items():
        there = actual.hosts[host_name]
        images = ", ".join(sorted(there.images)) or "none"
        yield PreflightError(
            f"Unable to plan container {_names(containers)}: image {image} not found on host {host_name}",
            details=f"Images there: {images}",
            resolution=there.image_hint.format(image=image),
        )


def _names(instances: Iterable[Instance]) -> str:
    return ", ".join(instance.name for instance in instances)


def _adopted(wanted: Instance, actual: Fleet) -> Instance | None:
    """The container that is to become this lab's, as it is; its image is what the file says."""
    adoptable = _host(wanted.host, actual).adoptable.get(wanted.name)
    if adoptable is None or not wanted.adopt:
        return None
    return replace(adoptable, image=wanted.image)


def _present(wanted: Instance, actual: Fleet) -> Instance | None:
    """The container as it is now, this lab's already or to be adopted; None when it has to be made."""
    return actual.instance(wanted.name) or _adopted(wanted, actual)


def _adoption(wanted: Instance, actual: Fleet) -> Iterator[Change]:
    """The mark that makes a container this lab's, where it has none."""
    if actual.instance(wanted.name) is not None:
        return
    adopted = _adopted(wanted, actual)
    if adopted is not None:
        yield Change("adopt", wanted.name, adopted, replace(adopted, lab=wanted.lab), "the file says adopt")


def _begun(artifact: Artifact, actual: Fleet) -> Instance | None:
    """The builder that an ended run has left and the next build begins with."""
    if not artifact.resumable or _is_built(artifact, actual):
        return None
    begun = (artifact.builder, artifact.host, artifact.image, InstanceKind.BUILDER)
    for container in actual.instances:
        if (container.name, container.host, container.image, container.kind) == begun:
            return container
    return None


def _is_built(artifact: Artifact, actual: Fleet) -> bool:
    """Whether its host has the whole artifact; a half-made one is not listed."""
    return artifact.volume in _host(artifact.host, actual).volumes


def _host(name: str, actual: Fleet) -> HostState:
    """What was observed of the host; an empty state where it was not."""
    return actual.hosts.get(name, HostState(name))


def _artifact_changes(desired: Fleet, actual: Fleet, wanted: list[Instance]) -> Iterator[Change]:
    """The builds of the artifacts that the wanted containers use and their hosts do not have."""
    needed = set[tuple[str, str]]()
    for container in wanted:
        needed.update((container.host, volume) for volume in _volumes(container).values())
    for artifact in desired.artifacts:
        is_needed = (artifact.host, artifact.volume) in needed
        if is_needed and not _is_built(artifact, actual):
            begun = "; goes on where an earlier run stopped" if _begun(artifact, actual) else ""
            made_for = f"; made {artifact.made_for}" if artifact.made_for else ""
            yield Change("build", artifact.name, None, artifact, f"not on host {artifact.host} yet{made_for}{begun}")


def _instance_changes(after: Instance, before: Instance | None, inside: Inside, wishes: Wishes) -> Iterator[Change]:
    """What makes the container ``before``, if there is one, the container ``after``."""
    if before is None:
        yield Change("create", after.name, None, after, "in the file, not on the host")
        return
    why_replaced = _why_replaced(before, after, wishes)
    if why_replaced:
        yield Change("replace", after.name, before, after, why_replaced)
        return
    if before.status is Status.FROZEN:
        yield from _frozen_changes(before, after)
        return
    differing = differences(before, after)
    if differing:
        kept_out = _kept_out(after, inside)
        yield Change("update", after.name, before, after, _words(differing, before, after), kept_out=kept_out)
    if before.status is not Status.RUNNING:
        yield Change("start", after.name, before, after, f"is {before.status}")
        return
    yield from _role_changes(after, inside)


def _why_replaced(before: Instance, after: Instance, wishes: Wishes) -> str:
    """Why the container cannot stay, or is not to; empty where it can be changed as it is."""
    if after.name in wishes.replace:
        return "its replacement was asked for"
    if _shrinks(before, after):
        return "its disk cannot become smaller"
    differing = differences(before, after)
    return "" if AS_MADE.isdisjoint(differing) else _differ(differing)


def _frozen_changes(before: Instance, after: Instance) -> Iterator[Change]:
    """Resume the container before anything else: nothing can be asked of it, or done in it, while it is frozen."""
    differing = differences(before, after)
    yield Change("start", after.name, before, before if differing else after, RESUMED)
    if differing:
        running = replace(before, status=Status.RUNNING)
        yield Change("update", after.name, running, after, _words(differing, running, after))


def _role_changes(after: Instance, inside: Inside) -> Iterator[Change]:
    """The services of a running container that have to be configured again."""
    for service in after.roles:
        reasons = inside.reasons.get(service.address, ())
        if reasons:
            start_s = inside.starts.get(service.address, 0.0)
            kept_out = _kept_out(after, inside, service)
            yield Change("configure", service.address, None, service, "; ".join(reasons), start_s, kept_out)


def _kept_out(container: Instance, inside: Inside, changed: Service | None = None) -> tuple[Address, ...]:
    """The services of a container that people are kept out of while it may go back, beside the changed one."""
    found = list[Address]()
    for service in container.services:
        is_another = service is not changed
        if is_another and service.address in inside.closable:
            found.append(service.address)
    return tuple(found)


def _shrinks(before: Instance, after: Instance) -> bool:
    """Whether the disk would lose room: what lies there may not fit."""
    if before.disk is None or after.disk is None:
        return False
    return after.disk < before.disk


def _words(differing: Mapping[str, tuple[Any, Any]], before: Instance, after: Instance) -> str:
    """In what the container differs from the file, whether that needs a restart, and what only the next one frees."""
    words = _differ(differing)
    if before.status is Status.RUNNING and needs_restart(differing):
        words = f"{words}: it is restarted"
    held = _held_disks(before, after)
    if held:
        words = f"{words}; {size_text(held)} of disks that it no longer uses stay taken until its next start"
    return words


def _held_disks(before: Instance, after: Instance) -> int:
    """The bytes of the disks that a running container no longer needs, and keeps until it is started again."""
    if before.status is not Status.RUNNING:
        return 0
    needed = _volumes(after).values()
    return sum(size for volume, size in before.artifact_disks.items() if volume not in needed)


def _differ(names: Collection[str]) -> str:
    """That these attributes and settings differ from the file, as a sentence."""
    is_plural = len(names) > 1 or not _PLURALS.isdisjoint(names)
    verb = "differ" if is_plural else "differs"
    return f"{', '.join(names)} {verb} from the file"


def _volumes(instance: Instance) -> dict[str, str]:
    """Where volumes are mounted in the container → their names."""
    volumes = [device for device in instance.devices if device.kind == "volume"]
    return {volume.properties["path"]: volume.properties["volume"] for volume in volumes}
