"""Gets the server's source: ``fetch.py ADDRESS SHA256 FOLDER``, with the archive of a commit at the address.

An archive may be packed in another way tomorrow, so that its own hash says nothing: what is hashed are the files that
run. ``SHA256`` is that of lines as ``sha256sum`` writes them, sorted by path; nothing else is taken from the archive.
"""

from __future__ import annotations

import hashlib
import io
import re
import sys
import tarfile
import time
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path

WANTED = re.compile(r"(main|config|schemas)\.py|utils/([a-z_]+/)*[a-z_]+\.py", re.ASCII)
"""The files that run, below the one folder of the archive."""
NEEDED = "main.py"
MOST_BYTES, MOST_UNPACKED, MOST_MEMBERS = 32 * 2**20, 64 * 2**20, 10_000
PAUSE_S, DOWNLOAD_S = 60.0, 600.0
PART = 2**16


class SourceError(Exception):
    """Why the source cannot be had."""


def main() -> None:
    """Have the files in the folder, or say why not."""
    address, wanted, folder = sys.argv[1:4]
    try:
        files = checked(unpacked(downloaded(address)), wanted)
    except (OSError, HTTPException, tarfile.TarError, EOFError, SourceError) as error:
        sys.exit(f"Unable to use {address}: {error}.")
    for path, content in files.items():
        place = Path(folder, path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)


def checked(files: dict[str, bytes], wanted: str) -> dict[str, bytes]:
    """The same files. Raises ``SourceError`` where they are others than they should be."""
    found = digest(files)
    if found != wanted:
        raise SourceError(f"its files hash to {found}, and should to {wanted}. Correct commit or source_sha256")
    return files


def downloaded(address: str) -> bytes:
    """The archive. Raises ``SourceError`` where it is too large or does not come to its end."""
    end = time.monotonic() + DOWNLOAD_S
    content = bytearray()
    # The role's page limits the address to https, http and file.
    with urllib.request.urlopen(address, timeout=PAUSE_S) as answer:  # noqa: S310
        while part := answer.read(PART):
            content += part
            if len(content) > MOST_BYTES:
                raise SourceError(f"it has more than {MOST_BYTES} bytes")
            if time.monotonic() > end:
                raise SourceError(f"it has not come within {DOWNLOAD_S:g} seconds")
    return bytes(content)


def unpacked(archive: bytes) -> dict[str, bytes]:
    """The files that run, by their paths. Raises ``SourceError`` where it holds no such server."""
    files: dict[str, bytes] = {}
    left = MOST_UNPACKED
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r|gz") as members:
        for number, member in enumerate(members):
            if number == MOST_MEMBERS:
                raise SourceError(f"it has more than {MOST_MEMBERS} files")
            left -= member.size
            if left < 0:
                raise SourceError(f"it unpacks to more than {MOST_UNPACKED} bytes")
            path = member.name.partition("/")[2]
            if WANTED.fullmatch(path) is None:
                continue
            content = members.extractfile(member) if member.isreg() else None
            if content is None or path in files:
                raise SourceError(f"{path} in it is no file, or is there twice")
            files[path] = content.read()
    if NEEDED not in files:
        raise SourceError(f"it has no {NEEDED}")
    return files


def digest(files: Mapping[str, bytes]) -> str:
    """What they hash to, with their paths."""
    lines = [f"{hashlib.sha256(content).hexdigest()}  {path}\n" for path, content in sorted(files.items())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


if __name__ == "__main__":
    main()
