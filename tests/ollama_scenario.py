"""Makes what the scenario of role ``ollama`` starts from: the stand-in's archive, two models and a registry.

``python -m tests.ollama_scenario FOLDER`` writes them below that folder. The models differ by one byte of padding, so
that each has a checksum of its own.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path

from provisioner.models.tiny import ensure_tiny_model
from tests.doubles.ollama.archive import ollama_archive, registry_with


def make(folder: Path) -> str:
    """Write all of it, and give the digest of the model in the registry."""
    ollama_archive(folder)
    with tempfile.TemporaryDirectory() as made:
        gguf = ensure_tiny_model(Path(made)).read_bytes()
    for padding, name in enumerate(("tiny", "other")):
        model = folder / f"models/{name}/{name}.gguf"
        model.parent.mkdir(parents=True, exist_ok=True)
        model.write_bytes(gguf + b"\0" * padding)
        sha256 = hashlib.sha256(model.read_bytes()).hexdigest()
        (model.parent / "MANIFEST.sha256").write_text(f"{sha256}  {name}.gguf\n", encoding="utf-8")
    return registry_with(folder / "registry", gguf + b"\0" * 2, "small", "0.6b")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
