"""Proxmox' own words become: what failed, what it said, what to do now."""

from __future__ import annotations

import pytest

from provisioner.providers.proxmox import failures
from provisioner.providers.proxmox.failures import PveError, UnreachableError
from provisioner.values.errors import ProviderError, UnavailableError

ADVICE = {
    "Permission check failed (/nodes/pve1, Sys.Audit)": "joe@pve!ci needs Sys.Audit on /nodes/pve1. ",
    "Permission check failed (/storage/local, Datastore.AllocateSpace|Datastore.Audit)": "AllocateSpace or Datastore",
    "Permission check failed": "joe@pve!ci lacks a privilege",
    "configuring device passthrough is only allowed for root@pam": "Only root@pam itself",
    "Permission check failed (user != root@pam)": "Only root@pam itself",
    "create pool failed: cfs-lock 'file-user_cfg' error: no quorum!": "pvecm status",
    "hostname lookup 'pve9' failed - failed to get address info for: pve9": "a node pve9 in this cluster",
    "CT is locked (backup)": "Another task (backup) works on it",
    "can't remove CT 200 - protection mode enabled": "--protection 0",
    "detected modified configuration - file changed by other user? Try again.": "Run the same command again",
    "can't lock file '/run/lock/lxc/pve-config-105.lock' - got timeout": "See the node's tasks",
    "lvcreate 'pve/vm-1-disk-0' error: out of space": "The storage is full",
    "bridge 'vmbr7' does not exist": "The node has no bridge vmbr7",
    "storage 'nostore' does not exist": "pvesm status",
    "pool 'lab' does not exist": "pvesh create /pools --poolid lab",
}
MISSING = {
    "Configuration file 'nodes/pve1/lxc/999.conf' does not exist": ("GET", True),
    "delete pool failed: pool 'a' does not exist": ("DELETE", True),
    "snapshot 'a' does not exist": ("DELETE", True),
    "storage 'a' does not exist": ("GET", True),
    "unable to delete CT 105 - storage 'a' does not exist": ("DELETE", False),
    "Device /dev/nvidia0 does not exist": ("PUT", False),
    "bridge 'vmbr0' does not exist": ("PUT", False),
    "something new": ("GET", False),
}


@pytest.mark.parametrize(("words", "advice"), ADVICE.items())
def test_the_error_says_what_to_do(words: str, advice: str) -> None:
    with pytest.raises(ProviderError) as caught, failures.worded("Unable to x"):
        raise PveError(words, status=500, reason=words, who="joe@pve!ci")
    assert caught.value.message == "Unable to x"
    assert caught.value.details == words
    assert advice in caught.value.resolution


@pytest.mark.parametrize(("words", "expected"), MISSING.items())
def test_only_what_is_missing_is_missing(words: str, expected: tuple[str, bool]) -> None:
    verb, is_missing = expected
    assert failures.is_missing(PveError(words, status=500, reason=words, verb=verb)) is is_missing


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("CT 200 already exists on node 'pve1'", True),
        ("create pool failed: pool 'lock-1' already exists", True),
        ("unable to create CT 105: CT 105 already exists on node 'pve2'", True),
        ("snapshot name 'a' already used", False),
        ("authentication key '/etc/corosync/authkey' already exists", False),
    ],
)
def test_only_a_taken_name_is_taken(words: str, *, expected: bool) -> None:
    assert failures.is_taken(PveError(words)) is expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("can't lock file '/run/lock/lxc/pve-config-105.lock' - got timeout", True),
        ("unable to create CT 105 - can't lock file '/var/lock/pve-manager/pve-storage-lvm' - got timeout", True),
        ("CT is locked (backup)", False),
        ("can't lock file '/x' - can't open file - Permission denied", False),
        ("got timeout", False),
    ],
)
def test_only_a_lock_that_was_held_too_long_passes(words: str, *, expected: bool) -> None:
    error = PveError(words)
    assert failures.is_transient(error) is expected
    error.lost = True
    assert not failures.is_transient(error)


def test_looking_fails_otherwise_than_changing() -> None:
    """Only what was surely not touched may be called so: the exit code is made of it."""
    error = UnreachableError("There is no connection", resolution="Is it on?")
    with pytest.raises(UnavailableError, match="Is it on"), failures.reachable("Unable to look"):
        raise error
    with pytest.raises(ProviderError, match="Is it on"), failures.worded("Unable to change"):
        raise error


def test_unknown_words_are_shown_as_they_are() -> None:
    with pytest.raises(ProviderError) as caught, failures.worded("Unable to x"):
        raise PveError("something new")
    assert (caught.value.details, caught.value.resolution) == ("something new", "")
