"""A model's manifest in a registry: which files it is made of, by their kind, digest and size. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from provisioner.values.plain_data import json_value

MEDIA_TYPE = "application/vnd.docker.distribution.manifest.v2+json"
"""What has to be asked for; Ollama's server asks so (``pullModelManifest``)."""
LARGEST_FILE = 1 << 50
_KIND = re.compile(r"application/vnd\.ollama\.image\.([a-z]{1,40})", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)


class ManifestError(ValueError):
    """What came is no manifest; the text says why."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One file: ``digest`` begins with ``sha256:``, ``size`` is in bytes."""

    digest: str
    size: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a model is made of; ``config`` is None where its registry lists none."""

    layers: Mapping[str, Layer]
    """The last file of each kind, which is the one that counts for Ollama, by the kind (``model``, ``params``)."""
    config: Layer | None


def read_manifest(content: bytes) -> Manifest:
    """The manifest; ``ManifestError`` where that is none, with what is wrong with it."""
    try:
        page = json_value(content)
    except ValueError as error:
        raise ManifestError(f"it is no JSON: {error}") from error
    listed = page.get("layers") if isinstance(page, dict) else None
    if not isinstance(listed, list):
        raise ManifestError("it lists no layers")
    layers: dict[str, Layer] = {}
    for entry in listed:
        layer = _layer(entry)
        kind = _KIND.fullmatch(str(entry.get("mediaType")))
        if kind is not None:
            layers[kind[1]] = layer
    config = page.get("config")
    return Manifest(layers, _layer(config) if isinstance(config, dict) and config.get("digest") else None)


def _layer(entry: Any) -> Layer:
    """A layer as it is listed; ``ManifestError`` where it is none."""
    if not isinstance(entry, dict):
        raise ManifestError("a layer is no object")
    digest, size = entry.get("digest"), entry.get("size")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise ManifestError("a layer has no sha256")
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= LARGEST_FILE:
        raise ManifestError("a layer has no size")
    return Layer(digest, size)
