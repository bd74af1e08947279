"""What a node would refuse is said before anything is touched, all of it at once, with what to do."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from provisioner.plan import Change
from provisioner.providers.proxmox import ProxmoxProvider, marks
from provisioner.providers.proxmox.access import Access
from provisioner.providers.proxmox.client import Client
from provisioner.providers.proxmox.review import review
from provisioner.values.errors import PreflightError
from provisioner.values.state import Execution, Secret
from tests.doubles.proxmox import Double
from tests.doubles.proxmox.storage import Storage
from tests.doubles.proxmox.world import PASSWORD, Pool
from tests.unit.providers.proxmox.box import BY_PASSWORD
from tests.unit.providers.proxmox.plans import (
    ARTIFACT,
    BASE,
    GIB,
    ROLE,
    creation,
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
    return review(Client(chosen), chosen, shell, changes)


def refused(access: Access, *changes: Change, **page: Any) -> PreflightError:
    """The refusal of a plan."""
    with pytest.raises(PreflightError, match="Unable to carry out the plan on node") as caught:
        looked(access, *changes, **page)
    assert caught.value.exit_code == 4
    return caught.value


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


@pytest.mark.parametrize("release", ["8.1.4", "7.4-17"])
def test_device_files_are_refused_where_the_release_knows_none(pve: Double, access: Access, release: str) -> None:
    for node in pve.world.nodes.values():
        node.version = {**node.version, "version": release}
    error = refused(access, creation(wanted(proxmox=DEVICES)), password=Secret("root", PASSWORD))
    assert error.details == f"web: device files take Proxmox VE 8.2 or later, and {release} runs there"
    assert "apt full-upgrade" in error.resolution
    assert looked(access, creation(wanted())) == (), "nothing else asks for it"


def test_what_needs_root_is_refused_without_a_way(access: Access) -> None:
    error = refused(access, creation(wanted(proxmox=DEVICES)))
    assert error.details == "web: its devices can be set by root@pam itself only, by no token"
    assert "ssh: root@NODE" in error.resolution
    assert "password: !secret" in error.resolution


def test_ssh_that_leads_to_another_node(access: Access) -> None:
    chosen = dataclasses.replace(access, ssh="root@192.168.1.11")
    shell: Any = Node("pve2")
    with pytest.raises(PreflightError) as caught:
        review(Client(chosen), chosen, shell, [creation(wanted(proxmox=DEVICES))])
    assert caught.value.details == "ssh: root@192.168.1.11 leads to node pve2, not to pve1"


def test_work_inside_needs_ssh(access: Access) -> None:
    inside = creation(wanted(base=BASE))
    build = Change("build", "tool", None, ARTIFACT, "not there yet")
    error = refused(access, inside, build)
    assert error.details == "web, tool: work inside containers on Proxmox needs ssh"
    assert "ssh: root@NODE" in error.resolution
    assert looked(access, inside, build, ssh="root@pve1") == ()


def test_a_cluster_without_quorum(pve: Double, access: Access) -> None:
    pve.take_down("pve2")
    pve.take_down("pve3")
    error = refused(access, creation(wanted()))
    assert "the cluster has no quorum: its configuration cannot be written" in error.details
    assert "Not there: pve2, pve3" in error.resolution


def test_a_node_that_is_not_there(access: Access) -> None:
    error = refused(access, creation(wanted()), node="pve9")
    assert error.details == "there is no node pve9 in the cluster"
    assert error.resolution == "Nodes there: pve1, pve2, pve3"


def test_a_node_that_is_down(pve: Double, access: Access) -> None:
    pve.take_down("pve3")
    assert refused(access, creation(wanted()), node="pve3").details == "node pve3 is down"


@pytest.mark.parametrize(
    ("storage", "words"),
    [
        ("nosuch", "web: there is no storage nosuch"),
        ("local", "web: storage local takes no containers (its content has no rootdir)"),
        ("elsewhere", "web: storage elsewhere is disabled, not there, or not for node pve1"),
        ("off", "web: storage off is disabled, not there, or not for node pve1"),
    ],
)
def test_a_storage_that_will_not_do(pve: Double, access: Access, storage: str, words: str) -> None:
    pve.world.add_storage(Storage("elsewhere", "lvmthin", ("rootdir",), nodes=("pve2",)))
    pve.world.add_storage(Storage("off", "lvmthin", ("rootdir",), enabled=False))
    for block in ({"storage": storage}, {"mounts": [{"path": "/data", "size": "1GiB", "storage": storage}]}):
        error = refused(access, creation(wanted(proxmox=block)))
        assert error.details == words
        assert error.resolution == "Storages for containers on node pve1: local-lvm, local-zfs"
    assert refused(access, creation(wanted()), storage=storage).details == words


def test_a_node_without_any_storage_for_containers(pve: Double, access: Access) -> None:
    del pve.world.storages["local-lvm"], pve.world.storages["local-zfs"]
    assert refused(access, creation(wanted())).details == "web: no storage of node pve1 takes containers"


def test_a_storage_that_is_too_small_is_only_noted(access: Access) -> None:
    notes = looked(access, creation(wanted(disk=80 * GIB)), creation(wanted("web2", disk=80 * GIB)))
    assert notes == (
        "storage local-lvm of node pve1 may be too small: 160.0 GiB are to be made on it, 100.0 GiB are free",
    )


def test_a_bridge_that_is_not_there(access: Access) -> None:
    error = refused(access, creation(wanted(proxmox={"network": {"bridge": "vmbr9"}})))
    assert error.details == "web: node pve1 has no bridge vmbr9"
    assert error.resolution == "Bridges of node pve1: vmbr0"
    changed = update(there(wanted()), wanted(proxmox={"network": {"bridge": "vmbr9"}}))
    assert "no bridge vmbr9" in refused(access, changed).details


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


def test_a_pool_that_is_not_there(pve: Double, access: Access) -> None:
    change = creation(wanted(proxmox={"pool": "lab"}))
    error = refused(access, change)
    assert error.details == "web: there is no pool lab"
    assert error.resolution == "On a node: pvesh create /pools --poolid lab"
    pve.world.pools["lab"] = Pool()
    assert looked(access, change) == ()


def test_an_image_without_a_template(access: Access) -> None:
    error = refused(access, creation(wanted(image="plan9/4")))
    assert error.details == "web: no template for plan9/4 on node pve1, and none to be downloaded"
    assert "There: debian/12." in error.resolution
    assert looked(access, creation(wanted(image="debian/13"))) == ()


def test_a_template_can_be_downloaded_only_to_where_there_is_room_for_it(pve: Double, access: Access) -> None:
    pve.world.storages["local"].content = ("iso",)
    error = refused(access, creation(wanted(image="debian/13")))
    assert error.details == "web: no storage of node pve1 takes templates"
    assert "pvesm set local --content vztmpl" in error.resolution
    error = refused(access, creation(wanted(image="debian/13")), templates="local-lvm")
    assert error.details == "web: storage local-lvm takes no templates"


def test_a_number_that_another_guest_has(pve: Double, access: Access) -> None:
    pve.world.add_guest(105, "pve2", hostname="desk")
    error = refused(access, creation(wanted(proxmox={"vmid": 105})))
    assert error.details == "web: number 105 is taken by desk on node pve2"
    assert looked(access, creation(wanted(proxmox={"vmid": 106}))) == ()


def test_a_replacement_may_have_its_number_again(pve: Double, access: Access) -> None:
    pve.world.add_guest(105, "pve1", hostname="web")
    again = wanted(proxmox={"vmid": 105})
    assert looked(access, Change("replace", "web", there(again), again, "asked for")) == ()


@pytest.mark.parametrize(("before", "after"), [(8, 4)])
def test_a_disk_does_not_shrink(access: Access, before: int, after: int) -> None:
    old = there(wanted(disk=before * GIB))
    error = refused(access, update(old, wanted(disk=after * GIB)))
    assert error.details == "web: the disk at / cannot become smaller (8GiB -> 4GiB)"
    blocks = [{"mounts": [{"path": "/data", "size": f"{size}GiB"}]} for size in (before, after)]
    changed = update(there(wanted(proxmox=blocks[0])), wanted(proxmox=blocks[1]))
    error = refused(access, changed)
    assert error.details == "web: the disk at /data cannot become smaller (8GiB -> 4GiB)"
    assert "--replace web" in error.resolution
    assert looked(access, update(changed.after, changed.before)) == ()  # type: ignore[arg-type]  # containers


def test_nothing_is_published(access: Access) -> None:
    error = refused(access, creation(wanted(devices=(published(),))), ssh="root@pve1")
    assert error.details == "web: nothing can be published: a container here has an address of its own"


def marked(pve: Double, vmid: int, node: str, lab: str, name: str = "web") -> None:
    """A container with a lab's mark."""
    mark = marks.Mark(lab, vmid, "debian/12")
    tags, text = marks.with_tags((), lab), marks.written("", mark)
    pve.world.add_guest(vmid, node, hostname=name, tags=tags, description=text)


