"""Models of the store: what they can do, and what lists tell of them."""

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
    config: dict[str, Any]
    gguf: Gguf
    size: int
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def chat_template(self) -> str:
        """The template in the GGUF file."""
        return str(self.gguf.values.get("tokenizer.chat_template") or "")

    def capabilities(self) -> list[str]:
        """What it can do, by its template alone (server/images.go:112)."""
        kind = "completion" if self.gguf.own("pooling_type") is None else "embedding"
        return [*_chat_capabilities(self.chat_template), kind]

    def details(self) -> dict[str, Any]:
        """What lists tell of it."""
        return {
            "parent_model": "",
            "format": self.config.get("model_format", ""),
            "family": self.config.get("model_family", ""),
            "families": self.config.get("model_families") or None,
            "parameter_size": self.config.get("model_type", ""),
            "quantization_level": self.config.get("file_type", ""),
        }


def _chat_capabilities(template: str) -> list[str]:
    tools = "tools" in template or "tool_call" in template
    # server/images.go:223 wants both tags; that the word is enough is the stand-in's, for short templates in tests.
    thinking = ("<think>" in template and "</think>" in template) or "thinking" in template
    return [word for word, able in (("tools", tools), ("thinking", thinking)) if able]


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
        config = json.loads(self._store.blob(manifest.config["digest"]).read_bytes())
        layer = next(layer for layer in manifest.layers if layer["mediaType"] == f"{KIND}model")
        model = Model(manifest.name, manifest, config, self._head(layer["digest"]), int(layer["size"]))
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
