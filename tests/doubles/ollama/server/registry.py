"""Models fetched from a registry."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tests.doubles.ollama.server.errors import Refused
from tests.doubles.ollama.server.limits import JSON_BYTES, PIECE
from tests.doubles.ollama.server.making import Progress
from tests.doubles.ollama.server.names import DEFAULT_HOST, Name
from tests.doubles.ollama.server.settings import Settings
from tests.doubles.ollama.server.store import Store


class Registry:
    """The registry that ``STAND_IN_REGISTRY`` names; without it every pull fails as on a machine with no network."""

    def __init__(self, place: str) -> None:
        self._place = place

    @contextlib.contextmanager
    def open(self, name: Name, below: str) -> Iterator[Any]:
        """One of its files, as something to read from."""
        address = f"https://{name.host}/v2/{name.namespace}/{name.model}/{below}"
        if not self._place or name.host != DEFAULT_HOST:
            raise Refused(500, f'Get "{address}": dial tcp: lookup {name.host}: no such host')
        try:
            with self._opened(f"v2/{name.namespace}/{name.model}/{below}") as file:
                yield file
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise Refused(500, "file does not exist") from error
        except urllib.error.HTTPError as error:
            unknown = error.code == HTTPStatus.NOT_FOUND
            raise Refused(500, "file does not exist" if unknown else f"{error.code}: {error.reason}") from error
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError) as error:
            raise Refused(500, f'Get "{address}": {error}') from error

    def _opened(self, below: str) -> Any:
        if self._place.startswith(("http://", "https://")):
            return urllib.request.urlopen(f"{self._place.rstrip('/')}/{below}", timeout=60)  # noqa: S310
        return Path(self._place, below).open("rb")


def pull(store: Store, settings: Settings, name: Name) -> Progress:
    """Bring a model from the registry (server/images.go, PullModel)."""
    registry = Registry(settings.registry)
    old = store.manifest(name)
    yield {"status": "pulling manifest"}
    try:
        with registry.open(name, f"manifests/{name.tag}") as file:
            content = file.read(JSON_BYTES)
    except Refused as refused:
        raise Refused(refused.status, f"pull model manifest: {refused.message}") from refused
    stated = json.loads(content)
    fresh = []
    for layer in [*stated["layers"], *([stated["config"]] if stated.get("config") else [])]:
        digest, size = str(layer["digest"]), int(layer["size"])
        told = {"status": f"pulling {digest[7:19]}", "digest": digest, "total": size}
        path = store.blob(digest)
        if not path.exists():
            yield told
            _download(registry, name, digest, path)
            fresh.append((digest, path))
        yield told | {"completed": size}
    yield {"status": "verifying sha256 digest"}
    for digest, path in fresh:
        _verify(digest, path)
    yield {"status": "writing manifest"}
    store.write_manifest(name, content)
    if old and not settings.no_prune:
        store.remove_unused(layer["digest"] for layer in old.all_layers())
    yield {"status": "success"}


def _download(registry: Registry, name: Name, digest: str, path: Path) -> None:
    partial = path.with_name(f"{path.name}-partial")  # server/download.go: what is half keeps this name
    with registry.open(name, f"blobs/{digest}") as file, partial.open("wb") as kept:
        shutil.copyfileobj(file, kept, PIECE)
    partial.rename(path)


def _verify(digest: str, path: Path) -> None:
    with path.open("rb") as file:
        right = hashlib.file_digest(file, "sha256").hexdigest() == digest.removeprefix("sha256:")
    if not right:  # server/images.go:1447: the blob is removed, and no model is written
        path.unlink()
        raise Refused(500, "digest mismatch, file must be downloaded again")
