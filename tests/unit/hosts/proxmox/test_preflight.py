"""What a node would refuse is said before anything is touched, all of it at once, with what to do."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from provisioner.hosts.proxmox import ProxmoxProvider, marks
from provisioner.hosts.proxmox.access import Access
from provisioner.hosts.proxmox.api import Client
from provisioner.hosts.proxmox.health import examine
from provisioner.hosts.proxmox.preflight import review_plan
from provisioner.lab.artifacts import BUILD_HINT
from provisioner.report.messages import error_text
from provisioner.values.errors import PreflightError
from provisioner.values.facts import of_kind
from provisioner.values.host_facts import ApiRights
from provisioner.values.plan import Change
from provisioner.values.state import Execution, Secret, Service
from tests.doubles.proxmox import Double
from tests.doubles.proxmox.storage import Storage
from tests.doubles.proxmox.world import PASSWORD, Pool
from tests.unit.hosts.proxmox.box import BY_PASSWORD
from tests.unit.hosts.proxmox.plans import (
    ARTIFACT,
    BASE,
    GIB,
    ROLE,
    creation,
    down,
    limited,
    published,
    step,
    there,
    update,
    wanted,
)

DEVICES = {"devices": [{"path": "/dev/null"}]}


class Node:
    """A shell on a node that says which one it is."""

    devices = frozenset({"/dev/null", "/dev/dri/renderD128"})

    def __init__(self, name: str = "pve1") -> None:
        self.name = name

    def run(self, argv: Sequence[str], **_: object) -> Execution:
        """Where ``/etc/pve/local`` leads, or which device files are not there."""
        if argv[0] == "sh":
            missing = [one for one in argv[4:] if one not in self.devices]
            return Execution(0, "".join(f"{one}\n" for one in missing).encode(), b"")
        assert list(argv) == ["readlink", "/etc/pve/local"]
        return Execution(0, f"nodes/{self.name}\n".encode(), b"")


def looked(access: Access, *changes: Change, **page: Any) -> tuple[str, ...]:
    """The notes on a plan, for a host's page with other words."""
    chosen = dataclasses.replace(access, **page)
    shell: Any = Node() if chosen.ssh else None
    return review_plan(Client(chosen), chosen, shell, changes)


def refused(access: Access, *changes: Change, **page: Any) -> PreflightError:
    """The refusal of a plan."""
    with pytest.raises(PreflightError, match="Unable to carry out the plan on node") as caught:
        looked(access, *changes, **page)
    assert caught.value.exit_code == 4
    return caught.value


def test_a_build_that_may_ask_dhcp_in_vain_is_noted(access: Access) -> None:
    (note,) = looked(access, built("web", bridge="vmbr0", ip="dhcp", vlan=20), **SSH)
    assert note.startswith(
        "tool: made in containers that ask DHCP on vmbr0 with VLAN 20, where web has a fixed address."
    )
    assert note.endswith(BUILD_HINT)


def test_an_ordinary_plan_has_nothing_to_be_said_of(pve: Double, access: Access) -> None:
    ours = there(wanted("old"))
    pve.world.add_guest(105, "pve1")
    changes = [
        creation(wanted()),
        step("start", ours),
        step("delete", ours),
        update(ours, wanted("old", memory=2 * GIB)),
    ]
    assert looked(access, *changes) == ()
    assert looked(access) == ()


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ({"password": Secret("root", PASSWORD)}, "with the password of root@pam (a token may not)"),
        ({"ssh": "root@pve1"}, "over ssh with pct set (a token may not)"),
    ],
)
def test_what_needs_root_is_said_with_the_way(access: Access, page: dict[str, Any], words: str) -> None:
    special = wanted(proxmox={**DEVICES, "features": ["keyctl"]})
    unknown = () if "ssh" in page else ("whether node pve1 has /dev/null, for web, is not known without ssh",)
    notes = (f"devices and features of web: {words}", *unknown)
    assert looked(access, creation(special), **page) == notes
    assert looked(access, update(there(wanted()), special), **page) == notes


