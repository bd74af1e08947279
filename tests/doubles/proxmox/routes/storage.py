"""Storages, what is on them, and the templates that can be downloaded."""

from __future__ import annotations

from tests.doubles.proxmox.call import Call, answers
from tests.doubles.proxmox.errors import bad_parameters, died, forbidden
from tests.doubles.proxmox.formats import split_list
from tests.doubles.proxmox.storage import Storage, Volume, volume_entry
from tests.doubles.proxmox.tasks import Task

AT = "/nodes/{node}/storage"


def _may_see(call: Call, name: str) -> bool:
    return call.may_any(f"/storage/{name}", "Datastore.Audit", "Datastore.AllocateSpace")


@answers(f"GET {AT}")
def listed(call: Call) -> object:
    """The storages that the caller may see; those of other nodes and disabled ones too, unless a content is asked for.

    So ``storage_info`` in pve-storage's ``Storage.pm``, and ``enabled`` in ``API2/Storage/Status.pm``.
    """
    wanted = set(split_list(call.text("content")))
    found: list[dict[str, object]] = []
    for storage in call.world.storages.values():
        fits = not wanted or (wanted & set(storage.content) and storage.is_usable(call.node.name))
        named = call.text("storage", storage.name) == storage.name
        shown = storage.enabled or not call.flag("enabled")
        if fits and named and shown and _may_see(call, storage.name):
            status = storage.status(call.node.name)
            if status["total"]:
                status["used_fraction"] = storage.used(call.node.name) / storage.total
            found.append({"storage": storage.name, **status})
    return found


@answers(f"GET {AT}/{{storage}}/status")
def status(call: Call) -> object:
    """How full a storage is."""
    return call.world.storage(call.text("storage"), call.node.name).status(call.node.name)


@answers(f"GET {AT}/{{storage}}/content")
def content(call: Call) -> object:
    """The volumes on it that the caller may see, of the contents that the storage is configured for.

    A disk is an "image" unless a container has its number now, whatever made it: ``list_volumes`` in ``Plugin.pm``.
    """
    storage = call.world.storage(call.text("storage"), call.node.name)
    found: list[dict[str, object]] = []
    for volume in list(storage.on(call.node.name).values()):
        kind = volume.content
        if volume.vmid:
            kind = "rootdir" if volume.vmid in call.world.guests else "images"
        is_asked_for = call.text("content", kind) == kind and call.number("vmid", volume.vmid) == volume.vmid
        if is_asked_for and kind in storage.content and _may_see_volume(call, storage.name, volume):
            found.append({**volume_entry(volume), "content": kind})
    return found


def _may_see_volume(call: Call, storage: str, volume: Volume) -> bool:
    """``check_volume_access`` in ``Storage.pm``: what is not allowed is left out of a list without a word."""
    path = f"/storage/{storage}"
    if call.may(path, "Datastore.Allocate") or not volume.vmid:
        return True
    return call.may(path, "Datastore.Audit") and call.may(f"/vms/{volume.vmid}", "VM.Config.Disk")


def _volume(call: Call) -> tuple[Storage, str]:
    """The storage and id of a volume, which may be named without its storage."""
    name = call.text("volume")
    storage, colon, _ = name.partition(":")
    if colon and call.text("storage", storage) != storage:
        raise bad_parameters({"storage": f"storage ID mismatch ({call.text('storage')} != {storage})"})
    found = call.world.storage(call.text("storage", storage), call.node.name)
    return found, name if colon else f"{found.name}:{name}"


@answers(f"GET {AT}/{{storage}}/content/{{volume}}")
def volume(call: Call) -> object:
    """One volume."""
    storage, volid = _volume(call)
    if not _may_see(call, storage.name):
        raise forbidden(f"/storage/{storage.name}, Datastore.AllocateSpace|Datastore.Audit")
    found = storage.on(call.node.name).get(volid)
    if found is None:
        raise died(f"volume_size_info on '{volid}' failed")
    path = f"/var/lib/vz/template/cache/{volid.rpartition('/')[2]}"
    return {"path": path, "size": found.size, "used": found.size, "format": found.form}


@answers("GET /nodes/{node}/aplinfo")
def appliances(call: Call) -> object:
    """The templates that Proxmox offers."""
    return [
        {
            "template": name,
            "type": "lxc",
            "package": name.partition("_")[0],
            "version": name.split("_")[1],
            "os": name.rpartition("-standard")[0],
            "section": "system",
            "architecture": "amd64",
            "location": f"http://download.proxmox.com/images/system/{name}",
            "source": "http://download.proxmox.com/images",
            "headline": "a standard system",
            "infopage": "https://pve.proxmox.com/wiki/Linux_Container",
            "sha512sum": "0" * 128,
        }
        for name in call.world.appliances
    ]


@answers("POST /nodes/{node}/aplinfo")
def download(call: Call) -> object:
    """Fetch one of them."""
    name = call.text("template")
    if name not in call.world.appliances:
        raise bad_parameters({"template": "no such template"})
    storage = call.world.storage(call.text("storage"), call.node.name)
    if "vztmpl" not in storage.content:
        raise died(f"storage '{storage.name}' does not support templates")

    def work(task: Task) -> None:
        task.say(f"downloading {name}")
        storage.add_template(call.node.name, name, call.world.appliances[name])

    return call.begin("download", name, work)
