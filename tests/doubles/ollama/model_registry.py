"""A registry of models over https, with the habits of the real ones, and the other host to which it sends for files.

As Ollama's server asks one (``pullModelManifest``, ``download.go``): a manifest for a name and a tag, files by their
digests, which it sends elsewhere for (307), errors as ``{"errors": […]}``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.doubles.proxmox.certificate import issue
from tests.file_server import FileServer, Page, Seen, serving

KIND = "application/vnd.ollama.image."
MISSING = json.dumps({"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}).encode()
RANGE = re.compile(r"bytes=0-(\d+)")


class _Pages(dict[str, Callable[[Seen], Page]]):
    """The registry's pages: all others are missing, in its words."""

    def get(self, path: str, _default: Any = None) -> Callable[[Seen], Page]:
        """What answers at the path."""
        return super().get(path) or (lambda _seen: (404, {"Content-Type": "application/json"}, MISSING))


@dataclass
class Registry:
    """The registry, the host that has the files, and how they behave; ``ranges``: whether that one knows ranges."""

    server: FileServer
    files: FileServer
    ranges: bool = True
    contents: dict[str, bytes] = field(default_factory=dict)
    """What is in the files, by their digests; a test may put another content there."""

    @property
    def host(self) -> str:
        """As a name of a model begins with it."""
        return urlsplit(self.server.address).netloc

    def publish(
        self, place: str, layers: Mapping[str, bytes], config: Mapping[str, Any] | None = None, **sizes: int
    ) -> str:
        """Give a model its version; ``place`` is NAMESPACE/NAME:TAG, ``sizes`` are false ones. Returns its digest."""
        listed: list[dict[str, Any]] = []
        for kind, content in layers.items():
            entry = self._layer(place, content)
            listed.append({"mediaType": f"{KIND}{kind}", **entry, "size": sizes.get(kind, entry["size"])})
        page: dict[str, Any] = {"schemaVersion": 2, "layers": listed}
        if config is not None:
            page["config"] = self._layer(place, json.dumps(config).encode())
        return self.publish_manifest(place, json.dumps(page).encode())

    def publish_manifest(self, place: str, content: bytes) -> str:
        """Give a model this very manifest."""
        repository, _, tag = place.rpartition(":")
        self.server.pages[f"/v2/{repository}/manifests/{tag}"] = lambda _seen: (200, {}, content)
        return hashlib.sha256(content).hexdigest()

    def asked(self) -> list[str]:
        """What the registry was asked for, manifests and files."""
        return [seen.path.rsplit("/", 2)[1] for seen in self.server.seen]

    def _layer(self, place: str, content: bytes) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self.contents[digest] = content
        elsewhere = self.files.address.rpartition("/")[0] + "/" + digest
        path = f"/v2/{place.rpartition(':')[0]}/blobs/{digest}"
        self.server.pages[path] = lambda _seen: (307, {"Location": elsewhere}, b"")
        self.files.pages[urlsplit(elsewhere).path] = lambda seen: self._file(digest, seen)
        return {"digest": digest, "size": len(content)}

    def _file(self, digest: str, seen: Seen) -> Page:
        content = self.contents[digest]
        asked = RANGE.fullmatch(seen.headers.get("Range", ""))
        if asked is None or not self.ranges:
            return 200, {}, content
        part = content[: int(asked[1]) + 1]
        return 206, {"Content-Range": f"bytes 0-{len(part) - 1}/{len(content)}"}, part


@contextmanager
def model_registry(folder: Path) -> Iterator[Registry]:
    """Run both; who trusts ``folder/pve-root-ca.pem`` believes them."""
    tls = issue(folder, "127.0.0.1").context()
    with serving(FileServer(pages=_Pages()), tls=tls) as server, serving(FileServer(), tls=tls) as files:
        yield Registry(server, files)
