"""Records what a real llama-bench measures of the same model again and again, on a quiet machine and on a busy one.

    python -m benchmarks.engine_series PROGRAM FILE [--series N]

PROGRAM is llama-bench, FILE gets one JSON line for each series: ``busy`` (whether other work ran), ``name``, and
``trials``: tokens per second of each, and the part of its time in which something waited for a processor.
``bench --gate`` is held against them (``tests/unit/measuring/test_gate.py``): it may see no change where nothing was.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from provisioner.models import tiny
from tests.processes import killed_at_end

TRIALS = 60
"""As many as `bench` makes unless it is told otherwise."""
SIZES = {"EMBEDDING": 256, "FEED_FORWARD": 768, "LAYERS": 8, "HEADS": 4}
"""Seven million parameters: a trial takes a moment, and the processor's caches do not hold the model."""
ASKED = ("-p", "512", "-n", "64", "-r", "1", "-t", "2", "-o", "jsonl")
PRESSURE = Path("/proc/pressure/cpu")
LONGEST_S = 300
LONGEST_BURST_S = 2.0
BURNERS = 2


def model_in(folder: Path, change: Callable[[object, str, Any], None] = setattr) -> Path:
    """A GGUF file of these sizes, with random weights; ``change`` sets those of what this process makes."""
    for name, size in SIZES.items():
        change(tiny, name, size)
    chance = random.Random(0)  # noqa: S311  # the same each time
    some = tiny.float_bytes([chance.uniform(-0.1, 0.1) for _ in range(1 << 16)])

    def content(tensor: tiny.Tensor) -> bytes:
        count = 4
        for rows in tensor.shape:
            count *= rows
        return (some * (count // len(some) + 1))[:count]

    change(tiny._Tensor, "content", property(content))  # noqa: SLF001  # no digest is so long
    file = folder / "bench.gguf"
    file.write_bytes(tiny.tiny_model())
    return file


def waited_us() -> int:
    """For how many microseconds something has waited for a processor since the machine was started."""
    (first, *_) = PRESSURE.read_text(encoding="ascii").splitlines()
    return int(first.rpartition("total=")[2])


def trial(program: Path, model: Path) -> tuple[dict[str, float], float]:
    """Tokens per second by what was measured, and the part of the time in which something waited."""
    began, before = time.monotonic(), waited_us()
    command = [str(program), "-m", str(model), *ASKED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=True)
    waited = (waited_us() - before) / 1e6 / (time.monotonic() - began)
    found = {}
    for line in done.stdout.splitlines():
        said = json.loads(line)
        found[f"pp{said['n_prompt']}" if said["n_prompt"] else f"tg{said['n_gen']}"] = float(said["samples_ts"][0])
    return found, waited


def series(program: Path, model: Path) -> dict[str, list[tuple[float, float]]]:
    """So many trials of each figure."""
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(TRIALS):
        values, waited = trial(program, model)
        for name, value in values.items():
            found.setdefault(name, []).append((round(value, 2), round(waited, 4)))
    return found


@contextmanager
def other_work(*, is_there: bool) -> Iterator[None]:
    """Processes that compute for a while, rest for a while, and so on; none where the machine is to be quiet."""
    chance = random.Random(1)  # noqa: S311  # the same each time
    burst = f"import random, time\nwhile True:\n  end = time.monotonic() + random.uniform(0, {LONGEST_BURST_S})\n"
    burst += f"  while time.monotonic() < end: pass\n  time.sleep(random.uniform(0, {LONGEST_BURST_S}))\n"
    seeds = [chance.randrange(2**31) for _ in range(BURNERS if is_there else 0)]
    with ExitStack() as stack:
        for seed in seeds:
            program = burst.replace("while", f"random.seed({seed})\nwhile", 1)
            stack.enter_context(killed_at_end(subprocess.Popen([sys.executable, "-c", program])))
        yield


def main() -> None:
    """Record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine_series")
    parser.add_argument("program", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--series", type=int, default=12)
    asked = parser.parse_args()
    with TemporaryDirectory() as folder, asked.file.open("w", encoding="utf-8") as out:
        model = model_in(Path(folder))
        for is_busy in (False, True):
            with other_work(is_there=is_busy):
                for _ in range(asked.series):
                    for name, trials in series(asked.program, model).items():
                        out.write(json.dumps({"busy": is_busy, "name": name, "trials": trials}) + "\n")
                        out.flush()


if __name__ == "__main__":
    main()
