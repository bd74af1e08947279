"""Who may change which option of a guest; much is for root@pam in person alone, and no token of theirs will do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tests.doubles.proxmox.call import Call
from tests.doubles.proxmox.errors import forbidden
from tests.doubles.proxmox.formats import split_list
from tests.doubles.proxmox.guest import NEW_DISK, VOLUME, parts, volume_kind

CPU = {"cores", "cpuunits", "cpulimit"}
MEMORY = {"memory", "swap"}
NETWORK = {"nameserver", "searchdomain", "hostname"}
ZONE = "/sdn/zones/localnetwork"

Options = Mapping[str, str]


def check_change(call: Call, old: Options, new: Options, doomed: Iterable[str], *, unprivileged: bool) -> None:
    """Refuse a caller who may not set the options in ``new`` or delete the ``doomed``; root@pam may all."""
    if call.is_root:
        return
    for option in new:
        _check_option(call, option, old, new, unprivileged=unprivileged)
    for option in doomed:
        _check_option(call, option, old, {}, unprivileged=unprivileged)


def _check_option(call: Call, option: str, old: Options, new: Options, *, unprivileged: bool) -> None:
    if option == "features":
        _check_features(call, old.get(option, ""), new.get(option, ""), unprivileged=unprivileged)
    elif option == "hookscript":
        raise forbidden("changing the hookscript is only allowed for root@pam")
    elif re.fullmatch(r"dev\d+", option):
        raise forbidden("configuring device passthrough is only allowed for root@pam")
    elif VOLUME.fullmatch(option):
        _check_volume(call, option, new.get(option, ""))
    elif re.fullmatch(r"net\d+", option):
        _check_vm(call, "VM.Config.Network")
        for value in (old.get(option), new.get(option)):
            check_bridge(call, value or "")
    elif option == "tags":
        _check_tags(call, old.get(option, ""), new.get(option, ""))
    else:
        _check_vm(call, _privilege(option))


def _check_tags(call: Call, old: str, new: str) -> None:
    """``assert_tag_permissions`` in pve-guest-common: a tag that comes or goes must be one that the caller may set."""
    call.check(f"/vms/{call.vmid}", "VM.Config.Options")  # whatever the pool
    if call.may("/", "Sys.Modify"):
        return
    access = call.world.datacenter.get("user-tag-access", {})
    is_free = access.get("user-allow", "free") == "free"
    registered, allowed = call.world.datacenter.get("registered-tags", []), allowed_tags(call)
    for tag in sorted({*split_list(old)} ^ {*split_list(new)}):
        if tag in registered or not (is_free or tag in allowed):
            raise forbidden(f"/, Sys.Modify for modifying tag '{tag}'")


def allowed_tags(call: Call) -> list[str]:
    """The tags that there are for the caller: those of a list, those that guests have, and registered ones."""
    privileged = call.may("/", "Sys.Modify")
    access = call.world.datacenter.get("user-tag-access", {})
    mode = access.get("user-allow", "free")
    registered = set(call.world.datacenter.get("registered-tags", []))
    found = set(access.get("user-allow-list", [])) if mode != "none" or privileged else set()
    if mode in ("free", "existing") or privileged:
        for vmid, guest in call.world.guests.items():
            if privileged or call.may(f"/vms/{vmid}", "VM.Audit"):
                found |= set(split_list(guest.config.get("tags", "")))
    return sorted(found | registered if privileged else found - registered)


def _privilege(option: str) -> str:
    kinds = {"VM.Config.CPU": CPU, "VM.Config.Memory": MEMORY, "VM.Config.Network": NETWORK}
    return next((name for name, options in kinds.items() if option in options), "VM.Config.Options")


def _check_vm(call: Call, privilege: str) -> None:
    pool = call.text("pool")
    if not (pool and call.may(f"/pool/{pool}", privilege)):
        call.check(f"/vms/{call.vmid}", privilege)


def _check_volume(call: Call, option: str, value: str) -> None:
    _check_vm(call, "VM.Config.Disk")
    if not value:
        return
    volume = value if NEW_DISK.fullmatch(value) else parts(option, value)["volume"]
    kind = volume_kind(volume)
    if kind != "volume":
        raise forbidden(f"mount point type {kind} is only allowed for root@pam")
    new_disk = NEW_DISK.fullmatch(volume)
    if new_disk:
        call.check(f"/storage/{new_disk[1]}", "Datastore.AllocateSpace")


def check_bridge(call: Call, value: str) -> None:
    """Refuse a caller who may not use the bridge of an interface."""
    bridge = parts("net0", value).get("bridge") if value else None
    if bridge:
        call.check(f"{ZONE}/{bridge}", "SDN.Use")


def _check_features(call: Call, old: str, new: str, *, unprivileged: bool) -> None:
    if not unprivileged:
        raise forbidden("changing feature flags for privileged container is only allowed for root@pam")
    before, after = (parts("features", value) for value in (old, new))
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    if not after or not before:
        changed = set(before) | set(after)
    if changed - {"nesting"}:
        raise forbidden("changing feature flags (except nesting) is only allowed for root@pam")
    if changed:
        _check_vm(call, "VM.Allocate")
