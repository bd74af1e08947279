"""What the real library of Kokoro holds in memory while it speaks the longest text, beside what ``fit`` reckons."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks.labs import Labs
from benchmarks.measuring import ROOT, Row, say
from provisioner.loads.terms import MIB
from provisioner.services.kokoro import SYMBOLS, WEIGHTS, activation_bytes
from tests.scenario_programs import module_at

SCENARIO = ROOT / "molecule/kokoro"
PROGRAM = SCENARIO / "activations.py"
FRAMES_A_SYMBOL = (1, 2, 3)


def rows(_labs: Labs, _rounds: int) -> list[Row]:
    """MiB for each length of speech; it is counted, so that one round says it."""
    mirror = module_at(SCENARIO / "artifact.py").mirrored()
    with tempfile.TemporaryDirectory(prefix="bench-speech-memory-") as folder:
        say("speech: installing the real library")
        python = _installed(Path(folder), sorted(mirror.glob("*.whl")))
        say("speech: counting tensors")
        command = [str(python), "-W", "ignore", str(PROGRAM), str(mirror), str(SYMBOLS), *map(str, FRAMES_A_SYMBOL)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=1800)
    return rows_of(map(json.loads, done.stdout.splitlines()))


def _installed(folder: Path, wheels: Iterable[Path]) -> Path:
    """The interpreter of a venv with these wheels."""
    venv.create(folder, with_pip=True, symlinks=True)
    python = folder / "bin/python"
    options = ["-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-deps", "--no-index"]
    subprocess.run([str(python), *options, *map(str, wheels)], check=True, stdout=sys.stderr, timeout=1800)
    return python


def rows_of(measured: Iterable[Mapping[str, int]]) -> list[Row]:
    """The weights, and for each length what lived beside them and its share of what is reckoned."""
    found: list[Row] = []
    for one in measured:
        if not found:
            found.append(Row("speech memory: weights", [one["weights"] / MIB], "MiB"))
            found.append(Row("speech memory: weights / reckoned", [one["weights"] / WEIGHTS], "x"))
        what = f"speech memory: {one['symbols']} symbols, {one['frames']} frames"
        found.append(Row(f"{what}: beside the weights", [one["peak"] / MIB], "MiB"))
        found.append(
            Row(f"{what}: beside the weights / reckoned", [one["peak"] / activation_bytes(one["frames"])], "x")
        )
    return found
