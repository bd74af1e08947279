"""Each printed advice about a missing privilege, followed to the letter, makes the refusal vanish."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import pytest

from provisioner.hosts.proxmox import ProxmoxProvider, failures
from provisioner.hosts.proxmox.access import Access
from provisioner.hosts.proxmox.api import Client
from provisioner.hosts.proxmox.health import examine
from provisioner.hosts.proxmox.preflight import review_plan
from provisioner.hosts.proxmox.prepare import Need, NodeToPrepare
from provisioner.values.errors import PreflightError, ProviderError
from provisioner.values.facts import of_kind
from provisioner.values.host_facts import ApiRights
from provisioner.values.state import Execution, Secret
from tests.doubles.proxmox import Double, pvesh
from tests.doubles.proxmox.client import root
from tests.doubles.proxmox.programs import Asked
from tests.unit.hosts.proxmox.plans import GIB, ROLE, creation, step, there, update, wanted

USER, TOKEN = "penny@pve", "penny@pve!lab"
ROLE_MADE = re.compile(r'needed="(?P<names>[^"]+)"; pveum role add (?P<role>\S+) --privs "\$needed" \|\| pveum role')
GRANT = re.compile(r"pveum acl modify (?P<path>\S+)(?P<whom>(?: --(?:users|tokens) \S+)+) --roles (?P<role>\S+)")
SEPARATE = pytest.mark.parametrize("separate", [False, True], ids=["privsep=0", "privsep=1"])


def token(pve: Double, access: Access, *, separate: bool) -> Access:
    """A token of a user who may nothing yet."""
    pve.world.access.add_user(USER, "unused")
    secret = Secret("token", pve.world.access.add_token(USER, "lab", privsep=separate))
    return dataclasses.replace(access, user=USER, token_id="lab", token_secret=secret, node="pve1")


def give(pve: Double, *, separate: bool, without: str) -> None:
    """Grant all that is needed but for one privilege: to the user, and to a token that is kept apart, too."""
    permissions = pve.world.access.permissions
    permissions.grants.clear()
    permissions.add_role("Most", *(ROLE - {without}))
    for who in (USER, TOKEN) if separate else (USER,):
        permissions.grant("/", who, "Most")


def follow(pve: Double, advice: str) -> int:
    """Type what an advice says, as root; how many grants there were."""
    for made in ROLE_MADE.finditer(advice):
        pve.world.access.permissions.add_role(made["role"], *made["names"].split())
    grants = list(GRANT.finditer(advice))
    for grant in grants:
        options = dict(re.findall(r"--(users|tokens) '?([^\s']+)'?", grant["whom"]))
        done = root(pve).ask("PUT", "/access/acl", path=grant["path"], roles=grant["role"], **options)
        assert done.status == 200, done.reason
    return len(grants)


@SEPARATE
def test_of_a_plan(pve: Double, access: Access, separate: bool) -> None:
    pve.world.add_guest(105, "pve1")
    ours = there(wanted("old"))
    larger = wanted("old", memory=2 * GIB, cpu=1, disk=9 * GIB, proxmox={"network": {"vlan": 7}})
    changes = [creation(wanted(image="debian/13")), update(ours, larger), step("delete", ours)]
    chosen = token(pve, access, separate=separate)
    client = Client(chosen)
    for name in ("Datastore.AllocateSpace", "Pool.Audit", "SDN.Use", "Sys.Audit", "VM.Allocate", "VM.Config.Disk"):
        give(pve, separate=separate, without=name)
        with pytest.raises(PreflightError) as caught:
            review_plan(client, chosen, None, changes)
        assert follow(pve, caught.value.resolution), name
        assert review_plan(client, chosen, None, changes) == (), name


@SEPARATE
def test_of_a_note_on_a_plan(pve: Double, access: Access, separate: bool) -> None:
    chosen = token(pve, access, separate=separate)
    give(pve, separate=separate, without="Datastore.Audit")
    notes = review_plan(Client(chosen), chosen, None, [creation(wanted())])
    assert [follow(pve, note) for note in notes] == [1, 1, 1]
    assert review_plan(Client(chosen), chosen, None, [creation(wanted())]) == ()


@SEPARATE
def test_of_doctor(pve: Double, access: Access, separate: bool) -> None:
    chosen = token(pve, access, separate=separate)
    client = Client(chosen)

    def lacking() -> tuple[tuple[str, ...], str]:
        (seen,) = of_kind(examine("pve", client, None, (), "homelab"), ApiRights)
        return seen.lacking, seen.hint

    for name in ("Datastore.AllocateTemplate", "Datastore.Audit", "Pool.Allocate", "Sys.Audit", "VM.Clone"):
        give(pve, separate=separate, without=name)
        assert follow(pve, lacking()[1]), name
        assert lacking() == ((), ""), name


def work(provider: ProxmoxProvider) -> None:
    """A container over the API, the lab's lock, a change and a snapshot."""
    lock, web = "provisioner-lock-homelab-1", wanted()
    provider.locks.delete(lock)
    provider.locks.create(lock, {"nonce": "1"})
    if provider.observe("homelab").instance("web") is None:
        provider.create(web)
    provider.update(wanted(memory=2 * GIB))
    provider.snapshots.take(web, "kept")