def test_no_grant_is_advised_on_a_storage_that_is_not_there(pve: Double, access: Access) -> None:
    narrow = ("/vms", "/pool", "/storage/local", "/storage/local-lvm", "/sdn/zones/localnetwork/vmbr0")
    chosen = limited(pve, access, paths=narrow)
    pve.world.access.permissions.add_role("Sees", "Datastore.Audit", "Sys.Audit")
    pve.world.access.permissions.grant("/", chosen.user, "Sees")
    error = refused(chosen, creation(wanted(proxmox={"storage": "nosuch"})))
    assert error.details == "web: there is no storage nosuch"
    assert "pveum" not in error.resolution
    page = dataclasses.replace(chosen, storage="nosuch")
    (lacking,) = of_kind(examine("pve", Client(page), None, (), "homelab"), ApiRights)
    assert lacking.lacking == ()


def test_ssh_that_leads_to_another_node(access: Access) -> None:
    chosen = dataclasses.replace(access, ssh="root@192.168.1.11")
    shell: Any = Node("pve2")
    with pytest.raises(PreflightError) as caught:
        review_plan(Client(chosen), chosen, shell, [creation(wanted(proxmox=DEVICES))])
    assert caught.value.details == "ssh: root@192.168.1.11 leads to node pve2, not to pve1"


def marked(pve: Double, vmid: int, node: str, lab: str, name: str = "web") -> None:
    """A container with a lab's mark."""
    mark = marks.Mark(lab, vmid, "debian/12")
    tags, text = marks.with_tags((), lab), marks.mark_text("", mark)
    pve.world.add_guest(vmid, node, hostname=name, tags=tags, description=text)


def of_release(release: str) -> Callable[[Double], object]:
    def run(pve: Double) -> None:
        for node in pve.world.nodes.values():
            node.version = {**node.version, "version": release}

    return run


def with_storages(pve: Double) -> None:
    pve.world.add_storage(Storage("elsewhere", "lvmthin", ("rootdir",), nodes=("pve2",)))
    pve.world.add_storage(Storage("off", "lvmthin", ("rootdir",), enabled=False))


def without_storages(pve: Double) -> None:
    del pve.world.storages["local-lvm"], pve.world.storages["local-zfs"]


def without_templates(pve: Double) -> None:
    pve.world.storages["local"].content = ("iso",)


def block(**proxmox: Any) -> Change:
    """A container with this block of its own."""
    return creation(wanted(proxmox=proxmox))


def mounts(size: str = "1GiB", **more: str) -> dict[str, Any]:
    return {"mounts": [{"path": "/data", "size": size, **more}]}


def built(beside: str = "", **network: object) -> Change:
    return Change(
        "build",
        "tool",
        None,
        dataclasses.replace(ARTIFACT, builder_settings={"network": network}, builder_beside=beside),
        "not there yet",
    )


