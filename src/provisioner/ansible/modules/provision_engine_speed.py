# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: measures once how fast an engine of the llama.cpp family computes a model without its device."""

from __future__ import annotations

DOCUMENTATION = r"""
module: provision_engine_speed
short_description: Measure how fast a model is computed by the CPU
description:
  - Runs C(llama-bench) for a few tokens without any device, three times, and takes the best, as what else the host does
    only slows it. Where the three differ much it is run again, and then the figures are not kept for the next time.
  - Figures that are kept lie in a file that only root reads. They are measured again when the model, the program, the
    card, its driver or the number of threads is another one.
options:
  program: {type: path, required: true, description: ["llama-bench, which lies beside the engine."]}
  model: {type: path, required: true, description: [The GGUF model.]}
  threads: {type: int, default: 0, description: [CPU threads; 0 takes all that the container may use.]}
  card: {type: str, default: "", description: [What tells the card and its driver from others.]}
  prompt: {type: int, default: 32, description: [Tokens of the prompt.]}
  generated: {type: int, default: 16, description: [Tokens that are generated after it.]}
  environment: {type: dict, default: {}, description: [Variables of the engine's environment.]}
  keep: {type: path, required: true, description: [The file that keeps the figures.]}
author: [provisioner (!UNKNOWN)]
"""
EXAMPLES = r"""
- name: verify | Measure the CPU
  provision_engine_speed:
    program: /opt/llama_cpp/bin/llama-bench
    model: /srv/models/qwen.gguf
    keep: /var/lib/provisioner/proofs/llama_cpp.speed.json
"""
RETURN = r"""
prompt: {type: float, returned: always, description: Tokens per second of the prompt; 0 when it was not measured.}
generated: {type: float, returned: always, description: Tokens per second of the answer; 0 when it was not measured.}
gpu_info: {type: str, returned: always, description: The devices that llama-bench sees.}
problem: {type: str, returned: always, description: Why it was not measured.}
measured: {type: bool, returned: always, description: Whether it was measured now.}
"""

import hashlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

TIMEOUT_S = 900
TIMES = 3
ROUNDS = 3
ENOUGH_S = 300
"""After so long no other round is begun."""
STEADY = 1.5
"""The fastest of runs that nothing disturbed is at most so many times as fast as the slowest."""
KEPT = 8
"""Figures of as many models, programs and cards are kept."""
LAST_WORDS = 300
FIRST_TO_GO = "1000"
"""The kernel's word for what it ends first when memory runs out: the measurement, not the server beside it."""
MANIFEST = "MANIFEST.sha256"


