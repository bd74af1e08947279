"""Privileges: what a plan needs, what is missing by its path, and that what the page tells to grant is enough."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from provisioner.hosts.proxmox import ProxmoxProvider, prepare, rights
from provisioner.hosts.proxmox.access import Access
from provisioner.hosts.proxmox.api import Client
from provisioner.hosts.proxmox.rights import Place, Right
from provisioner.values.errors import ProvisionError
from provisioner.values.plan import Change
from provisioner.values.state import Instance, Secret
from tests.case_files import read_cases
from tests.doubles.proxmox import Double
from tests.doubles.proxmox.world import Pool
from tests.unit.hosts.proxmox.plans import ARTIFACT, GIB, PAGE, ROLE, creation, limited, step, there, update, wanted

CASES = read_cases("hosts/proxmox/rights")

PLACE = Place("local-lvm", "local", "vmbr0", downloads=frozenset({"debian/12"}))


def needed(changes: Iterable[Change], place: Place = PLACE) -> set[str]:
    return {str(right) for change in changes for right in rights.of_change(change, place)}


def test_a_creation_needs_all_that_makes_a_container() -> None:
    assert needed([creation(wanted())]) == {
        *(f"{name} on /vms" for name in ("VM.Audit", *rights.TO_CREATE)),
        "Datastore.AllocateSpace on /storage/local-lvm",
        "Datastore.AllocateSpace or Datastore.Audit or Datastore.Allocate on /storage/local",
        "Datastore.AllocateTemplate on /storage/local",
        "SDN.Use on /sdn/zones/localnetwork/vmbr0",
    }


def test_what_it_is_made_with_decides() -> None:
    block = {
        "network": {"bridge": "vmbr7", "vlan": 20},
        "storage": "tank",
        "mounts": [{"path": "/data", "size": "1GiB", "storage": "slow"}],
        "unprivileged": False,
    }
    found = needed([creation(wanted(proxmox=block))])
    assert {
        "SDN.Use on /sdn/zones/localnetwork/vmbr7/20",
        "Datastore.AllocateSpace on /storage/tank",
        "Datastore.AllocateSpace on /storage/slow",
        "Sys.Modify on /",
    } <= found
    assert "Datastore.AllocateSpace on /storage/local-lvm" not in found


def test_a_bridge_of_proxmox_own_network_is_listed_for_those_only_who_may_use_it() -> None:
    place = Place("local-lvm", "local", "vmbr0", vnets=frozenset({"vmbr0"}))
    assert not any(name.startswith("SDN") for name in needed([creation(wanted())], place))


def test_a_builder_needs_the_same_as_a_container() -> None:
    built = needed([Change("build", "tool", None, ARTIFACT, "not there yet")])
    assert built == needed([creation(wanted())])


@pytest.mark.parametrize(("changes", "expected"), CASES["an update needs what it changes"])
def test_an_update_needs_what_it_changes(changes: dict[str, Any], expected: str) -> None:
    assert expected in needed([update(there(wanted()), wanted(**changes))])


def test_what_root_writes_needs_no_privilege_of_a_token() -> None:
    special = wanted(proxmox={"devices": [{"path": "/dev/null"}], "features": ["keyctl"]})
    found = needed([update(there(wanted()), special)])
    assert found == {"VM.Snapshot on /vms/105", "VM.PowerMgmt on /vms/105"}


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("start", {"VM.PowerMgmt on /vms/105"}),
        ("stop", {"VM.PowerMgmt on /vms/105"}),
        ("delete", {"VM.Allocate on /vms/105", "VM.PowerMgmt on /vms/105"}),
        ("adopt", {"VM.Config.Options on /vms/105"}),
        ("rollback", {"VM.Snapshot or VM.Snapshot.Rollback on /vms/105", "VM.PowerMgmt on /vms/105"}),
        ("configure", set()),
    ],
)
def test_other_steps(action: str, expected: set[str]) -> None:
    assert needed([step(action, there(wanted()))]) == expected  # type: ignore[arg-type]  # one of the actions


def test_root_itself_is_not_asked_about(client_of: Callable[..., Client]) -> None:
    client = client_of(token_id=None, token_secret=None, url="https://127.0.0.1:1")
    assert rights.missing(client, [Right("/vms", ("VM.Allocate",))]) == ()


def test_a_token_of_root_that_is_not_kept_apart_may_all(client: Client) -> None:
    assert rights.missing(client, [Right("/vms", ("VM.Allocate",)), Right("/", ("Sys.Modify",))], "100") == ()


def test_a_token_that_is_kept_apart_may_nothing_until_it_is_granted(
    pve: Double, client_of: Callable[..., Client]
) -> None:
    secret = pve.world.access.add_token("root@pam", "apart", privsep=True)
    client = client_of(token_id="apart", token_secret=Secret("token", secret))
    wish = [Right("/vms", ("VM.Allocate",))]
    assert rights.missing(client, wish, "100") == tuple(wish)
    pve.world.access.permissions.grant("/vms", "root@pam!apart", "PVEVMAdmin")
    assert rights.missing(client, wish, "100") == ()


@pytest.mark.parametrize("name", sorted(ROLE))
def test_each_privilege_that_is_missing_is_named_with_its_path(pve: Double, access: Access, name: str) -> None:
    client = Client(limited(pve, access, without=frozenset({name})))
    place = Place("local-lvm", "local", "vmbr0")
    lacking = rights.missing(client, [*rights.of_every_plan("homelab"), *rights.of_whole_life(place)], "100")
    expected = {
        "Sys.Audit": "/",
        "SDN.Use": "/sdn/zones/localnetwork/vmbr0",
        "Datastore.AllocateSpace": "/storage/local-lvm",
        "Datastore.AllocateTemplate": "/storage/local",
        "Datastore.Audit": "/storage/local-lvm",
        "Pool.Allocate": "/pool/provisioner-lock-homelab-1",
        "Pool.Audit": "/pool/provisioner-lock-homelab-1",
    }
    assert rights.by_path(lacking)[expected.get(name, "/vms")].startswith(name)
    assert all(name in right.privileges for right in lacking)


def test_the_pool_that_a_new_container_is_put_into_counts(pve: Double, access: Access) -> None:
    pve.world.pools["lab"] = Pool()
    chosen = limited(pve, access, paths=("/pool/lab", "/storage", "/sdn"))
    pooled = wanted(proxmox={"pool": "lab"})
    missing = rights.missing(Client(chosen), rights.of_change(creation(pooled), PLACE), "100")
    assert rights.by_path(missing) == {"/vms": "VM.Config.Options"}, "tags are judged without the pool"
    missing = rights.missing(Client(chosen), rights.of_change(creation(wanted()), PLACE), "100")
    assert set(rights.by_path(missing)) == {"/vms"}


LOCK = "provisioner-lock-homelab-1"
UNFINISHED = "provisioner-unfinished-homelab_web"


def confined(provider: ProxmoxProvider, one: Instance) -> None:
    """Hold it to one place, and look."""
    provider.network.confine(dataclasses.replace(one, reaches=("192.168.1.20:443",)))
    seen = provider.observe(one.lab).instance(one.name)
    assert seen is not None
    assert seen.reaches == ("192.168.1.20:443",)


def life(pve: Double, access: Access, pool: str = "") -> None:
    """All that is done with a container over the API, in a pool that it leaves, and the lab's lock around it."""
    pve.world.firewall.options = {"enable": 1}
    provider = ProxmoxProvider("pve", access=access)
    assert provider.locks.create(LOCK, {"nonce": "1"})
    assert provider.locks.renew(LOCK, {"nonce": "1"})
    web = wanted(image="debian/13", cpu=1, proxmox={"pool": pool} if pool else {})
    assert provider.review([creation(web)]) == ()
    made = provider.create(web)
    provider.start(made)
    provider.wait_until_ready(made)
    there = provider.observe("homelab").instance("web")
    assert there is not None
    page = {"network": {"firewall": True}, "mounts": [{"path": "/srv", "size": "1GiB"}], "order": 1}
    larger = wanted(image="debian/13", cpu=2, memory=2 * GIB, disk=5 * GIB, proxmox=page)
    assert provider.review([update(there, larger)]) == ()
    assert provider.update(larger) == larger
    confined(provider, larger)
    assert provider.snapshots.obstacle(larger) == ""
    provider.snapshots.take(made, "kept")
    assert provider.locks.create(UNFINISHED, {"work": "rollback"})
    assert provider.locks.read(UNFINISHED) == {UNFINISHED: {"work": "rollback"}}
    provider.snapshots.rollback(made, "kept")
    provider.locks.delete(UNFINISHED)
    provider.delete(provider.clone(made, "copy"))
    provider.snapshots.delete(made, "kept")
    provider.stop(made)
    provider.delete(made)
    provider.locks.delete(LOCK)


