"""A disk that grows on Incus, with file systems of its own and with quotas: what ``df`` in it says counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from provisioner.hosts.incus.containers import watched_growth
from provisioner.values.errors import ProviderError
from provisioner.values.state import Execution, Instance, Status

GIB = 2**30
ONE = Instance("one", "box", "home", "debian/12", disk=8 * GIB, status=Status.RUNNING)
LARGER = replace(ONE, disk=12 * GIB)


def df(kind: str, *sizes: float) -> Callable[[list[str]], Execution]:
    """Shows the file system with these sizes, one after the other."""
    left = list(sizes)

    def run(command: list[str]) -> Execution:
        assert command[0] == "df"
        line = f"/dev/x {kind} {int(left.pop(0) * GIB) // 1024} 1 1 1% /\n"
        return Execution(0, line.encode(), b"")

    return run


def grow(before: Instance, wanted: Instance, run: Callable[[list[str]], Execution]) -> list[str]:
    """Change it; what was said."""
    said: list[str] = []
    with watched_growth(before, wanted, run, said.append, "default"):
        pass
    return said


def test_a_file_system_that_stays_small_is_an_error_with_what_to_do() -> None:
    with pytest.raises(ProviderError, match="Unable to grow the file system at / of container one") as caught:
        grow(ONE, LARGER, df("ext4", 7.8, 7.8))
    assert "Its disk has 12GiB now, df in it shows 7987 MiB." in caught.value.details
    assert "resize2fs" in caught.value.resolution


@pytest.mark.parametrize("run", [df("ext4", 7.8, 11.7), df("btrfs", 30, 30), df("zfs", 8, 8)])
def test_one_that_grows_or_has_a_quota_is_none(run: Callable[[list[str]], Execution]) -> None:
    assert grow(ONE, LARGER, run) == []


def test_a_stopped_one_is_said_to_be_unread() -> None:
    (said,) = grow(replace(ONE, status=Status.STOPPED), LARGER, df("ext4"))
    assert said == "the disk at / has 12GiB now; its file system was not read: the container does not run"


@pytest.mark.parametrize("wanted", [ONE, replace(ONE, disk=None), replace(ONE, disk=4 * GIB)])
def test_nothing_is_looked_at_where_nothing_grows(wanted: Instance) -> None:
    assert grow(ONE, wanted, df("ext4")) == []
