"""Proxmox' own words become: what failed, what it said, what to do now."""

from __future__ import annotations

import pytest

from provisioner.hosts.proxmox import failures
from provisioner.hosts.proxmox.failures import PveError, UnreachableError
from provisioner.values.errors import ProviderError, UnavailableError
from tests.case_files import read_cases

CASES = read_cases("hosts/proxmox/failures")

ADVICE = CASES["advice"]
MISSING = CASES["missing"]


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