def test_what_host_prepare_makes_is_what_the_page_says() -> None:
    assert prepare.ROLES["Provisioner"] | prepare.ROLES["ProvisionerSees"] == set(ROLE)
    narrow = re.findall(r"pveum acl modify (\S+) --users provision@pve --roles (\S+)", PAGE)
    need = prepare.Need(frozenset({"local", "local-lvm"}), frozenset({"vmbr0"}))
    assert set(need.grants) == {(path, role) for path, role in narrow if (path, role) != ("/", "Provisioner")}
    access = Access("https://pve:8006", "provision@pve", token_id="homelab")
    said = prepare.grant_commands(access, need)
    assert [one for one in said if one.startswith(("pveum user", "pveum acl")) and one not in PAGE] == []


def test_the_role_of_the_page_is_enough(pve: Double, access: Access) -> None:
    pve.world.pools["prod"] = Pool()
    life(pve, limited(pve, access), "prod")
    assert not pve.world.guests


def test_its_narrow_grants_are_enough(pve: Double, access: Access) -> None:
    narrow = re.findall(r"pveum acl modify (\S+) --users provision@pve --roles (\S+)", PAGE)
    paths = tuple(path for path, role in narrow if role == "Provisioner" and path != "/")
    pve.world.access.permissions.add_role("ProvisionerSees", "Datastore.Audit", "Sys.Audit")
    pve.world.access.permissions.grant("/", "penny@pve", "ProvisionerSees")
    life(pve, limited(pve, access, paths=paths))
    assert not pve.world.guests


@pytest.mark.parametrize("name", sorted(ROLE))
def test_nothing_in_it_is_too_much(pve: Double, access: Access, name: str) -> None:
    chosen = limited(pve, access, without=frozenset({name}))
    if name == "Sys.Audit":
        chosen = dataclasses.replace(chosen, node="pve1")
    if name == "Datastore.Audit":
        notes = ProxmoxProvider("pve", access=chosen).review([creation(wanted())])
        assert all(name in note for note in notes)
        assert notes, "it is needed to see, and nothing is refused without it"
        return
    with pytest.raises(ProvisionError) as caught:
        life(pve, chosen)
    assert name in str(caught.value), str(caught.value)
