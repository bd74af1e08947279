"""Makes a git repository of the stand-in with three commits, for ``repository.py FILES VOICES FOLDER``.

FOLDER gets ``standin.git`` and ``commits.json``: "newer" has settings for chunks and a careful player, "older" has
neither, "odd" calls its pipeline in a way that nobody knows.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

COMMITS = {"newer": ["standin"], "older": ["standin", "older"], "odd": ["standin", "older", "odd"]}
"""Each commit by the folders that it is put together of, the later over the earlier."""
IDENTITY = ("-c", "user.name=standin", "-c", "user.email=standin@example.invalid")


def main(files: Path, voices: Path, folder: Path) -> None:
    """Make it anew."""
    work = folder / "work"
    for old in (work, folder / "standin.git"):
        shutil.rmtree(old, ignore_errors=True)
    work.mkdir(parents=True)
    git(work, "init", "--quiet", "--template=")
    commits = {}
    for name, parts in COMMITS.items():
        for part in parts:
            shutil.copytree(files / part, work, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(voices, work / "api/src/voices/v1_0", dirs_exist_ok=True)
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
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