def main() -> None:
    """Take the figures that are kept, or measure."""
    module = AnsibleModule(
        argument_spec={
            "program": {"type": "path", "required": True},
            "model": {"type": "path", "required": True},
            "threads": {"type": "int", "default": 0},
            "card": {"type": "str", "default": ""},
            "prompt": {"type": "int", "default": 32},
            "generated": {"type": "int", "default": 16},
            "environment": {"type": "dict", "default": {}},
            "keep": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    file = Path(wanted["keep"])
    threads = wanted["threads"] or len(os.sched_getaffinity(0))
    counts = (wanted["prompt"], wanted["generated"], threads)
    key = key_of(Path(wanted["program"]), Path(wanted["model"]), wanted["card"], counts)
    kept = kept_in(file)
    if key in kept:
        module.exit_json(changed=False, measured=False, problem="", **kept[key])
    try:
        figures, is_steady = best_of_rounds(
            lambda: measure(wanted["program"], wanted["model"], counts, wanted["environment"])
        )
    except UnmeasuredError as error:
        module.exit_json(changed=False, measured=True, problem=str(error), prompt=0.0, generated=0.0, gpu_info="")
    if is_steady and not module.check_mode:
        keep(file, {**kept, key: figures})
    # What is kept is our own note, as a stamp is, and nothing of the service.
    module.exit_json(changed=False, measured=True, problem="", **figures)


class UnmeasuredError(Exception):
    """Why llama-bench gave no figures."""


@dataclass(frozen=True)
class Samples:
    """What runs gave: tokens per second of the prompt and of the answer, and the devices that llama-bench sees."""

    prompt: tuple[float, ...]
    generated: tuple[float, ...]
    gpu_info: str

    @property
    def is_steady(self) -> bool:
        """Whether nothing seems to have disturbed the runs."""
        return all(max(one) <= STEADY * min(one) for one in (self.prompt, self.generated))


def key_of(program: Path, model: Path, card: str, counts: Sequence[int]) -> str:
    """A digest of all that the figures depend on: content of the program, identity of the model, card and driver."""
    manifest = program.parent.parent / MANIFEST
    built = manifest.read_text() if manifest.exists() else _identity(program)
    facts = [built, _identity(model), card, *map(str, counts)]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()


def _identity(file: Path) -> str:
    if not file.exists():
        return f"{file} is missing"
    seen = file.stat()
    return f"{file} {seen.st_size} {seen.st_mtime_ns} {seen.st_ino}"


def best_of_rounds(measure_once: Callable[[], Samples]) -> tuple[dict[str, Any], bool]:
    """The best figures of as many rounds as it takes until one is steady, and whether one was."""
    began, best = time.monotonic(), Samples((), (), "")
    for _round in range(ROUNDS):
        seen = measure_once()
        best = Samples((*best.prompt, *seen.prompt), (*best.generated, *seen.generated), seen.gpu_info)
        if seen.is_steady or time.monotonic() - began > ENOUGH_S:
            break
    figures = {"prompt": max(best.prompt), "generated": max(best.generated), "gpu_info": best.gpu_info}
    return figures, seen.is_steady


def measure(program: str, model: str, counts: Sequence[int], environment: Mapping[str, Any]) -> Samples:
    """The figures of short runs on the CPU alone; raises ``UnmeasuredError`` when there are none."""
    prompt, generated, threads = map(str, counts)
    command = [program, "-m", model, "-p", prompt, "-n", generated, "-t", threads, "-r", str(TIMES), "-o", "json"]
    command += ["-ngl", "0", "-dev", "none", "-nopo", "1"]  # else a device computes prompts of 32 tokens and more
    variables = os.environ | {key: str(value) for key, value in environment.items()} | {"LC_ALL": "C"}
    guarded = ["/bin/sh", "-c", f'echo {FIRST_TO_GO} > /proc/self/oom_score_adj && exec "$@"', "sh", *command]
    try:
        done = subprocess.run(guarded, env=variables, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise UnmeasuredError(f"llama-bench had not ended after {TIMEOUT_S} s") from error
    if done.returncode < 0:
        raise UnmeasuredError(
            f"signal {-done.returncode} ended llama-bench; the container's `memory` may be too small for it"
        )
    if done.returncode != 0:
        raise UnmeasuredError(f"llama-bench ended with {done.returncode}: {done.stderr.strip()[-LAST_WORDS:]}")
    return samples_in(done.stdout)


def samples_in(said: str) -> Samples:
    """The speeds and the devices in the JSON of llama-bench."""
    try:
        runs = json.loads(said)
        prompt = speeds_of(runs, "n_prompt", without="n_gen")
        generated = speeds_of(runs, "n_gen", without="n_prompt")
        found = Samples(prompt, generated, str(runs[0]["gpu_info"]))
        slowest = min(*prompt, *generated)
    except (ValueError, TypeError, KeyError) as error:
        raise UnmeasuredError(f"llama-bench said no figures: {said.strip()[-LAST_WORDS:] or 'nothing'}") from error
    if not slowest > 0:
        raise UnmeasuredError(f"llama-bench said figures that are none: {found}")
    return found


def speeds_of(runs: Any, kind: str, *, without: str) -> tuple[float, ...]:
    """The speeds of the first run that computed tokens of one kind only; ``KeyError`` where there is none."""
    for run in runs:
        if run[kind] and not run[without]:
            return tuple(map(float, run["samples_ts"]))
    raise KeyError(kind)


def kept_in(file: Path) -> dict[str, dict[str, Any]]:
    """The figures that are kept, by their keys; none of a file that cannot be read as such."""
    if not file.exists():
        return {}
    try:
        kept = json.loads(file.read_text())
        return {key: _figures(entry) for key, entry in kept.items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}


def _figures(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: entry[name] for name in ("prompt", "generated", "gpu_info")}


def keep(file: Path, figures: Mapping[str, Any]) -> None:
    """Write the latest figures, readable by root only."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = file.with_name(f".{file.name}")
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
        json.dump(dict(list(figures.items())[-KEPT:]), stream)
    partial.replace(file)


if __name__ == "__main__":
    main()
