"""Ollama's archive with the stand-in for its server, and models in the layout of its registry."""

from __future__ import annotations

import hashlib
import io
import struct
import tarfile
import tempfile
from pathlib import Path

from tests import ollama_server
from tests.ollama_server import CONFIG_KIND, KIND, MANIFEST_KIND, Gguf, human_number, json_line

_PROGRAM = Path(ollama_server.__file__)
_BLOCK = 128 << 10
_NOTE = b"Libraries of Ollama's engines; the stand-in needs none.\n"


def ollama_archive(folder: Path, version: str = ollama_server.VERSION) -> Path:
    """Write ``ollama-linux-amd64.tar.zst``, the same bytes each time, whose program says this version."""
    program = _PROGRAM.read_text(encoding="utf-8")
    own = f'VERSION = "{ollama_server.VERSION}"\n'
    assert program.count(own) == 1
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        _add(archive, "bin/ollama", program.replace(own, f'VERSION = "{version}"\n').encode(), 0o755)
        _add(archive, "lib/ollama/README", _NOTE, 0o644)
    folder.mkdir(parents=True, exist_ok=True)
    written = folder / "ollama-linux-amd64.tar.zst"
    written.write_bytes(_zstd_frame(content.getvalue()))
    return written


def _zstd_frame(content: bytes) -> bytes:
    """A frame of raw blocks (RFC 8878): the same bytes whichever zstd a machine has, and even if it has none."""
    frame = struct.pack("<IBQ", 0xFD2FB528, 0b11100000, len(content))
    for at in range(0, len(content), _BLOCK):
        block = content[at : at + _BLOCK]
        last = at + _BLOCK >= len(content)
        frame += (len(block) << 3 | last).to_bytes(3, "little") + block
    return frame


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def registry_with(folder: Path, gguf: bytes, name: str, tag: str) -> str:
    """Lay a model into a folder as the registry has it; the digest by which ``/api/tags`` will know it."""
    place = folder / "v2" / "library" / name
    for below in ("manifests", "blobs"):
        (place / below).mkdir(parents=True, exist_ok=True)
    config = json_line(_config(gguf) | {"architecture": "amd64", "os": "linux"})
    stated = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_KIND,
        "config": _blob(place, config, CONFIG_KIND),
        "layers": [_blob(place, gguf, f"{KIND}model")],
    }
    manifest = json_line(stated)
    (place / "manifests" / tag).write_bytes(manifest)
    return hashlib.sha256(manifest).hexdigest()


def _config(gguf: bytes) -> dict[str, object]:
    with tempfile.NamedTemporaryFile() as file:
        file.write(gguf)
        file.flush()
        head = Gguf(Path(file.name))
    return {
        "model_format": "gguf",
        "model_family": head.architecture,
        "model_families": [head.architecture],
        "model_type": human_number(head.parameters),
        "file_type": head.file_type,
    }


def _blob(place: Path, content: bytes, kind: str) -> dict[str, object]:
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    (place / "blobs" / digest).write_bytes(content)
    return {"mediaType": kind, "digest": digest, "size": len(content)}