NAMES = ("nosuch", "local", "elsewhere", "off")
BRIDGE = {"network": {"bridge": "vmbr9"}}
INSIDE, BUILD = creation(wanted(base=BASE)), Change("build", "tool", None, ARTIFACT, "not there yet")
ROOT, SSH = {"password": Secret("root", PASSWORD)}, {"ssh": "root@pve1"}
LENT = wanted(proxmox={"devices": [{"path": "/dev/nvidia0"}, {"path": "/dev/null"}], **BRIDGE})
BAD = wanted(image="plan9/4", base=BASE, proxmox={**DEVICES, "vmid": 100, "storage": "nosuch", "pool": "lab", **BRIDGE})
Case = tuple[Callable[[Double], object], tuple[Change, ...], dict[str, Any]]
"""What is done to the cluster first, the plan, and what the host's page says otherwise."""
REFUSED: dict[str, Case] = {
    "device files before 8.2": (of_release("8.1.4"), (block(**DEVICES),), ROOT),
    "device files on 7": (of_release("7.4-17"), (block(**DEVICES),), ROOT),
    "what needs root by a token": (down(), (block(**DEVICES),), {}),
    "work inside without ssh": (down(), (INSIDE, BUILD), {}),
    "no quorum": (down("pve2", "pve3"), (creation(wanted()),), {}),
    "no such node": (down(), (creation(wanted()),), {"node": "pve9"}),
    "a node that is down": (down("pve3"), (creation(wanted()),), {"node": "pve3"}),
    **{f"storage {name}": (with_storages, (block(storage=name),), {}) for name in NAMES},
    "storage off for a mount": (with_storages, (block(**mounts(storage="off")),), {}),
    "storage local by the host": (down(), (creation(wanted()),), {"storage": "local"}),
    "no storage at all": (without_storages, (creation(wanted()),), {}),
    "no such bridge": (down(), (block(**BRIDGE),), {}),
    "no such bridge for a build": (down(), (built(bridge="vmbr9"),), SSH),
    "no such bridge for a change": (down(), (update(there(wanted()), wanted(proxmox=BRIDGE)),), {}),
    "no such pool": (down(), (block(pool="lab"),), {}),
    "no template": (down(), (creation(wanted(image="plan9/4")),), {}),
    "no storage for templates": (without_templates, (creation(wanted(image="debian/13")),), {}),
    "the wrong storage for templates": (
        down(), (creation(wanted(image="debian/13")),), {"templates": "local-lvm"},
    ),
    "a number of another guest": (
        lambda pve: pve.world.add_guest(105, "pve2", hostname="desk"), (block(vmid=105),), {},
    ),
    "a smaller disk": (
        down(), (update(there(wanted(disk=8 * GIB)), wanted(disk=4 * GIB)),), {},
    ),
    "a smaller mount": (
        down(), (update(there(wanted(proxmox=mounts("8GiB"))), wanted(proxmox=mounts("4GiB"))),), {},
    ),
    "a published port": (down(), (creation(wanted(devices=(published(),))),), SSH),
    "a name of another lab": (lambda pve: marked(pve, 105, "pve1", "other"), (creation(wanted()),), {}),
    "a name that is nobody's": (
        lambda pve: pve.world.add_guest(105, "pve1", hostname="web"), (creation(wanted()),), {},
    ),
    "ours on another node": (lambda pve: marked(pve, 105, "pve2", "homelab"), (creation(wanted()),), {}),
    # PVE says so when the option is written, and at each start.
    "a device that the node lacks": (down(), (creation(LENT),), SSH),
    "a device that the node lacks at a start": (down(), (step("start", there(LENT)),), SSH),
    "all at once": (lambda pve: pve.world.add_guest(100, "pve1", hostname="desk"), (creation(BAD),), {}),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_what_a_node_would_refuse_is_said_with_what_to_do(
    pve: Double, access: Access, case: Case, snapshot: SnapshotAssertion
) -> None:
    prepare, changes, page = case
    prepare(pve)
    assert error_text(refused(access, *changes, **page)) == snapshot


CAN_BE: dict[str, Case] = {
    "no device files on 7": (of_release("7.4-17"), (creation(wanted()),), {}),
    "work inside by ssh": (down(), (INSIDE, BUILD), SSH),
    "a pool that is there": (
        lambda pve: pve.world.pools.update(lab=Pool()), (block(pool="lab"),), {},
    ),
    "a template to be downloaded": (down(), (creation(wanted(image="debian/13")),), {}),
    "a number that nobody has": (
        lambda pve: pve.world.add_guest(105, "pve2", hostname="desk"), (block(vmid=106),), {},
    ),
    "a larger mount": (
        down(), (update(there(wanted(proxmox=mounts("4GiB"))), wanted(proxmox=mounts("8GiB"))),), {},
    ),
    "the same number for a replacement": (
        lambda pve: pve.world.add_guest(105, "pve1", hostname="web"),
        (Change("replace", "web", there(wanted(proxmox={"vmid": 105})), wanted(proxmox={"vmid": 105}), "asked for"),),
        {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CAN_BE.values(), ids=CAN_BE)
def test_what_a_node_would_do_has_no_note(pve: Double, access: Access, case: Case) -> None:
    prepare, changes, page = case
    prepare(pve)
    assert looked(access, *changes, **page) == ()


def test_what_is_only_noted(access: Access, snapshot: SnapshotAssertion) -> None:
    notes = looked(access, creation(wanted(disk=80 * GIB)), creation(wanted("web2", disk=80 * GIB)))
    unknown = looked(access, block(devices=[{"path": "/dev/nvidia0"}]), **BY_PASSWORD)
    assert "\n".join((*notes, *unknown)) == snapshot


def test_code_of_others_that_the_node_does_not_hold_is_told(access: Access) -> None:
    image = Service("oci", "web", "serve", {"oci_reaches": []})
    whose = "the datacenter's firewall is off, or token root@pam!ci may not see it"
    told = f"web runs code of others, and rules in it alone keep that in: {whose}"
    page = {"ssh": "root@pve1"}
    assert looked(access, creation(wanted(services=(image,))), **page) == (told,)
    assert looked(access, creation(wanted(services=(image,), reaches=())), **page) == ()
    assert looked(access, creation(wanted(services=(BASE,))), **page) == ()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Datastore.AllocateSpace", "no storage of node pve1 takes containers, or token penny@pve!lab may not see it"),
        ("SDN.Use", "node pve1 has no bridge vmbr0, or token penny@pve!lab may not see it"),
        ("Pool.Audit", "there is no pool lab, or token penny@pve!lab may not see it"),
    ],
)
def test_what_a_token_may_not_see_may_be_there(pve: Double, access: Access, name: str, words: str) -> None:
    pve.world.pools["lab"] = Pool()
    chosen = limited(pve, access, without=frozenset({name, "Datastore.Audit"}))
    assert f"web: {words}" in refused(chosen, creation(wanted(proxmox={"pool": "lab"}))).details.splitlines()


def test_names_of_others_on_other_nodes_are_free(pve: Double, access: Access) -> None:
    marked(pve, 105, "pve2", "other")
    pve.world.add_guest(106, "pve3", hostname="web")
    # A copy that somebody made by hand bears the tags, and a block that speaks of another number.
    text = marks.mark_text("", marks.Mark("homelab", 100, "debian/12"))
    pve.world.add_guest(107, "pve2", hostname="web", tags=marks.with_tags((), "homelab"), description=text)
    assert looked(access, creation(wanted())) == ()


def test_ours_on_a_node_that_is_down_has_no_name_and_is_only_noted(pve: Double, access: Access) -> None:
    marked(pve, 105, "pve2", "homelab")
    pve.take_down("pve2")
    notes = looked(access, creation(wanted()))
    assert notes == ("CT 105 bears the mark of this lab and is on node pve2, which does not answer",)


def test_a_token_without_any_rights(pve: Double, access: Access, snapshot: SnapshotAssertion) -> None:
    error = refused(limited(pve, access, without=ROLE), creation(wanted()), node="pve1")
    assert error_text(error) == snapshot


def test_how_much_it_asks(access: Access, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many containers as one likes: the same few calls."""
    calls: list[object] = []
    get = Client.get

    def counted(client: Client, *path: object, **query: object) -> object:
        calls.append(path)
        return get(client, *path, **query)

    monkeypatch.setattr(Client, "get", counted)
    looked(access, creation(wanted()))
    few = len(calls)
    looked(access, *(creation(wanted(f"web{number}", disk=None)) for number in range(10)))
    assert len(calls) == 2 * few
    assert few < 22


def test_a_run_that_cannot_lock_is_refused_before_anything_is_touched(pve: Double, access: Access) -> None:
    """``up`` takes the lock before it looks: without quorum, or the right to make pools, that is where it ends."""
    provider = ProxmoxProvider("pve", access=limited(pve, access, without=frozenset({"Pool.Allocate"})))
    with pytest.raises(PreflightError) as caught:
        provider.locks.create("provisioner-lock-homelab-1", {})
    assert "Pool.Allocate on /pool/provisioner-lock-homelab-1" in caught.value.resolution
    pve.take_down("pve2")
    pve.take_down("pve3")
    with pytest.raises(PreflightError, match="no quorum"):
        ProxmoxProvider("pve", access=access).locks.create("provisioner-lock-homelab-1", {})
