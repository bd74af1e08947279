"""What llama-server says of its own memory when it starts, and what ``fit`` says of it, by the same names."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from provisioner.loads.terms import MIB
from provisioner.values import paths
from tests.processes import free_port, killed_at_end
from tests.waiting import wait_until

NAMES = {
    ("load_tensors", "model"): "weights",
    ("llama_kv_cache", "KV"): "cache",
    ("llama_memory_recurrent", "RS"): "recurrent state",
    ("sched_reserve", "compute"): "compute buffers",
    ("reserve_compute_meta", "compute"): "image buffers",
    ("llama_dsv4_comp_state", "state"): "state",
}
LINE = re.compile(r"(\w+):\s+\S+\s+(?:DSV4 \w+ )?(\w+) buffer size\s+=\s+([0-9.]+) MiB")
LOADED = re.compile(r"server is listening|listening on http")
PROGRAMS = "backup/volume/bin"
PATIENCE_S = 180
LAB = """\
name: terms
hosts: {{ here: {{ incus: local }} }}
models:
  one: {{ source: "file:one.gguf" }}
{eye}
containers:
  engine:
    gpu: any
    services:
      llama_cpp: {{ model: one, context: {context}, parallel: {slots}{more} }}
"""


def reported(server: Path, model: Path, context: int, *options: str) -> dict[str, float]:
    """The terms that the server says when it starts with that model, in MiB; raises where it does not start."""
    command = [str(server), "--model", str(model), "--ctx-size", str(context), "--port", str(free_port())]
    command += ["--fit", "off", "--threads", "2", "--host", "127.0.0.1", "-v", *options]
    log = model.with_suffix(".log")
    with (
        log.open("w", encoding="utf-8") as stream,
        killed_at_end(subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT)) as process,
    ):

        def has_told() -> bool:
            assert process.poll() is None, log.read_text(encoding="utf-8", errors="replace")[-2000:]
            return LOADED.search(log.read_text(encoding="utf-8", errors="replace")) is not None

        wait_until(has_told, PATIENCE_S)
    return _terms(log.read_text(encoding="utf-8", errors="replace").splitlines())


def _terms(lines: Sequence[str]) -> dict[str, float]:
    """The sums of what the lines say; a buffer that is reserved twice counts as it was at last."""
    found: dict[str, float] = {}
    for line in lines:
        told = LINE.search(line)
        name = NAMES.get((told[1], told[2])) if told else None
        if told is None or name is None:
            continue
        size = float(told[3])
        found[name] = size if "buffers" in name else found.get(name, 0.0) + size
    return found


def unpacked_server(artifact: Path, folder: Path) -> Path:
    """llama-server out of a build that is kept."""
    return unpacked(artifact, folder, "llama-server")


def unpacked(artifact: Path, folder: Path, name: str) -> Path:
    """A program out of a build that is kept, in the folder."""
    command = ["tar", "-x", "-f", str(artifact), "-C", str(folder), "--strip-components=3", f"{PROGRAMS}/{name}"]
    subprocess.run(command, check=True, timeout=120)
    return folder / name


def foretold(folder: Path, context: int, slots: int, more: str = "") -> dict[str, float]:
    """What ``fit`` says of the folder's ``one.gguf``, with its ``eye.gguf`` where it has one, in MiB."""
    has_eye = (folder / "eye.gguf").exists()
    eye_line = '  eye: { source: "file:eye.gguf" }' if has_eye else ""
    words = f"{', mmproj: eye' if has_eye else ''}{more}"
    (folder / "homelab.yml").write_text(LAB.format(eye=eye_line, context=context, slots=slots, more=words))
    command = [sys.executable, "-m", "provisioner", "fit", "--memory", "100GiB", "--json", "homelab.yml"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=True)
    events: list[dict[str, Any]] = [json.loads(line) for line in ran.stdout.splitlines()]
    (result,) = [event for event in events if event["type"] == "result"]
    (card,) = result["cards"]
    return {term["name"]: term["bytes"] / MIB for term in card["terms"]}


def newest_build() -> Path | None:
    """Return the newest build of llama.cpp that is kept on this machine as Incus packs it; None without one.

    Proxmox VE's archives (``.pve.tar``) have their programs at another path.
    """
    archives = paths.cache().glob("artifacts/provision-llama-cpp-*.tar")
    builds = [file for file in archives if not file.name.endswith(".pve.tar")]
    return max(builds, key=lambda file: file.stat().st_mtime, default=None)
