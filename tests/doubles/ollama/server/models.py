"""Models of the store, and what they can do."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.doubles.ollama.server.gguf import BadGguf, Gguf
from tests.doubles.ollama.server.golang import log
from tests.doubles.ollama.server.names import Name
from tests.doubles.ollama.server.store import KIND, Manifest, Store


@dataclass
class Model:
    """A model as requests meet it (server/images.go, GetModel)."""

    name: Name
    manifest: Manifest
    gguf: Gguf
    size: int
    options: dict[str, Any] = field(default_factory=dict)

    def capabilities(self) -> list[str]:
        """What it can do (server/images.go:112)."""
        return ["completion" if self.gguf.own("pooling_type") is None else "embedding"]


class Models:
    """The models of a store, with the heads of their files remembered."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._heads: dict[str, Gguf] = {}

    def get(self, name: Name) -> Model | None:
        """A model; None if there is none, or none that is whole."""
        manifest = self._store.manifest(name)
        return self.of(manifest) if manifest else None

    def of(self, manifest: Manifest) -> Model | None:
        """The model of a manifest; None if one of its blobs is missing."""
        try:
            return self._whole(manifest)
        except (OSError, ValueError, KeyError, StopIteration, BadGguf) as error:
            log("images.go:725", "couldn't open model file", "ERROR", error=error)
            return None

    def _whole(self, manifest: Manifest) -> Model:
        self._store.blob(manifest.config["digest"]).read_bytes()
        layer = next(layer for layer in manifest.layers if layer["mediaType"] == f"{KIND}model")
        model = Model(manifest.name, manifest, self._head(layer["digest"]), int(layer["size"]))
        for params in manifest.layers:
            if params["mediaType"] == f"{KIND}params":
                model.options = json.loads(self._store.blob(params["digest"]).read_bytes())
        return model

    def _head(self, digest: str) -> Gguf:
        if digest not in self._heads:
            if len(self._heads) > 64:
                self._heads.clear()
            self._heads[digest] = Gguf(self._store.blob(digest))
        return self._heads[digest]
