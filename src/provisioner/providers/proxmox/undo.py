"""Take back a change that has failed half-way, and say what of it was written."""

from __future__ import annotations

from dataclasses import replace

from provisioner.providers.proxmox import copies, failures, marks
from provisioner.providers.proxmox.failures import PveError
from provisioner.providers.proxmox.growing import size_of
from provisioner.providers.proxmox.guest import Guest
from provisioner.providers.proxmox.host import ProxmoxHost
from provisioner.providers.proxmox.translate import Options
from provisioner.providers.proxmox.write import Draft, move, put
from provisioner.values.errors import ProviderError

_WORDS = {"description": "description and mark", "rootfs": "disk"}


def undone(host: ProxmoxHost, before: Guest, draft: Draft, error: PveError | ProviderError) -> ProviderError:
    """Make the container what it was, as far as that can be done; the error says what was written and what was not."""
    if isinstance(error, ProviderError):
        reason, resolution = error.details, error.resolution
    else:
        reason, resolution = error.log, failures.resolution(error)
    lines = [error.message, reason]
    try:
        lines += _put_back(host, before, draft)
    except (PveError, ProviderError) as second:
        lines.append(f"What was written could not be put back: {second}. See, on the node: pct config {before.vmid}")
    what = f"Unable to change container {before.name}"
    return ProviderError(what, details="\n".join(filter(None, lines)), resolution=resolution)


def _put_back(host: ProxmoxHost, before: Guest, draft: Draft) -> list[str]:
    """Restore the options and the pool; return what was written, what was not and what stays, as lines."""
    now = replace(host.config(before.vmid), pool=host.pools().get(before.vmid, ""))
    written = _written(before, now, draft)
    grown = {slot for slot in draft.sizes if size_of(now, slot) > size_of(before, slot)}
    asked = {*draft.options, *draft.sizes}
    if draft.pool is not None:
        asked.add("pool")
    missing = asked - written - grown
    lines = [f"Written: {_words(written | grown)}; not written: {_words(missing)}."]
    if written:
        _restore(host, before, now, written)
        lines.append(f"What was written was put back: {_words(written)}.")
    if grown:
        lines.append(f"A disk cannot be made smaller again: {_words(grown)}.")
    return lines


def _written(before: Guest, now: Guest, draft: Draft) -> set[str]:
    """The names of what differs from before."""
    names = {name for name in draft.options if before.config.get(name) != now.config.get(name)}
    if (before.text, before.mark) != (now.text, now.mark):
        names.add("description")
    if before.pool != now.pool:
        names.add("pool")
    return names


def _restore(host: ProxmoxHost, before: Guest, now: Guest, written: set[str]) -> None:
    options: Options = {name: before.config.get(name) for name in written - {"description", "pool"}}
    new_volumes = _new_volumes(now, options)
    if before.mark is not None and ("description" in written or new_volumes):
        mark = replace(before.mark, discard=(*before.mark.discard, *new_volumes))
        options["description"] = marks.written(before.text, mark)
    put(host, now, options, now.digest)
    if "pool" in written:
        move(host, before.vmid, now.pool, before.pool)
    copies.tidy(host, before.vmid)


def _new_volumes(now: Guest, options: Options) -> tuple[str, ...]:
    """The disks that were made for this change: they may be deleted again, because nothing is on them yet."""
    volumes = []
    for slot, value_before in options.items():
        if value_before is None and slot.startswith("mp"):
            volume = now.config[slot].partition(",")[0]
            volumes.append(volume.removeprefix("volume="))
    return tuple(volumes)


def _words(names: set[str]) -> str:
    words = [_WORDS.get(name, name) for name in names]
    return ", ".join(sorted(words)) or "nothing"
