"""The controller's copies of built artifacts: one file per volume and its sha256 beside it, checked at each reuse."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from provisioner.providers.base import Provider
from provisioner.values.state import Artifact


def cached_file(folder: Path, artifact: Artifact, form: str) -> Path:
    """Where the artifact's copy of that form is, or would be."""
    return folder / f"{artifact.volume}.{form}"


def intact_copy(folder: Path, artifact: Artifact, provider: Provider) -> Path | None:
    """A copy that the provider can import, or None."""
    files = (cached_file(folder, artifact, form) for form in provider.forms)
    return next((file for file in files if is_intact(file)), None)


def is_intact(file: Path) -> bool:
    """Whether the copy is there and is byte for byte what was put there."""
    digest = _digest_file(file)
    return file.is_file() and digest.is_file() and digest.read_text(encoding="ascii").strip() == _sha256(file)


def remember(folder: Path, artifact: Artifact, provider: Provider) -> Path:
    """Copy a ready volume into the cache; the digest is written last, so that a partial copy is never used."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = cached_file(folder, artifact, provider.forms[0])
    digest = _digest_file(file)
    digest.unlink(missing_ok=True)
    provider.export_volume(artifact.volume, file)
    partial = digest.with_suffix(f".{os.getpid()}")
    partial.write_text(_sha256(file) + "\n", encoding="ascii")
    partial.replace(digest)
    return file


def _digest_file(file: Path) -> Path:
    return file.with_suffix(file.suffix + ".sha256")


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