@SEPARATE
def test_of_a_run(pve: Double, access: Access, separate: bool) -> None:
    chosen = token(pve, access, separate=separate)
    provider = ProxmoxProvider("pve", access=dataclasses.replace(chosen, storage="local-lvm"))
    for name in ("Datastore.AllocateSpace", "Pool.Allocate", "SDN.Use", "VM.Snapshot"):
        give(pve, separate=separate, without=name)
        with pytest.raises((ProviderError, PreflightError)) as caught:
            work(provider)
        assert follow(pve, caught.value.resolution), name
        work(provider)
        give(pve, separate=separate, without="")
        provider.delete(wanted())


class OnNode:
    """A shell of root on the node, where ``pvesh`` is the double's."""

    destination = "root@pve1"

    def __init__(self, pve: Double) -> None:
        self._pve = pve

    def run(self, argv: Sequence[str], **_: object) -> Execution:
        """What one command there does."""
        assert argv[0] == "pvesh"
        done = pvesh.answer(self._pve, Asked(list(argv[1:]), {}, terminal=False))
        return Execution(done.code, done.out.encode(), done.err.encode())


@SEPARATE
def test_of_host_prepare(pve: Double, access: Access, separate: bool) -> None:
    """A token that is there already, and that somebody made with separate privileges, gets what its user gets."""
    chosen = token(pve, access, separate=separate)
    shell: Any = OnNode(pve)
    node = NodeToPrepare(chosen, shell)
    need = Need(frozenset({"local", "local-lvm"}), frozenset({"vmbr0"}))
    steps = node.lacking(need)
    assert any("--tokens" in one.command for one in steps) is separate
    for one in steps:
        node.make(one)
    assert node.lacking(need) == []
    (seen,) = of_kind(examine("pve", Client(chosen), None, (), "homelab"), ApiRights)
    assert seen.lacking == ()


def test_of_root_whose_token_is_separate_names_the_token_alone(pve: Double, access: Access) -> None:
    secret = pve.world.access.add_token("root@pam", "apart")
    chosen = dataclasses.replace(access, token_id="apart", token_secret=Secret("t", secret), node="pve1")
    with pytest.raises(PreflightError) as caught:
        review_plan(Client(chosen), chosen, None, [creation(wanted())])
    assert "--tokens 'root@pam!apart' --roles" in caught.value.resolution
    assert "--users" not in caught.value.resolution
    assert "--users joe@pam --roles" in failures.how_to_grant("joe@pam", "/vms", ["VM.Audit"])
