"""Models made of uploaded files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.doubles.ollama.server.errors import Refused
from tests.doubles.ollama.server.gguf import BadGguf, Gguf
from tests.doubles.ollama.server.golang import json_line
from tests.doubles.ollama.server.names import Name
from tests.doubles.ollama.server.settings import Settings
from tests.doubles.ollama.server.store import CONFIG_KIND, KIND, MANIFEST_KIND, Layer, Store

Progress = Iterator[dict[str, Any]]
CONFIG = json_line({"model_format": "gguf", "architecture": "amd64", "os": "linux"})
PLAYED = {"model", "name", "files", "parameters", "stream"}


def create(store: Store, settings: Settings, body: dict[str, Any], name: Name) -> Progress:
    """Make a model of uploaded files, with parameters where the request has some (server/create.go)."""
    if body.get("files") is None:
        raise Refused(400, "neither 'from' or 'files' was specified")
    if unplayed := sorted(body.keys() - PLAYED):
        raise Refused(501, f"the stand-in makes no model with {', '.join(unplayed)}")
    old = store.manifest(name)
    layers: list[Layer] = []
    yield from _layers_of_files(store, body["files"], layers)
    if body.get("parameters"):
        layers.append(store.add([json_line(body["parameters"])], f"{KIND}params"))
    for layer in layers:
        yield {"status": layer.status}
    yield {"status": "writing manifest"}
    stated = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_KIND,
        "config": store.add([CONFIG], CONFIG_KIND).entry(),
        "layers": [layer.entry() for layer in layers],
    }
    store.write_manifest(name, json_line(stated))
    if old and not settings.no_prune:
        store.remove_unused(layer["digest"] for layer in old.all_layers())
    yield {"status": "success"}


def _layers_of_files(store: Store, files: dict[str, str], layers: list[Layer]) -> Progress:
    for file, digest in sorted(files.items()):
        path = store.blob(digest)
        # server/create.go, detectModelTypeFromFiles: the name decides, and only then the content.
        if not file.endswith(".gguf") and (not path.exists() or _magic(path) != b"GGUF"):
            raise Refused(400, "unknown type")
        yield {"status": "parsing GGUF"}
        if not path.exists():
            raise Refused(500, f"open {path}: no such file or directory")
        if _magic(path) != b"GGUF":
            raise Refused(400, "supplied file was not in GGUF format")
        os.utime(path)
        head = _head_of(path)
        yield {"status": "verifying conversion"}
        # server/create.go:942, copyLayerWithLlamaQuantize: what is kept is a rewritten file with a digest of its own.
        # Nothing needs the upload any more; the first start later than an hour after this prunes it.
        layers.append(store.add(head.rewritten(), f"{KIND}model"))
    if not layers:
        raise Refused(400, "unknown type")


def _magic(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4)


def _head_of(path: Path) -> Gguf:
    try:
        return Gguf(path)
    except BadGguf as error:
        raise Refused(500, str(error)) from error
