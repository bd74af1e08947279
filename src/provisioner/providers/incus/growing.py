"""See that the file system of a container grows with its disk.

Where the storage gives quotas (btrfs, ZFS) there is nothing to grow, and on btrfs ``df`` shows the whole pool. On LVM
and Ceph each container has a file system of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from provisioner.inside import file_systems
from provisioner.inside.file_systems import Growth, Look, Run
from provisioner.values.state import Instance, Status

ROOT = "/"
_REPAIR = (
    "The disk itself is large enough, so up does not try again. On the host: incus stop {name}; grow the file system "
    "on its volume in pool {pool} (resize2fs for ext4; XFS grows mounted: xfs_growfs); incus start {name}"
)


@contextmanager
def watched(before: Instance, wanted: Instance, run: Run, say: Callable[[str], None], pool: str) -> Iterator[None]:
    """Around a change: ``ProviderError`` when the disk grew and the file system on it surely did not.

    ``say`` is told what could not be read; without a growth nothing is looked at.
    """
    if before.disk is None or wanted.disk is None or wanted.disk <= before.disk:
        yield
        return
    growth = Growth(ROOT, before.disk, wanted.disk)
    is_running = before.status is Status.RUNNING
    first = file_systems.look(run, [ROOT]) if is_running else Look(why="the container does not run")
    yield
    second = file_systems.look(run, [ROOT]) if is_running else first
    if file_systems.stayed_small(growth, first, second):
        raise file_systems.not_grown(wanted.name, growth, second, "", _REPAIR.format(name=wanted.name, pool=pool))
    why = first.why or second.why
    if why:
        say(growth.unread(why))
