"""Incus' own words become: what failed, what it said, what to do now."""

from __future__ import annotations

import pytest

from provisioner.hosts.incus.api import Endpoint, WireError, is_name_clash, worded
from provisioner.values.errors import ProviderError

CASES = {
    "Create: write /var/lib/incus/x: no space left on device": "incus storage set fast size=",
    "sftp: write /x: disk quota exceeded": "incus storage info fast",
    "UNIQUE constraint failed: instances.project_id, instances.name": "choose another one",
    'Failed to start device "web": listen tcp 0.0.0.0:80: bind: address already in use': "another port",
    'Snapshot "a" cannot be restored due to subsequent snapshot(s). Set zfs.remove_snapshots to override': "the newer",
    "setting cgroup item for the container failed": "stop what uses it",
    "newuidmap: write to uid_map failed: Operation not permitted": "provision host prepare",
}


@pytest.mark.parametrize(("words", "advice"), CASES.items())
def test_the_error_says_what_to_do(words: str, advice: str) -> None:
    with pytest.raises(ProviderError) as caught, worded("Unable to x", Endpoint("/nowhere"), lambda: "fast"):
        raise WireError(500, words)
    assert caught.value.message == "Unable to x"
    assert words in caught.value.details
    assert advice in caught.value.resolution


def test_unknown_words_are_shown_as_they_are() -> None:
    with (
        pytest.raises(ProviderError, match="something new"),
        worded("Unable to x", Endpoint("/nowhere"), lambda: "fast"),
    ):
        raise WireError(500, "something new")


def test_only_a_taken_name_is_a_clash() -> None:
    assert is_name_clash(WireError(400, "UNIQUE constraint failed: instances.name"))
    assert not is_name_clash(WireError(400, "no space left on device"))
