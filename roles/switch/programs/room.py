"""Says what is there for a second server, as JSON.

``room.py [--at-once N] FILE…``: ``memory``, the bytes that are free in the container, what the kernel could drop
counted as free; ``files``, how large the files are that were named, or of these the N largest; ``port``, a free port of
127.0.0.1.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

GROUP = Path("/sys/fs/cgroup")
MEMINFO = Path("/proc/meminfo")
DROPPABLE = ("active_file", "inactive_file")


def main() -> None:
    """Look and tell."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--at-once", type=int, default=0, help="so many of the files are read at once; 0: all")
    parser.add_argument("files", nargs="*", type=Path)
    asked = parser.parse_args()
    memory = min(free_in_group(GROUP), free_in_system(MEMINFO))
    sys.stdout.write(json.dumps({"memory": memory, "files": largest(asked.files, asked.at_once), "port": port()}))


def free_in_group(group: Path) -> int:
    """The bytes that a group of processes may still take; without a limit a number that no machine has."""
    file = group / "memory.max"
    limit = file.read_text(encoding="ascii").strip() if file.exists() else "max"
    if limit == "max":
        return sys.maxsize
    used = int(group.joinpath("memory.current").read_text(encoding="ascii"))
    lines = group.joinpath("memory.stat").read_text(encoding="ascii").splitlines()
    counted = dict(line.split(maxsplit=1) for line in lines)
    return int(limit) - used + sum(int(counted[name]) for name in DROPPABLE)


def free_in_system(meminfo: Path) -> int:
    """The bytes that the kernel calls available."""
    found = re.search(r"(?m)^MemAvailable: +([0-9]+) kB$", meminfo.read_text(encoding="ascii"))
    if found is None:
        raise SystemExit(f"Unable to read MemAvailable in {meminfo}")
    return int(found[1]) * 1024


def largest(files: Sequence[Path], at_once: int) -> int:
    """The bytes of the largest of the files, as many as are read at once; with 0 of all."""
    sizes = sorted((file.stat().st_size for file in files), reverse=True)
    return sum(sizes[: at_once or len(sizes)])


def port() -> int:
    """A port of 127.0.0.1 on which nobody listens at this moment."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number: int = free.getsockname()[1]
        return number


if __name__ == "__main__":
    main()
