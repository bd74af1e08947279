"""The stand-in of upstream's Pipelines server as an archive of a commit, which is made the same each time."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from dataclasses import dataclass
from pathlib import Path

from provisioner.values import paths
from tests.scenario_programs import module_at

STANDIN = paths.roles().parent / "molecule/pipelines/files/standin"
FETCH = paths.roles() / "pipelines/files/fetch.py"


@dataclass(frozen=True)
class Source:
    """What a lab's file says of a server's source, beside where it is."""

    commit: str
    source_sha256: str


def standin_in(folder: Path) -> Source:
    """Have the archive below the folder, as GitHub has one below a repository's address."""
    files = {
        path.relative_to(STANDIN).as_posix(): path.read_bytes()
        for path in sorted(STANDIN.rglob("*.py"))
        if "__pycache__" not in path.parts
    }
    sha256: str = module_at(FETCH).digest(files)
    commit = hashlib.sha1(sha256.encode(), usedforsecurity=False).hexdigest()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"pipelines-{commit}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    place = folder / "archive" / f"{commit}.tar.gz"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(gzip.compress(packed.getvalue(), mtime=0))
    return Source(commit, sha256)
