"""Makes a git repository of the stand-in with three commits, for ``repository.py FILES FOLDER``.

FOLDER gets ``standin.git`` and ``commits.json``: "older" has no option for n-grams, "newer" has it, "odd" is neither.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

COMMITS = {"older": ["standin", "older"], "newer": ["standin"], "odd": ["standin", "older", "odd"]}
"""Each commit by the folders that it is put together of, the later over the earlier."""
IDENTITY = ("-c", "user.name=standin", "-c", "user.email=standin@example.invalid")


def main(files: Path, folder: Path) -> None:
    """Make it anew."""
    shutil.rmtree(folder, ignore_errors=True)
    work = folder / "work"
    work.mkdir(parents=True)
    git(work, "init", "--quiet", "--template=")
    commits = {}
    for name, parts in COMMITS.items():
        for old in [path for path in work.iterdir() if path.name != ".git"]:
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        for part in parts:
            shutil.copytree(files / part, work, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        git(work, "add", "--all")
        git(work, *IDENTITY, "commit", "--quiet", f"--message={name}")
        commits[name] = git(work, "rev-parse", "HEAD").strip()
    git(folder, "clone", "--quiet", "--bare", "--template=", "--no-local", "work", "standin.git")
    shutil.rmtree(work)
    (folder / "commits.json").write_text(json.dumps(commits), encoding="utf-8")


def git(folder: Path, *arguments: str) -> str:
    """What git says in that folder."""
    return subprocess.run(
        ["git", *arguments], cwd=folder, check=True, capture_output=True, text=True, timeout=60
    ).stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
