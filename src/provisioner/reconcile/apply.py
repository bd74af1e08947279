"""Plans are walked through the providers, and what came of each change is read back.

Contains no decisions: what has to be done, and why, is in the plan.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from time import monotonic

from provisioner.hosts.base import Provider
from provisioner.values.errors import ProviderError, ProvisionError
from provisioner.values.events import ApplyComplete, ApplyErrored, ApplyProgress, ApplyStart, Event
from provisioner.values.plan import Change, differences, needs_restart
from provisioner.values.state import Device, Instance, Status

Emit = Callable[[Event], None]

PARALLEL_PER_HOST = 10
"""Containers worked on at once on one host: ten start in 10 s on two cores, more only wait for each other."""


@dataclass
class _Run:
    """One walk: what was done so far, and whether something failed; shared by all threads."""

    emit: Emit
    done: list[Change] = field(default_factory=list)
    failed: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def say(self, event: Event) -> None:
        with self.lock:
            self.emit(event)


def apply_instances(changes: Iterable[Change], providers: Mapping[str, Provider], emit: Emit) -> tuple[Instance, ...]:
    """Carry out changes of containers, and give what was made, read back, sorted by (host, name).

    Different containers are worked on at once, the changes of one container one after the other. After the first
    failure nothing new is begun; the error (``ProviderError``, or the failed one's own subclass) then says in its
    details what was done and what was not.
    """
    wanted = tuple(changes)
    run = _Run(emit)
    walks = _walked(_by_container(wanted), providers, run)
    errors = [error for walk in walks if (error := walk.exception()) is not None]
    if errors:
        raise _told(errors, wanted, run.done)
    made = [one for walk in walks if (one := walk.result()) is not None]
    return tuple(sorted(made, key=lambda one: (one.host, one.name)))


def _by_container(changes: Sequence[Change]) -> list[list[Change]]:
    groups: dict[tuple[str, str], list[Change]] = {}
    for change in changes:
        groups.setdefault((_instance(change).host, change.target), []).append(change)
    return list(groups.values())


def _walked(
    groups: Sequence[Sequence[Change]], providers: Mapping[str, Provider], run: _Run
) -> list[Future[Instance | None]]:
    """The finished walks, one per container."""
    with ExitStack() as stack:
        pools = {
            host: stack.enter_context(ThreadPoolExecutor(PARALLEL_PER_HOST))
            for host in sorted({_instance(group[0]).host for group in groups})
        }
        return [
            pools[host].submit(_walk, group, providers[host], run)
            for group in groups
            for host in [_instance(group[0]).host]
        ]


def _walk(group: Sequence[Change], provider: Provider, run: _Run) -> Instance | None:
    made = None
    for change in group:
        if run.failed.is_set():
            return None
        started = monotonic()
        run.say(ApplyStart(change.target, change.action))
        try:
            made = _VERBS[change.action](change, provider, run)
        except BaseException as error:
            run.failed.set()
            message = error.message if isinstance(error, ProvisionError) else repr(error)
            run.say(ApplyErrored(change.target, change.action, message))
            raise
        run.done.append(change)
        run.say(ApplyComplete(change.target, change.action, monotonic() - started))
    return made


def _create(change: Change, provider: Provider, run: _Run) -> Instance:
    wanted = _instance(change)
    _compare(wanted, provider.create(wanted))
    return _start(change, provider, run)


def _start(change: Change, provider: Provider, run: _Run) -> Instance:
    wanted = _instance(change)
    run.say(ApplyProgress(change.target, "start"))
    provider.start(wanted)
    run.say(ApplyProgress(change.target, "wait until it is ready"))
    made = provider.wait_until_ready(wanted)
    _compare(replace(wanted, status=Status.RUNNING), made)
    return made


def _update(change: Change, provider: Provider, run: _Run) -> Instance:
    wanted = _instance(change)
    made = provider.update(wanted)
    _compare(wanted, made)
    if made.status is Status.RUNNING and needs_restart(change.attributes()):
        run.say(ApplyProgress(change.target, "restart"))
        provider.stop(wanted)
        return _start(change, provider, run)
    return made


def _replace(change: Change, provider: Provider, run: _Run) -> Instance:
    run.say(ApplyProgress(change.target, "stop the old one"))
    provider.stop(_instance(change))
    run.say(ApplyProgress(change.target, "delete the old one"))
    _delete(change, provider, run)
    run.say(ApplyProgress(change.target, "create the new one"))
    return _create(change, provider, run)


def _stop(change: Change, provider: Provider, _run: _Run) -> Instance | None:
    provider.stop(_instance(change))
    return _read(provider, _instance(change))


def _adopt(change: Change, provider: Provider, _run: _Run) -> Instance:
    return provider.adopt(_instance(change))


def _delete(change: Change, provider: Provider, _run: _Run) -> None:
    provider.delete(_instance(change))
    if _read(provider, _instance(change)) is not None:
        raise ProviderError(f"Unable to delete container {change.target}", details="It is still there.")


_VERBS: Mapping[str, Callable[[Change, Provider, _Run], Instance | None]] = {
    "create": _create,
    "update": _update,
    "replace": _replace,
    "start": _start,
    "stop": _stop,
    "delete": _delete,
    "adopt": _adopt,
}


def _read(provider: Provider, instance: Instance) -> Instance | None:
    return provider.observe(instance.lab).instance(instance.name)


def _compare(wanted: Instance, made: Instance) -> None:
    """Believe the host, not the request: what it says it has must be what was wanted."""
    pairs = differences(_in_order(made), _in_order(wanted))
    pairs.pop("reaches", None)  # its host is told when all containers run and have addresses
    if wanted.status and wanted.status is not made.status:
        pairs["status"] = (made.status, wanted.status)
    wrong = [f"{name}: wanted {one}, is {found}" for name, (found, one) in pairs.items()]
    if wrong:
        raise ProviderError(
            f"Unable to make container {wanted.name} as the file says",
            details="\n".join(wrong),
            resolution="The host took the request and made something else: look at its own log.",
        )


def _in_order(instance: Instance) -> Instance:
    # Hosts keep devices by name, in no order.
    return replace(instance, devices=tuple(sorted(instance.devices, key=lambda one: one.name)))


def _instance(change: Change) -> Instance:
    found = change.after or change.before
    if not isinstance(found, Instance):
        raise TypeError(f"change {change.action} of {change.target} is not of a container")
    return found


def _told(errors: Sequence[BaseException], wanted: Sequence[Change], done: Sequence[Change]) -> BaseException:
    """The first failure with what was done and what was not; a mistake of ours (no ``ProvisionError``) as it is."""
    first = next((one for one in errors if not isinstance(one, ProvisionError)), errors[0])
    if not isinstance(first, ProvisionError):
        return first
    details = [first.details, *(str(one) for one in errors if one is not first)]
    details.append("Done: " + _list(done))
    details.append("Not done: " + _list([one for one in wanted if one not in done]))
    kind = type(first) if isinstance(first, ProviderError) else ProviderError
    told = kind(first.message, details="\n".join(filter(None, details)), resolution=first.resolution)
    told.__cause__ = first
    return told


def _list(changes: Sequence[Change]) -> str:
    return ", ".join(f"{one.action} {one.target}" for one in changes) or "nothing"


# Mounts of before: a container keeps its volumes and published ports while its services go over to others.

NO_LONGER_USED = "what its services used before goes"
NOT_TAKEN_UP = "what came for its services is no longer mounted"


def with_former_mounts(change: Change) -> Change:
    """The update of a container, but that it keeps its mounted volumes, and the way of ports that are published.

    A port of the host that is to lead elsewhere in the same container does so once somebody listens there.
    A volume does not stay whose folder is above or below that of one that comes: nothing can be mounted inside of one
    that is read-only. Where nothing runs nothing uses it. Other changes than updates are given as they are.
    """
    updated = _updated(change)
    if updated is None:
        return change
    before, after = updated
    former = {(device.name, *_entrance(device)): device for device in before.devices if device.kind == "publish"}
    devices = [former.get((device.name, *_entrance(device)), device) for device in after.devices]
    devices += _leaving(before.devices, after.devices)
    if tuple(devices) == after.devices:
        return change
    return replace(change, after=replace(after, devices=tuple(sorted(devices, key=lambda device: device.name))))


def last_step(change: Change) -> Change | None:
    """What is left of an update once nothing uses what was mounted before; None where nothing is."""
    kept = with_former_mounts(change).after
    if kept == change.after:
        return None
    return replace(change, before=kept, reason=NO_LONGER_USED)


def undone(change: Change) -> Change | None:
    """The way back from the first step of an update that mounted more, and did nothing else; None from another one."""
    updated = _updated(with_former_mounts(change))
    if updated is None:
        return None
    before, kept = updated
    if not _has_only_more_volumes(before, kept):
        return None
    return replace(change, before=kept, after=before, reason=NOT_TAKEN_UP)


def _updated(change: Change) -> tuple[Instance, Instance] | None:
    """A running container before and after an update; None for another change."""
    before, after = change.before, change.after
    if change.action != "update":
        return None
    if not isinstance(before, Instance) or not isinstance(after, Instance):
        return None
    if before.status is not Status.RUNNING:
        return None
    return before, after


def _has_only_more_volumes(before: Instance, after: Instance) -> bool:
    """Whether all that was there is there as it was, and what came is volumes."""
    same_but_for_devices = replace(before, devices=after.devices)
    if differences(same_but_for_devices, after):
        return False
    devices = {device.name: device for device in after.devices}
    for device in before.devices:
        if devices.pop(device.name, None) != device:
            return False
    kinds = {device.kind for device in devices.values()}
    return kinds <= {"volume"}


def _leaving(before: Sequence[Device], after: Sequence[Device]) -> list[Device]:
    """The volumes of ``before`` that go, and could stay beside those of ``after``."""
    names = {device.name for device in after}
    folders = [_folder(device) for device in _volumes(after)]
    leaving = []
    for device in _volumes(before):
        if device.name in names:
            continue
        folder = _folder(device)
        in_the_way = [other for other in folders if _overlap(folder, other)]
        if not in_the_way:
            leaving.append(device)
    return leaving


def _volumes(devices: Sequence[Device]) -> list[Device]:
    return [device for device in devices if device.kind == "volume"]


def _entrance(device: Device) -> tuple[str | None, ...]:
    """Return what a published port takes of its host."""
    return device.properties.get("listen"), device.properties.get("protocol")


def _folder(device: Device) -> PurePosixPath:
    return PurePosixPath(device.properties["path"])


def _overlap(one: PurePosixPath, other: PurePosixPath) -> bool:
    return one.is_relative_to(other) or other.is_relative_to(one)
