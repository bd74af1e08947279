"""``/pools``: made, listed, changed, removed. There is one pool of a name, whoever asks at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.doubles.proxmox.call import Call, answers
from tests.doubles.proxmox.errors import ApiError, died
from tests.doubles.proxmox.formats import split_list
from tests.doubles.proxmox.world import Pool


@contextmanager
def _user_config(call: Call, doing: str) -> Iterator[None]:
    """Hold the lock of the file that pools are in; all that goes wrong meanwhile is told with what was being done."""
    with call.world.lock:
        try:
            if not call.world.is_quorate:
                raise died("cfs-lock 'file-user_cfg' error: no quorum!")
            yield
        except ApiError as error:
            raise died(f"{doing} failed: {error.message.strip()}") from error


def _pool(call: Call) -> Pool:
    name = call.text("poolid")
    if name not in call.world.pools:
        raise died(f"pool '{name}' does not exist")
    return call.world.pools[name]


@answers("GET /pools")
def listed(call: Call) -> object:
    """The pools that the caller may see; with ``poolid`` only that one, with its members."""
    if "poolid" in call.given:
        return [{"poolid": call.text("poolid"), **_shown(call)}]
    return [
        {"poolid": name, **_comment(pool)}
        for name, pool in sorted(call.world.pools.items())
        if call.may(f"/pool/{name}", "Pool.Audit")
    ]


@answers("GET /pools/{poolid}")
def one(call: Call) -> object:
    """One pool."""
    return _shown(call)


def _comment(pool: Pool) -> dict[str, object]:
    return {"comment": pool.comment} if pool.comment else {}


def _shown(call: Call) -> dict[str, object]:
    pool = _pool(call)
    kind = call.text("type")
    members: list[dict[str, object]] = []
    if kind in ("", "lxc"):
        for vmid in sorted(pool.vms & set(call.world.guests)):
            basis = {"id": f"lxc/{vmid}", "vmid": vmid, "node": call.world.guests[vmid].node, "type": "lxc"}
            members.append({**basis, "status": "unknown", **call.world.stats(vmid)})
    return {"members": members, **_comment(pool)}


@answers("POST /pools")
def create(call: Call) -> object:
    """A new pool, unless there is one of that name."""
    name = call.text("poolid")
    parent, _, leaf = name.rpartition("/")
    with _user_config(call, "create pool"):
        if name in call.world.pools:
            raise died(f"pool '{name}' already exists")
        if parent and parent not in call.world.pools:
            raise died(f"parent '{parent}' of pool '{name}' does not exist")
        if not leaf[:1].isalpha():
            raise died("pool name must start with a letter")
        call.world.pools[name] = Pool(call.text("comment"))
    return None


@answers("PUT /pools", "PUT /pools/{poolid}")
def update(call: Call) -> object:
    """Change the comment, take in guests or let them go."""
    if "storage" in call.given:
        raise died("the double takes no storages into pools")
    with _user_config(call, "update pools"):
        pool = _pool(call)
        if "comment" in call.given:
            pool.comment = call.text("comment")
        for text in split_list(call.text("vms")):
            _move_guest(call, pool, int(text))
    return None


def _move_guest(call: Call, pool: Pool, vmid: int) -> None:
    call.check_any(f"/vms/{vmid}", "Permissions.Modify", "VM.Allocate")
    if call.flag("delete"):
        if vmid not in pool.vms:
            raise died(f"VM {vmid} is not a pool member")
        pool.vms.discard(vmid)
        return
    if vmid in pool.vms:
        raise died(f"VM {vmid} is already a pool member")
    old = call.world.pool_of(vmid)
    if old and not call.flag("allow-move"):
        raise died(f"VM {vmid} belongs already to pool '{old}' and 'allow-move' is not set")
    if old:
        call.check(f"/pool/{old}", "Pool.Allocate")
        call.world.pools[old].vms.discard(vmid)
    pool.vms.add(vmid)


@answers("DELETE /pools", "DELETE /pools/{poolid}")
def delete(call: Call) -> object:
    """Remove an empty pool."""
    name = call.text("poolid")
    with _user_config(call, "delete pool"):
        pool = _pool(call)
        below = next((other for other in call.world.pools if other.startswith(f"{name}/")), "")
        if below:
            raise died(f"pool '{name}' is not empty (contains pool '{below}')")
        guests = pool.vms & set(call.world.guests)
        if guests:
            raise died(f"pool '{name}' is not empty (contains VM {min(guests)})")
        del call.world.pools[name]
    return None
