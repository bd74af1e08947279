"""``make dist``: wheel and sdist of the files that git knows, built by ``build`` and looked through by ``twine``.

The sdist is built of a copy that holds nothing else, and the wheel of that sdist: what lies about in a checkout reaches
neither.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHECKER = Path(__file__).with_name("twine.txt")
"""Twine and all that it asks for, with hashes: it lives alone, as it is no part of the development set."""
TIMEOUT_S = 900


def copy_of_the_tree(folder: Path) -> None:
    """Copy the files that git knows into ``folder``; links stay links."""
    command = ("git", "-c", "safe.directory=*", "ls-files", "-z")
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
    for name in filter(None, listed.split("\0")):
        source, target = ROOT / name, folder / name
        if source.is_symlink() or source.exists():  # else it was deleted, and git is not told yet
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)


def build(folder: Path) -> list[Path]:
    """Build both files into ``folder`` and give their paths; those of an earlier build of any version go first."""
    for former in (*folder.glob("provisioner-*.whl"), *folder.glob("provisioner-[0-9]*.tar.gz")):
        former.unlink()
    with tempfile.TemporaryDirectory(prefix="provisioner-dist-") as copy:
        copy_of_the_tree(Path(copy))
        _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, copy)
    return sorted((*folder.glob("provisioner-*.whl"), *folder.glob("provisioner-[0-9]*.tar.gz")))


def check(files: list[Path]) -> None:
    """Have twine look through the metadata and the README of the files; what it warns of is an error, too."""
    with tempfile.TemporaryDirectory(prefix="provisioner-twine-") as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin/python"
        _run(python, "-m", "pip", "install", "--quiet", "--require-hashes", "--requirement", CHECKER)
        _run(python, "-m", "twine", "check", "--strict", *files)


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        raise SystemExit(f"Unable to make the distribution: {' '.join(map(str, command))} ended with {done.returncode}")


def main(folder: Path) -> None:
    """Build into ``folder``, then check what was built."""
    folder.mkdir(parents=True, exist_ok=True)
    check(build(folder))


if __name__ == "__main__":
    main(Path(sys.argv[1] if sys.argv[1:] else "dist").resolve())
