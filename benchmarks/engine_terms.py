"""What ``fit`` reckons of models, term by term, beside what llama-server says of its own memory when it starts."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.labs import Labs
from benchmarks.measuring import Row, say
from tests.engine_report import foretold, newest_build, reported, unpacked_server
from tests.random_models import MODELS, eye, write

CONTEXT = 16_384


def rows(_labs: Labs, _rounds: int) -> list[Row]:
    """MiB of each term of each model, as reckoned and as told; one round says it. Nothing where no engine is built."""
    build = newest_build()
    if build is None:
        say("engine terms: llama.cpp was not built here yet")
        return []
    found: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="bench-engine-terms-") as folder:
        server = unpacked_server(build, Path(folder))
        for name in MODELS:
            say(f"engine terms: {name}")
            found += _rows_of(name, server, Path(folder) / name)
    return found


def _rows_of(name: str, server: Path, folder: Path) -> list[Row]:
    """The terms of one model, whose files are made and taken away again."""
    folder.mkdir()
    write(MODELS[name](), folder / "one.gguf")
    options = ["--parallel", "1"]
    if name == "seeing":
        write(eye(), folder / "eye.gguf")
        options += ["--mmproj", str(folder / "eye.gguf")]
    reckoned = foretold(folder, CONTEXT, 1)
    told = reported(server, folder / "one.gguf", CONTEXT, *options)
    for file in folder.glob("*.gguf"):
        file.unlink()
    found: list[Row] = []
    for term, size in told.items():
        found.append(Row(f"engine terms: {name}: {term}", [size], "MiB"))
        found.append(Row(f"engine terms: {name}: {term}, reckoned", [reckoned.get(term, 0.0)], "MiB"))
    return found
