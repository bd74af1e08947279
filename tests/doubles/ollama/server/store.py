"""Blobs and manifests, as they lie in the folder of models."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.doubles.ollama.server.errors import Refused
from tests.doubles.ollama.server.golang import log, moment_text
from tests.doubles.ollama.server.names import Name

PERMISSION_OF_A_BLOB = 0o644
PRUNE_GRACE_S = 3600.0
KIND = "application/vnd.ollama.image."
MANIFEST_KIND = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG_KIND = "application/vnd.docker.container.image.v1+json"
_DIGEST = re.compile(r"sha256[:-][0-9a-fA-F]{64}")


@dataclass(frozen=True)
class Layer:
    """A blob of a model: what it is, and whether it had to be written."""

    kind: str
    digest: str
    size: int
    fresh: bool = False

    @property
    def status(self) -> str:
        """What a stream of progress says of it."""
        return f"{'creating new' if self.fresh else 'using existing'} layer {self.digest}"

    def entry(self) -> dict[str, Any]:
        """The layer as a manifest names it."""
        return {"mediaType": self.kind, "digest": self.digest, "size": self.size}


@dataclass(frozen=True)
class Manifest:
    """A manifest as it lies in the store."""

    name: Name
    path: Path
    config: dict[str, Any]
    layers: list[dict[str, Any]]
    digest: str
    modified: float

    @property
    def modified_at(self) -> str:
        """When it was written."""
        return moment_text(datetime.fromtimestamp(self.modified, UTC))

    def all_layers(self) -> list[dict[str, Any]]:
        """Every blob it needs, its configuration included."""
        return [*self.layers, *([self.config] if self.config.get("digest") else [])]

    @property
    def size(self) -> int:
        """The bytes of all its blobs."""
        return sum(int(layer.get("size", 0)) for layer in self.all_layers())


class Store:
    """Blobs and manifests in upstream's layout (manifest/paths.go), so that models outlive a restart."""

    def __init__(self, root: Path) -> None:
        self.blobs = root / "blobs"
        self.manifests_folder = root / "manifests"
        for folder in (self.blobs, self.manifests_folder):
            folder.mkdir(parents=True, exist_ok=True)

    def blob(self, digest: str) -> Path:
        """Where a blob lies; refuses what is no digest."""
        if not _DIGEST.fullmatch(digest):
            raise Refused(400, "invalid digest format")
        return self.blobs / digest.replace(":", "-")

    def add(self, pieces: Iterable[bytes], kind: str = "") -> Layer:
        """Keep these bytes under the digest they have, whichever was promised (manifest/layer.go, NewLayer)."""
        digest = hashlib.sha256()
        size = 0
        with tempfile.NamedTemporaryFile(dir=self.blobs, prefix="sha256-", delete=False) as file:
            place = Path(file.name)
            try:
                for piece in pieces:
                    size += len(piece)
                    digest.update(piece)
                    file.write(piece)
                file.flush()
                name = f"sha256:{digest.hexdigest()}"
                blob = self.blob(name)
                fresh = not blob.exists()
                if fresh:
                    place.chmod(PERMISSION_OF_A_BLOB)
                    place.rename(blob)
            finally:
                place.unlink(missing_ok=True)
        os.utime(blob)  # manifest/layer.go:104, touchLayer: its age starts anew
        return Layer(kind, name, size, fresh)

    def manifests(self) -> dict[Name, Manifest]:
        """Every manifest that can be read."""
        found = {}
        for path in sorted(self.manifests_folder.glob("*/*/*/*")):
            name = Name(*path.relative_to(self.manifests_folder).parts)
            manifest = self.manifest(name) if name.valid else None
            if manifest:
                found[name] = manifest
        return found

    def manifest(self, name: Name) -> Manifest | None:
        """One manifest; None if there is none or if it is broken."""
        path = self.manifests_folder.joinpath(*name)
        try:
            content = path.read_bytes()
            stated = json.loads(content)
            layers, config = stated.get("layers") or [], stated.get("config") or {}
            digest = hashlib.sha256(content).hexdigest()
            return Manifest(name, path, config, layers, digest, path.stat().st_mtime)
        except (OSError, ValueError, AttributeError):
            return None

    def existing(self, name: Name) -> Name:
        """The name in the letters of one that is there (server/routes.go:1222, getExistingName)."""
        parts = list(name)
        for other in self.manifests():
            for at, part in enumerate(other):
                if part.lower() == parts[at].lower():
                    parts[at] = part
        return Name(*parts)

    def write_manifest(self, name: Name, content: bytes) -> None:
        """Make or replace a model."""
        path = self.manifests_folder.joinpath(*name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def remove_unused(self, digests: Iterable[str]) -> int:
        """Remove those of these blobs that no manifest needs; the number of them."""
        used = {layer["digest"] for manifest in self.manifests().values() for layer in manifest.all_layers()}
        unused = set(digests) - used
        for digest in unused:
            self.blob(digest).unlink(missing_ok=True)
        return len(unused)

    def remove(self, manifest: Manifest) -> None:
        """Remove a model, its blobs where no other needs them, and the folders that are empty then."""
        manifest.path.unlink()
        for folder in list(manifest.path.parents)[:3]:
            with contextlib.suppress(OSError):
                folder.rmdir()
        self.remove_unused(layer["digest"] for layer in manifest.all_layers())

    def prune(self) -> None:
        """Remove what no model needs and what is half, if it is older than an hour (server/images.go:40)."""
        old = []
        for path in self.blobs.iterdir():
            if path.is_dir() or time.time() - path.stat().st_mtime < PRUNE_GRACE_S:
                continue
            if _DIGEST.fullmatch(path.name):
                old.append(path.name.replace("-", ":"))
            else:
                path.unlink()
        log("images.go:916", f"total blobs: {len(old)}")
        log("images.go:923", f"total unused blobs removed: {self.remove_unused(old)}")
