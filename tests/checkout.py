"""What git knows about this checkout, whoever owns its files."""

from __future__ import annotations

import subprocess
from pathlib import Path


def git(root: Path, *arguments: str) -> str:
    """What git prints; ``CalledProcessError`` when it fails."""
    # CI often clones as one user and tests as root, which git refuses unless told that it is meant.
    command = ("git", "-c", "safe.directory=*", "-C", str(root), *arguments)
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def tracked_files(root: Path, *below: str) -> list[str]:
    """Files that belong to the checkout and are there (tracked, or new and not ignored), relative to ``root``."""
    listed = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *below)
    return sorted(name for name in set(listed.split("\0")) if name and (root / name).is_file())
