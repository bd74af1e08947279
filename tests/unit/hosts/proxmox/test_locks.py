"""Lock objects on Proxmox: one wins, whoever asks at the same time."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from provisioner.hosts.base import Locks
from provisioner.hosts.proxmox import ProxmoxProvider
from provisioner.hosts.proxmox.access import Access
from provisioner.reconcile.lock import held
from provisioner.values.errors import PreflightError, ProviderError, UnavailableError
from tests.doubles.proxmox import Double
from tests.doubles.proxmox.world import Pool
from tests.unit.hosts.proxmox.box import driver

NAME = "provisioner-lock-home.Lab_1-1"
MINE = {"nonce": "me", "holder": 'jöe@box: 50 %, "provision up"\n', "heartbeat": "0"}


@pytest.fixture
def locks(provider: ProxmoxProvider) -> Locks:
    """The node's locks."""
    return provider.locks


def test_of_sixteen_at_once_one_wins(pve: Double, access: Access) -> None:
    runs = [driver(access).locks for _ in range(16)]
    with ThreadPoolExecutor(16) as pool:
        won = list(pool.map(lambda n: runs[n].create(NAME, {"nonce": str(n)}), range(16)))
    assert sum(won) == 1
    assert runs[0].read(NAME) == {NAME: {"nonce": str(won.index(True))}}
    assert list(pve.world.pools) == [NAME]


def test_it_is_made_read_renewed_and_deleted(locks: Locks) -> None:
    assert locks.create(NAME, MINE)
    assert not locks.create(NAME, MINE)
    assert locks.read("provisioner-lock-home") == {NAME: MINE}
    assert locks.read("provisioner-lock-other") == {}
    newer = {**MINE, "heartbeat": "1"}
    assert locks.renew(NAME, newer)
    assert locks.read(NAME) == {NAME: newer}
    locks.delete(NAME)
    locks.delete(NAME)
    assert locks.read("provisioner-lock-") == {}


def test_one_that_is_gone_or_anothers_is_not_renewed(locks: Locks) -> None:
    assert not locks.renew(NAME, MINE)
    locks.create(NAME, {"nonce": "other"})
    assert not locks.renew(NAME, MINE)
    assert locks.read(NAME) == {NAME: {"nonce": "other"}}


def test_a_pool_that_people_have_made_is_a_lock_without_properties(pve: Double, locks: Locks) -> None:
    for name, comment in (("a", ""), ("b", "our pool"), ("c", "[1]"), ("d", "7")):
        pve.world.pools[f"{NAME}{name}"] = Pool(comment)
    assert locks.read(NAME) == {f"{NAME}{name}": {} for name in "abcd"}
    assert not locks.renew(f"{NAME}b", MINE)
    assert pve.world.pools[f"{NAME}b"].comment == "our pool"


def test_a_pool_that_people_have_made_is_named_and_left_by_a_run(pve: Double, access: Access) -> None:
    name = "provisioner-lock-home-1"
    pve.world.pools[name] = Pool("our pool")
    with pytest.raises(PreflightError) as caught, held({"box": driver(access)}, "home", "up", say=print):
        pytest.fail("a pool of people was taken for a lock")
    assert f"pool {name} is no run lock of provision" in caught.value.message
    assert f"pvesh delete /pools/{name}" in caught.value.resolution
    assert pve.world.pools[name].comment == "our pool"


@pytest.mark.parametrize("made", [True, False])
def test_a_creation_whose_answer_was_lost_is_looked_at(pve: Double, locks: Locks, *, made: bool) -> None:
    pve.world.faults.drop("POST", "/pools", done=made)
    if made:
        assert locks.create(NAME, MINE)
        assert locks.renew(NAME, MINE)
        return
    with pytest.raises(UnavailableError, match=f"Unable to make lock {NAME}"):
        locks.create(NAME, MINE)
    assert not pve.world.pools


def test_one_that_another_has_made_since_is_not_ours(pve: Double, locks: Locks) -> None:
    pve.world.faults.drop("POST", "/pools")
    pve.world.pools[NAME] = Pool('{"nonce": "other"}')
    assert not locks.create(NAME, MINE)


def test_a_renewal_does_not_wait_long(pve: Double, locks: Locks) -> None:
    """The heartbeat renews the locks of all hosts in turn: one that hangs must not cost the others."""
    locks.create(NAME, MINE)
    assert locks.renew(NAME, MINE)
    pve.take_down("pve1")
    began = time.monotonic()
    with pytest.raises(ProviderError, match=f"Unable to renew lock {NAME}"):
        locks.renew(NAME, MINE)
    assert time.monotonic() - began < 3
