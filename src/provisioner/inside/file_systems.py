"""What ``df`` says of the file systems in a container, and whether one grew together with its disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from provisioner.values.errors import ProviderError, UnavailableError
from provisioner.values.quantities import size_text
from provisioner.values.state import Execution

KIB, MIB = 2**10, 2**20
TIMEOUT_S = 30.0
"""How long a container may take to answer ``df``."""
OF_A_DISK = frozenset({"ext2", "ext3", "ext4", "xfs"})
"""Those that live on a disk of their own and have to be grown after it. What btrfs and ZFS give is a quota, which
counts at once and which ``df`` need not show: on btrfs it shows the whole pool."""
SMALLEST_GROWTH = 256 * MIB
"""Of a disk: ext4 and XFS grow by whole groups of blocks and may leave less than that unused."""
_SHARE_OF_DISK = 0.85
"""Of its disk, what a file system has at least for files; the rest is its own tables and journal."""
_SHARE_OF_GROWTH = 0.25
_FIELDS = 7
_LONGEST_NUMBER = 18

Run = Callable[[list[str]], Execution]


@dataclass(frozen=True, slots=True)
class FileSystem:
    """A file system as ``df`` shows it: its type and its size in bytes."""

    kind: str
    size: int


@dataclass(frozen=True, slots=True)
class Growth:
    """A disk of a container that is made larger: where it is mounted, and its bytes before and after."""

    path: str
    before: int
    after: int

    def unread(self, why: str) -> str:
        """That nobody has seen whether its file system grew."""
        return f"the disk at {self.path} has {size_text(self.after)} now; its file system was not read: {why}"


@dataclass(frozen=True, slots=True)
class Look:
    """The file systems that a container showed, by the paths that they are mounted at; ``why`` it showed none."""

    found: Mapping[str, FileSystem] = field(default_factory=dict)
    why: str = ""


def look(run: Run, paths: Iterable[str]) -> Look:
    """What ``df`` in the container shows of these paths; a container that cannot say is no error here."""
    try:
        done = run(["df", "-P", "-T", "-k", "--", *paths])  # BusyBox knows these options, too
    except (ProviderError, UnavailableError) as error:
        return Look(why=error.details or error.message)
    if done.returncode:
        return Look(why=f"df in it said: {done.stderr.decode(errors='replace').strip() or 'nothing'}")
    return Look(_file_systems(done.stdout))


def _file_systems(output: bytes) -> dict[str, FileSystem]:
    found = {}
    for line in output.decode(errors="replace").splitlines():
        fields = line.split(maxsplit=_FIELDS - 1)
        if len(fields) == _FIELDS and _is_number(fields[2]):
            found[fields[6].strip()] = FileSystem(fields[1], int(fields[2]) * KIB)
    return found


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER


def stayed_small(growth: Growth, before: Look, after: Look) -> bool:
    """Whether the file system on that disk surely did not grow with it; False where that cannot be told."""
    old, new = before.found.get(growth.path), after.found.get(growth.path)
    increase = growth.after - growth.before
    if old is None or new is None or increase < SMALLEST_GROWTH:
        return False
    is_of_that_disk = _SHARE_OF_DISK * growth.before <= old.size <= growth.before
    if old.kind not in OF_A_DISK or not is_of_that_disk:
        return False
    return new.size - old.size < _SHARE_OF_GROWTH * increase


def not_grown(name: str, growth: Growth, after: Look, said: str, resolution: str) -> ProviderError:
    """The error that the disk grew and its file system did not; ``said``: what the host told of it."""
    there = after.found.get(growth.path)
    seen = f", df in it shows {there.size // MIB} MiB" if there else ""
    return ProviderError(
        f"Unable to grow the file system at {growth.path} of container {name}",
        details="\n".join(filter(None, (f"Its disk has {size_text(growth.after)} now{seen}.", said))),
        resolution=resolution,
    )
