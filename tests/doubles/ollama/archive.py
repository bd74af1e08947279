"""Ollama's archive with the double in the place of its program, and models in the layout of its registry."""

from __future__ import annotations

import hashlib
import io
import struct
import tarfile
import zipfile
from pathlib import Path

from tests.doubles.ollama.server.golang import json_line
from tests.doubles.ollama.server.making import CONFIG
from tests.doubles.ollama.server.store import CONFIG_KIND, KIND, MANIFEST_KIND

ROOT = Path(__file__).resolve().parents[3]
_SERVER = "tests/doubles/ollama/server"
_BLOCK = 128 << 10
_NOTE = b"Libraries of Ollama's engines; the stand-in needs none.\n"


def ollama_archive(folder: Path) -> Path:
    """Write ``ollama-linux-amd64.tar.zst``, the same bytes each time."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        _add(archive, "bin/ollama", _program(), 0o755)
        _add(archive, "lib/ollama/README", _NOTE, 0o644)
    folder.mkdir(parents=True, exist_ok=True)
    written = folder / "ollama-linux-amd64.tar.zst"
    written.write_bytes(_zstd_frame(content.getvalue()))
    return written


def _program() -> bytes:
    """The package as one executable file: a shebang, and a zip that Python runs."""
    modules = sorted(ROOT.glob(f"{_SERVER}/*.py"))
    files = {module.relative_to(ROOT).as_posix(): module.read_text(encoding="utf-8") for module in modules}
    files |= {f"{package}/__init__.py": "" for package in ("tests", "tests/doubles", "tests/doubles/ollama")}
    files["__main__.py"] = files[f"{_SERVER}/__main__.py"]
    program = io.BytesIO(b"#!/usr/bin/env python3\n")
    program.seek(0, io.SEEK_END)
    with zipfile.ZipFile(program, "a") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name), text)
    return program.getvalue()


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
    stated = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_KIND,
        "config": _blob(place, CONFIG, CONFIG_KIND),
        "layers": [_blob(place, gguf, f"{KIND}model")],
    }
    manifest = json_line(stated)
    (place / "manifests" / tag).write_bytes(manifest)
    return hashlib.sha256(manifest).hexdigest()


def _blob(place: Path, content: bytes, kind: str) -> dict[str, object]:
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    (place / "blobs" / digest).write_bytes(content)
    return {"mediaType": kind, "digest": digest, "size": len(content)}