def test_a_container_of_that_name_of_another_lab(pve: Double, access: Access) -> None:
    marked(pve, 105, "pve1", "other")
    error = refused(access, creation(wanted()))
    assert error.details == "web: guest 105 has that name and belongs to another lab"


def test_a_container_of_that_name_that_is_nobodys(pve: Double, access: Access) -> None:
    pve.world.add_guest(105, "pve1", hostname="web")
    assert refused(access, creation(wanted())).details == "web: guest 105 has that name and is not this lab's"


def test_ours_that_has_moved_to_another_node(pve: Double, access: Access) -> None:
    marked(pve, 105, "pve2", "homelab")
    error = refused(access, creation(wanted()))
    assert error.details == "web: this lab's container of that name is on node pve2, as CT 105 now"
    assert "pct migrate 105 pve1" in error.resolution
    assert "write node: pve2" in error.resolution


def test_names_of_others_on_other_nodes_are_free(pve: Double, access: Access) -> None:
    marked(pve, 105, "pve2", "other")
    pve.world.add_guest(106, "pve3", hostname="web")
    # A copy that somebody made by hand bears the tags, and a block that speaks of another number.
    text = marks.written("", marks.Mark("homelab", 100, "debian/12"))
    pve.world.add_guest(107, "pve2", hostname="web", tags=marks.with_tags((), "homelab"), description=text)
    assert looked(access, creation(wanted())) == ()


