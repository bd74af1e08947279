"""The double as a process of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.processes import killed_at_end
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]
COMMAND = (sys.executable, "-m", "tests.doubles.ollama.server")
START_S = 30


@contextmanager
def ollama(folder: Path, **environment: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Run it on a free port of loopback, with its store and its ``log`` in the folder: the process and its address."""
    folder.mkdir(parents=True, exist_ok=True)
    own = {"HOME": str(folder), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "OLLAMA_HOST": "127.0.0.1:0"}
    own["OLLAMA_MODELS"] = str(folder / "models")
    log = folder / "log"
    with (
        log.open("wb") as file,
        killed_at_end(
            subprocess.Popen([*COMMAND, "serve"], env=own | environment, stdout=file, stderr=subprocess.STDOUT)
        ) as process,
    ):
        wait_until(lambda: b"Listening on" in log.read_bytes() or process.poll() is not None, START_S)
        assert process.poll() is None, log.read_text("utf-8")
        port = log.read_text("utf-8").rpartition("Listening on ")[2].split(" ")[0].rpartition(":")[2]
        yield process, f"http://127.0.0.1:{port}"
