"""Models in a registry, such as ``qwen3:0.6b``: names, manifests, and what the registry says of one. Pure.

What is left out of a name, and which letters its parts may have, is that of Ollama (``types/model/name.go`` of August
2026): its server is the one that asks for the model in the end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from provisioner.models.header import Header
from provisioner.values.plain_data import json_value

HOST, NAMESPACE, TAG = "registry.ollama.ai", "library", "latest"
"""What a name means that does not say it."""
_PARTS = re.compile(
    r"(?P<host>[A-Za-z0-9_][A-Za-z0-9_.:-]{0,349})/(?P<namespace>[A-Za-z0-9_][A-Za-z0-9_-]{0,79})"
    r"/(?P<model>[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}):(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,79})",
    re.ASCII,
)
_MOST_PARTS = 3


@dataclass(frozen=True, slots=True)
class ModelName:
    """A model in a registry, with everything that its name leaves out."""

    host: str
    namespace: str
    model: str
    tag: str

    @property
    def manifest(self) -> str:
        """The address of its manifest, which lists what it is made of."""
        return f"{self._place}/manifests/{self.tag}"

    def blob(self, digest: str) -> str:
        """The address of one of its files; ``digest`` begins with ``sha256:``."""
        return f"{self._place}/blobs/{digest}"

    @property
    def _place(self) -> str:
        return f"https://{self.host}/v2/{self.namespace}/{self.model}"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A model as a file asks for it: what its registry calls it, perhaps with the digest of the one that is meant."""

    model: str
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Pulled:
    """One version of a model. Sizes are those of its files, in bytes.

    ``digest``: the sha256 of its manifest, by which the version is known; empty where no manifest came. ``header``:
    the head of the model's file. ``projector``: that of the file beside it which turns images into tokens.
    ``family``: the architecture that the registry names. ``numbers``: the whole numbers among the options that come
    with the model. ``parts``: what else comes with it, such as ``adapter``. ``unknown``: why nobody knows what it
    takes; everything else may then be missing.
    """

    digest: str = ""
    header: Header | None = None
    size: int = 0
    projector: Header | None = None
    projector_size: int = 0
    family: str = ""
    numbers: Mapping[str, int] = field(default_factory=dict)
    parts: tuple[str, ...] = ()
    unknown: str = ""


def model_name(text: str) -> ModelName | None:
    """The name, taken apart; None where no registry calls a model so."""
    place, slash, last = text.rpartition("/")
    name, colon, tag = last.partition(":")
    parts = [*place.split("/"), name] if slash else [name]
    if len(parts) > _MOST_PARTS:
        return None
    left_out = [HOST, NAMESPACE][: _MOST_PARTS - len(parts)]
    whole = "/".join([*left_out, *parts]) + ":" + (tag if colon else TAG)
    found = _PARTS.fullmatch(whole)
    return ModelName(**found.groupdict()) if found else None


# A model's manifest in a registry: which files it is made of, by their kind, digest and size.

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
