"""A change that has failed half-way: what of it was written, and how it is put back."""

from __future__ import annotations

from dataclasses import replace

from provisioner.errors import ProviderError
from provisioner.providers.proxmox import copies, failures, marks
from provisioner.providers.proxmox.failures import PveError
from provisioner.providers.proxmox.growing import size_of
from provisioner.providers.proxmox.guest import Guest
from provisioner.providers.proxmox.host import ProxmoxHost
from provisioner.providers.proxmox.translate import Options
from provisioner.providers.proxmox.write import Draft, move, put

_WORDS = {"description": "description and mark", "rootfs": "disk"}


def undone(host: ProxmoxHost, before: Guest, draft: Draft, error: PveError | ProviderError) -> ProviderError:
    """Make the container what it was, as far as that can be done; the error says what was written and what was not."""
    said = [error.message, error.details] if isinstance(error, ProviderError) else [error.message, error.log]
    resolution = error.resolution if isinstance(error, ProviderError) else failures.resolution(error)
    try:
        said += _put_back(host, before, draft)
    except (PveError, ProviderError) as second:
        said.append(f"What was written could not be put back: {second}. See, on the node: pct config {before.vmid}")
    what = f"Unable to change container {before.name}"
    return ProviderError(what, details="\n".join(filter(None, said)), resolution=resolution)


def _put_back(host: ProxmoxHost, before: Guest, draft: Draft) -> list[str]:
    now = replace(host.config(before.vmid), pool=host.pools().get(before.vmid, ""))
    written = _written(before, now, draft)
    grown = {slot for slot in draft.sizes if size_of(now, slot) > size_of(before, slot)}
    missing = {*draft.options, *draft.sizes, *({"pool"} if draft.pool is not None else ())} - written - grown
    said = [f"Written: {_words(written | grown)}; not written: {_words(missing)}."]
    if written:
        _restore(host, before, now, written)
        said.append(f"What was written was put back: {_words(written)}.")
    if grown:
        said.append(f"A disk cannot be made smaller again: {_words(grown)}.")
    return said


def _written(before: Guest, now: Guest, draft: Draft) -> set[str]:
    names = {name for name in draft.options if before.config.get(name) != now.config.get(name)}
    names |= {"description"} if (before.text, before.mark) != (now.text, now.mark) else set()
    return names | ({"pool"} if before.pool != now.pool else set())


def _restore(host: ProxmoxHost, before: Guest, now: Guest, written: set[str]) -> None:
    options: Options = {name: before.config.get(name) for name in written - {"description", "pool"}}
    # A disk that was made for this change may go again: nothing is on it yet.
    fresh = tuple(_volume(now, name) for name, value in options.items() if value is None and name.startswith("mp"))
    if before.mark is not None and ("description" in written or fresh):
        mark = replace(before.mark, discard=(*before.mark.discard, *fresh))
        options["description"] = marks.written(before.text, mark)
    put(host, now, options, now.digest)
    if "pool" in written:
        move(host, before.vmid, now.pool, before.pool)
    copies.tidy(host, before.vmid)


def _volume(guest: Guest, slot: str) -> str:
    return guest.config[slot].partition(",")[0].removeprefix("volume=")


def _words(names: set[str]) -> str:
    return ", ".join(sorted(_WORDS.get(name, name) for name in names)) or "nothing"