def test_ours_on_a_node_that_is_down_has_no_name_and_is_only_noted(pve: Double, access: Access) -> None:
    marked(pve, 105, "pve2", "homelab")
    pve.take_down("pve2")
    notes = looked(access, creation(wanted()))
    assert notes == ("CT 105 bears the mark of this lab and is on node pve2, which does not answer",)


def test_all_that_is_wrong_is_said_at_once(pve: Double, access: Access) -> None:
    pve.world.add_guest(100, "pve1", hostname="desk")
    bad = wanted(
        image="plan9/4",
        base=BASE,
        proxmox={**DEVICES, "vmid": 100, "storage": "nosuch", "pool": "lab", "network": {"bridge": "vmbr9"}},
    )
    lines = refused(access, creation(bad)).details.splitlines()
    assert len(lines) == 7
    for words in ("nosuch", "vmbr9", "pool lab", "plan9/4", "number 100", "devices", "needs ssh"):
        assert any(words in line for line in lines), words


@pytest.mark.parametrize("name", sorted(ROLE - {"VM.Clone", "Datastore.Audit"}))
def test_each_privilege_that_the_plan_needs_is_named(pve: Double, access: Access, name: str) -> None:
    pve.world.add_guest(105, "pve1")
    ours = there(wanted("old"))
    changes = [
        creation(wanted(image="debian/13")),
        update(ours, wanted("old", memory=2 * GIB, cpu=1, disk=9 * GIB, proxmox={"network": {"vlan": 7}})),
        step("delete", ours),
    ]
    assert looked(limited(pve, access), *changes) == ()
    chosen = limited(pve, access, without=frozenset({name}))
    page = {"node": "pve1"} if name == "Sys.Audit" else {}
    error = refused(chosen, *changes, **page)
    line = next(line for line in error.details.splitlines() if "lacks" in line)
    assert line.startswith("token penny@pve!lab lacks ")
    assert name in line
    assert " on /" in line
    assert "pveum acl modify /" in error.resolution
    assert "--users penny@pve --tokens 'penny@pve!lab'" in error.resolution


def test_a_token_without_any_rights(pve: Double, access: Access) -> None:
    error = refused(limited(pve, access, without=ROLE), creation(wanted()), node="pve1")
    assert "there is no storage" in error.details or "no storage of node pve1" in error.details
    assert "lacks Sys.Audit on /" in error.details
    assert "lacks VM.Audit, VM.Allocate" in error.details


def test_a_device_that_the_node_lacks_is_refused_with_all_else(access: Access) -> None:
    """PVE says so when the option is written, and at each start."""
    lent = wanted(
        proxmox={"devices": [{"path": "/dev/nvidia0"}, {"path": "/dev/null"}], "network": {"bridge": "vmbr9"}}
    )
    error = refused(access, creation(lent), ssh="root@pve1")
    assert "web: node pve1 has no device /dev/nvidia0" in error.details
    assert "/dev/null" not in error.details
    assert "node pve1 has no bridge vmbr9" in error.details
    assert "nvidia-modprobe" in error.resolution
    started = refused(access, step("start", there(lent)), ssh="root@pve1")
    assert started.details == "web: node pve1 has no device /dev/nvidia0"


def test_a_device_that_nobody_can_look_for_is_said_to_be_unknown(access: Access) -> None:
    lent = wanted(proxmox={"devices": [{"path": "/dev/nvidia0"}]})
    notes = looked(access, creation(lent), **BY_PASSWORD)
    assert "whether node pve1 has /dev/nvidia0, for web, is not known without ssh" in notes


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
        provider.create_lock("provisioner-lock-homelab-1", {})
    assert "Pool.Allocate on /pool/provisioner-lock-homelab-1" in caught.value.resolution
    pve.take_down("pve2")
    pve.take_down("pve3")
    with pytest.raises(PreflightError, match="no quorum"):
        ProxmoxProvider("pve", access=access).create_lock("provisioner-lock-homelab-1", {})
