"""File systems as ``df`` shows them, and when one surely did not grow with its disk."""

from __future__ import annotations

import pytest

from provisioner.inside.file_systems import FileSystem, Growth, Look, look, stayed_small
from provisioner.values.errors import ProviderError, UnavailableError
from provisioner.values.state import Execution

MIB, GIB = 2**20, 2**30
HEAD = b"Filesystem Type 1024-blocks Used Available Capacity Mounted on\n"


def shown(kind: str, size: float) -> Look:
    return Look({"/": FileSystem(kind, int(size))})


def test_what_df_prints_is_read_by_the_paths() -> None:
    lines = b"/dev/loop0 btrfs 31457280 2396768 28141632 8% /\n/dev/sda1 ext4 10 5 5 50% /srv/a b\n"
    seen = look(lambda _command: Execution(0, HEAD + lines, b""), ["/", "/srv/a b"])
    assert seen.found == {"/": FileSystem("btrfs", 30 * GIB), "/srv/a b": FileSystem("ext4", 10240)}


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\xff\xfe",
        b"a b",
        b"d ext4 -5 1 1 1% /",
        b"d ext4 \xd9\xa1 1 1 1% /",
        b"d ext4 " + b"9" * 5000 + b" 1 1 1% /",
    ],
)
def test_what_a_container_prints_instead_is_nothing(line: bytes) -> None:
    assert look(lambda _command: Execution(0, HEAD + line, b""), ["/"]) == Look()


def test_why_it_was_not_read_is_told() -> None:
    missing = look(lambda _command: Execution(127, b"", b"Command not found"), ["/"])
    assert missing.why == "df in it said: Command not found"

    def hangs(_command: list[str]) -> Execution:
        raise ProviderError("Unable to run df", details="It was killed after 30 s.")

    def gone(_command: list[str]) -> Execution:
        raise UnavailableError("Unable to reach box")

    assert look(hangs, ["/"]).why == "It was killed after 30 s."
    assert look(gone, ["/"]).why == "Unable to reach box"


@pytest.mark.parametrize(
    ("disk", "grown", "before", "after", "is_small"),
    [
        pytest.param(8 * GIB, 10 * GIB, shown("ext4", 7.8 * GIB), shown("ext4", 7.8 * GIB), True, id="as it was"),
        pytest.param(8 * GIB, 10 * GIB, shown("ext4", 7.8 * GIB), shown("ext4", 9.76 * GIB), False, id="grown"),
        pytest.param(8 * GIB, 10 * GIB, shown("xfs", 7.9 * GIB), shown("xfs", 7.9 * GIB), True, id="xfs"),
        pytest.param(8 * GIB, 80 * GIB, shown("ext4", 7.8 * GIB), shown("ext4", 8 * GIB), True, id="only begun"),
        pytest.param(8 * GIB, 8 * GIB + MIB, shown("ext4", 7.8 * GIB), shown("ext4", 7.8 * GIB), False, id="a little"),
        pytest.param(
            8 * GIB,
            8 * GIB + 256 * MIB,
            shown("ext4", 8 * 10**9),
            shown("ext4", 8 * 10**9 + 124 * MIB),
            False,
            id="a group of blocks",
        ),
        pytest.param(GIB, 3 * GIB, shown("btrfs", 30 * GIB), shown("btrfs", 30 * GIB), False, id="a quota of btrfs"),
        pytest.param(
            GIB, 3 * GIB, shown("btrfs", 0.9 * GIB), shown("btrfs", 0.9 * GIB), False, id="a small pool of btrfs"
        ),
        pytest.param(8 * GIB, 9 * GIB, shown("zfs", 8 * GIB), shown("zfs", 8 * GIB), False, id="zfs"),
        pytest.param(50 * GIB, 99 * GIB, shown("ext4", 30 * GIB), shown("ext4", 30 * GIB), False, id="the host's own"),
        pytest.param(8 * GIB, 10 * GIB, Look(), shown("ext4", 7.8 * GIB), False, id="not read before"),
        pytest.param(8 * GIB, 10 * GIB, shown("ext4", 7.8 * GIB), Look(why="killed"), False, id="not read after"),
    ],
)
def test_only_what_surely_did_not_grow_is_called_so(
    disk: int, grown: int, before: Look, after: Look, is_small: bool
) -> None:
    assert stayed_small(Growth("/", disk, grown), before, after) is is_small
