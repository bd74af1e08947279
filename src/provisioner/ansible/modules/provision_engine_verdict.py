# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: says from what was measured whether a GPU does an engine's work, and notes it for ``status``."""

from __future__ import annotations

DOCUMENTATION = r"""
module: provision_engine_verdict
short_description: Judge whether a GPU does the work
description:
  - Holds together what the program lists, what the server said of layers, the card's memory and the speeds.
  - Notes the verdict with its figures, for this start of the unit, in a file that only root reads.
options:
  tells: {type: str, choices: [layers, device], default: layers, description: [What the server says of its device.]}
  device: {type: str, required: true, description: [What the program calls the device.]}
  devices: {type: dict, default: {}, description: ["The answer of C(provision_engine_devices), where it was asked."]}
  said: {type: str, required: true, description: [What the server said of its device since it started.]}
  elsewhere: {type: int, default: 0, description: ["Bytes of weights that are to stay in the host's memory."]}
  layers: {type: str, default: "", description: ["How many layers were asked for: C(auto), C(all) or a number."]}
  memory: {type: dict, required: true, description: [The answer of C(provision_card_memory).]}
  speed: {type: dict, default: {}, description: ["How fast the CPU would be, as C(provision_engine_speed) says it."]}
  timings: {type: list, elements: dict, default: [], description: [What the server measured of its own requests.]}
  generates: {type: bool, default: true, description: ["Whether it answers in words; else it only computes prompts."]}
  card: {type: dict, default: {}, description: ["The file's card, which can be measured; empty for one given by hand."]}
  keep: {type: path, required: true, description: [The file that keeps the verdict.]}
author: [provisioner (!UNKNOWN)]
"""
EXAMPLES = r"""
- name: verify | Judge
  provision_engine_verdict:
    device: CUDA0
    devices: "{{ __devices }}"
    said: "{{ __journal.stdout }}"
    memory: "{{ __memory }}"
    keep: /var/lib/provisioner/proofs/llama_cpp.json
"""
RETURN = r"""
verdict: {type: str, returned: always, description: '"GPU", or "device named, unproven".'}
why: {type: str, returned: always, description: "What speaks for it, with figures."}
problem: {type: str, returned: always, description: What speaks against the device; empty when nothing does.}
advice: {type: str, returned: always, description: What to do about it.}
provision_facts: {type: dict, returned: always, description: "For the controller: device_memory, in bytes."}
"""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

GPU = "GPU"
UNPROVEN = "device named, unproven"
MIB = 2**20
PROVABLE = 512 * MIB
"""Of fewer weights neither memory nor speed tells a card from the CPU: a context alone takes some hundred MiB."""
SHARE = 0.8
"""Of the weights: embeddings are looked up, not computed with, and may stay in the host's memory."""
FASTER = 1.3
"""The server's slowest request beside the CPU's best: on a busy host two measurements of one CPU may differ tenfold. A
card that shares the host's memory is faster in prompts at least."""
FIT = (
    "Does the model fit into its memory? Less `context`, a smaller `kv_cache`, or `gpu_layers` as a number. Does the"
    " journal reach back to its start? Restart it where not."
)
PART = (
    "Every token waits for them. Less `context`, a smaller `kv_cache` or a smaller model gets all of them on it; if you"
    " want it so, write `gpu_layers` as a number."
)
NOT_THERE = (
    "Either they are not on the card, or another service has freed memory of the same card meanwhile: restart it, then"
    ' run "provision verify".'
)
GONE = 'They are no longer on the card. Restart it, then run "provision verify".'
NO_FASTER = (
    f"A card that computes is {FASTER} times as fast in one of them. Is it busy with something else? One that is really"
    " no faster is of no use: `backend: cpu`."
)
LAYERS_THERE = "layers"
DEVICE = "device"
"""What a server tells: how many layers its device has, or which it computes on, and how much it put there."""
WHERE_BENCHED = {LAYERS_THERE: "See llama-bench, beside llama-server.", DEVICE: "Does torch of its stack compute?"}
WHERE_TIMED = {
    LAYERS_THERE: "Does /completion answer? It needs 64 tokens of `context`.",
    DEVICE: "Does /v1/completions answer? It needs 128 tokens of `max_model_len`.",
}
PUT_SHARE = 0.4
"""Of the weights' files, what vLLM has on a card at least: 16 bits may become 8 while they are loaded, and the part
that sees pictures may be left out."""
ON_WHAT = re.compile(r"\bdevice_config=(\w+)")
TOOK = re.compile(r"Model loading took ([\d.]+) GiB memory")
"""So the engine of vLLM names its device, and each of its workers what the device holds of the model (0.32, 0.33)."""
OTHER_DEVICE = "Another stack, or `environment`, has it compute there: run the role again, and look at its journal."
SILENT = (
    "Does its journal reach back to its start, and has `environment` it say no less than usual? Restart it where not."
)
TOO_LITTLE = "What stays in the host's memory is `cpu_offload`: leave it out, or write it so that the rest fits."
FALLBACK = re.compile(r"no usable GPU found|failed to initialize CUDA|No devices found|offloaded 0/")
LAYERS = re.compile(r"offloaded (\d+)/(\d+) layers")
BUFFER = re.compile(r"(\S+) model buffer size = +([\d.]+) MiB")
NO_DEVICE = re.compile(r"CPU|\w+_Host$")
"""Buffers of the host: CPU, CPU_Mapped, CPU_REPACK, CUDA_Host, Vulkan_Host."""


@dataclass(frozen=True)
class Signals:
    """What was found out: sizes in bytes (``grown`` -1: not known), speeds in tokens per second (0: not measured).

    ``weights`` are those that have to be on the device, ``whole`` all that the model has.
    """

    device: str
    tells: str = LAYERS_THERE
    problem: str = ""
    advice: str = ""
    on_what: str = ""
    """What vLLM says that it computes on."""
    put: int = 0
    """The bytes that vLLM says its device holds of the model."""
    layers: tuple[int, int] = (0, 0)
    wants_all: bool = False
    """Whether every layer has to be there: the card is one of the file, which asks for no number of layers."""
    fallback: str = ""
    cards: Sequence[str] = ()
    weights: int = 0
    whole: int = 0
    used: int = 0
    grown: int = -1
    unmeasured: str = ""
    must_measure: bool = True
    prompt: float = 0.0
    generated: float = 0.0
    cpu_prompt: float = 0.0
    cpu_generated: float = 0.0
    gpu_info: str = ""
    unbenched: str = ""
    untimed: str = ""
    generates: bool = True
    """Whether it answers in words; what makes embeddings or orders documents only computes prompts."""


@dataclass(frozen=True)
class Verdict:
    """What computes, and why we say so; or what speaks against it, and what to do."""

    verdict: str
    why: str = ""
    problem: str = ""
    advice: str = ""


def main() -> None:
    """Judge, note it, and answer."""
    module = AnsibleModule(
        argument_spec={
            "tells": {"type": "str", "choices": [LAYERS_THERE, DEVICE], "default": LAYERS_THERE},
            "device": {"type": "str", "required": True},
            "devices": {"type": "dict", "default": {}},
            "said": {"type": "str", "required": True},
            "elsewhere": {"type": "int", "default": 0},
            "layers": {"type": "str", "default": ""},
            "memory": {"type": "dict", "required": True},
            "speed": {"type": "dict", "default": {}},
            "timings": {"type": "list", "elements": "dict", "default": []},
            "generates": {"type": "bool", "default": True},
            "card": {"type": "dict", "default": {}},
            "keep": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    file, memory = Path(module.params["keep"]), module.params["memory"]
    signals = signals_in(module.params, grown_before(file, memory))
    found = judge(signals)
    note = {"verdict": found.verdict, "why": found.why or found.problem, "grown": signals.grown}
    if not module.check_mode:
        keep(file, {**note, "start": memory["start"], "driver": memory["driver"]})
    facts = {"device_memory": signals.grown} if signals.grown > 0 and not found.problem else {}
    # The note is ours, as a stamp is, and nothing of the service: nothing has changed.
    module.exit_json(changed=False, provision_facts=facts, **vars(found))


def judge(seen: Signals) -> Verdict:
    """GPU when the device is there, has layers, holds their weights and makes them faster than the CPU does."""
    # Numbers may become wider while they are loaded: what its files hold has to be enough, too.
    small = min(seen.weights, seen.whole or seen.weights) < PROVABLE
    against = _device(seen) or (None if small else _memory(seen) or _speed(seen))
    if against:
        return Verdict(UNPROVEN, "", *against)
    claim = _claim(seen)
    if small:
        why = f"{claim}; {_mib(seen.weights)} of weights are too few to measure, {_mib(PROVABLE)} would do"
        return Verdict(UNPROVEN, why)
    speeds = _speeds(seen)
    if seen.grown < 0:
        return Verdict(UNPROVEN, f"{claim}; {speeds}; its memory could not be measured: {seen.unmeasured}")
    held = f"{', '.join(seen.cards)} holds {_mib(seen.grown)} for {_mib(seen.weights)}"
    part = f" of {_mib(seen.whole)}" if seen.weights < seen.whole else ""
    return Verdict(GPU, f"{claim}; {held}{part}; {speeds}")


def _claim(seen: Signals) -> str:
    """What the server itself says of the device."""
    if seen.tells == DEVICE:
        return f"{seen.device} has {_mib(seen.put)} of the model by its own word"
    return f"{seen.device} has {seen.layers[0]} of {seen.layers[1]} layers"


def _speeds(seen: Signals) -> str:
    prompts = f"prompts {_rate(seen.prompt)}, CPU {_rate(seen.cpu_prompt)}"
    if not seen.generates:
        return prompts
    return f"{_rate(seen.generated)} where the CPU makes {_rate(seen.cpu_generated)} ({prompts})"


_Against = tuple[str, str] | None


def _device(seen: Signals) -> _Against:
    if seen.problem:
        return seen.problem, seen.advice
    return _put(seen) if seen.tells == DEVICE else _layers(seen)


def _put(seen: Signals) -> _Against:
    """What of vLLM's words speaks against it: what it computes on, and how much of the model lies there."""
    if not seen.on_what:
        return "the server said nothing of what it computes on", SILENT
    if seen.on_what != seen.device:
        return f"the server said that it computes on {seen.on_what}", OTHER_DEVICE
    least = int(PUT_SHARE * seen.whole)
    if seen.put < least:
        said = f"the server put {_mib(seen.put)} of the model on it"
        return f"{said}, and {_mib(seen.whole)} of weights need {_mib(least)} at least", TOO_LITTLE
    return None


def _layers(seen: Signals) -> _Against:
    if seen.fallback or not seen.layers[0]:
        return f'the server said "{seen.fallback or "nothing of layers"}"', FIT
    there, all_of_them = seen.layers
    if seen.wants_all and there < all_of_them:
        return f"the server put {there} of {all_of_them} layers on it and computes the others on the CPU", PART
    return None


def _memory(seen: Signals) -> _Against:
    if seen.grown < 0:
        problem = f"what it uses of the card's memory is not known: {seen.unmeasured}"
        return (problem, "Does nvidia-smi work in the container?") if seen.must_measure else None
    needed, cards = int(SHARE * seen.weights), ", ".join(seen.cards)
    if seen.grown < needed:
        growth = f"the memory in use on {cards} has grown by {_mib(seen.grown)} since before its start"
        return f"{growth}, and {_mib(seen.weights)} of weights need {_mib(needed)} at least", NOT_THERE
    if seen.used < needed:
        return f"{cards} has {_mib(seen.used)} in use, less than {_mib(needed)} for its weights", GONE
    return None


def _speed(seen: Signals) -> _Against:
    unknown = seen.unbenched or ("" if seen.cpu_prompt else "nobody measured it")
    if unknown:
        return f"how fast the CPU would be is not known: {unknown}", WHERE_BENCHED[seen.tells]
    if seen.tells == LAYERS_THERE and not seen.gpu_info:
        return "llama-bench, built with it, sees no GPU (its gpu_info is empty)", "See: llama-bench --list-devices"
    if not seen.generates:
        return _prompt_speed(seen)
    if not seen.generated:
        return f"the server did not say how fast it is{seen.untimed}", WHERE_TIMED[seen.tells]
    pairs = ((seen.generated, seen.cpu_generated), (seen.prompt, seen.cpu_prompt))
    if any(device > FASTER * cpu for device, cpu in pairs):
        return None
    device = f"it computes {_rate(seen.generated)} of its answer and {_rate(seen.prompt)} of a prompt"
    return f"{device}, and the CPU alone {_rate(seen.cpu_generated)} and {_rate(seen.cpu_prompt)}", NO_FASTER


def _prompt_speed(seen: Signals) -> _Against:
    if not seen.prompt:
        return "its answers were not timed", "Does it answer? See its journal."
    if seen.prompt > FASTER * seen.cpu_prompt:
        return None
    return f"it computes {_rate(seen.prompt)} of a text, and the CPU alone {_rate(seen.cpu_prompt)}", NO_FASTER


def signals_in(asked: Mapping[str, Any], grown_at_start: int) -> Signals:
    """What the other modules and the server said, as one value; a growth measured earlier in this start counts, too."""
    memory, speed = asked["memory"], asked["speed"]
    return Signals(
        device=asked["device"],
        **_of_device(asked) if asked.get("tells") == DEVICE else _of_layers(asked),
        cards=memory["cards"],
        used=memory["used"],
        grown=max(memory["grown"], grown_at_start) if memory["grown"] >= 0 else -1,
        unmeasured=memory["problem"],
        must_measure=bool(asked["card"]),
        prompt=slowest(asked["timings"], "prompt_per_second"),
        generated=slowest(asked["timings"], "predicted_per_second"),
        cpu_prompt=speed.get("prompt", 0.0),
        cpu_generated=speed.get("generated", 0.0),
        gpu_info=speed.get("gpu_info", ""),
        unbenched=speed.get("problem", ""),
        untimed=f" ({speed['untimed']})" if speed.get("untimed") else "",
        generates=asked.get("generates", True),
    )


def _of_layers(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What the program and its server said, by the names of ``Signals``."""
    said, whole = asked["said"], asked["memory"]["weights"]
    return {
        "problem": asked["devices"]["problem"],
        "advice": asked["devices"]["advice"],
        "layers": layers_in(said),
        "wants_all": bool(asked["card"]) and not asked["layers"].isdigit(),
        "fallback": fallback_in(said),
        "weights": wanted_on_device(on_device(said), whole),
        "whole": whole,
    }


def _of_device(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What vLLM said, by the names of ``Signals``: what it says that it put on the device has to be found there."""
    put = put_in(asked["said"])
    return {
        "tells": DEVICE,
        "on_what": on_what_in(asked["said"]),
        "put": put,
        "weights": put,
        "whole": max(0, asked["memory"]["weights"] - asked["elsewhere"]),
    }


def on_what_in(said: str) -> str:
    """What vLLM's engine said last that it computes on; empty where it said nothing of it."""
    named: list[str] = ON_WHAT.findall(said)
    return named[-1] if named else ""


def put_in(said: str) -> int:
    """The bytes that vLLM's workers together say that their devices hold of the model."""
    return int(sum(float(size) for size in TOOK.findall(said)) * 1024 * MIB)


def fallback_in(said: str) -> str:
    """The line in which the server says that it computes with something else, empty without one."""
    for line in said.splitlines():
        if FALLBACK.search(line):
            return line.strip()
    return ""


def slowest(timings: Iterable[Mapping[str, Any]], name: str) -> float:
    """The least of the speeds of that name, 0 where one does not say it."""
    return min((float(timing.get(name) or 0) for timing in timings), default=0.0)


def layers_in(said: str) -> tuple[int, int]:
    """How many layers the device has, of how many, as the server said last; zeros when it did not.

    Of several models one that is there in part counts, so that none is overlooked.
    """
    last = (0, 0)
    for there, all_of_them in LAYERS.findall(said):
        one = (int(there), int(all_of_them))
        is_known_in_part = last[0] < last[1]
        is_in_part = one[0] < one[1]
        if is_in_part or not is_known_in_part:
            last = one
    return last


def wanted_on_device(told: int, whole: int) -> int:
    """The weights that have to be on the device: all, or as many as the server says where it says that some are not.

    It keeps layers or experts in the host's memory when it is asked to, and (``auto``) when they do not fit.
    """
    return told if 0 < told < SHARE * whole else whole


def on_device(said: str) -> int:
    """The bytes of weights that the server says each device has, as it said last, of all devices together."""
    sizes = {name: float(size) for name, size in BUFFER.findall(said) if not NO_DEVICE.match(name)}
    return int(sum(sizes.values()) * MIB)


def grown_before(file: Path, memory: Mapping[str, Any]) -> int:
    """The growth that was measured earlier of the same start with the same driver; -1 when none was."""
    try:
        note = json.loads(file.read_text())
        known = note["start"] == memory["start"] and note["driver"] == memory["driver"]
        return int(note["grown"]) if known else -1
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return -1


def keep(file: Path, note: Mapping[str, Any]) -> None:
    """Write the note, readable by root only."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = file.with_name(f".{file.name}")
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
        json.dump(note, stream)
    partial.replace(file)


def _mib(size: int) -> str:
    return f"{size / MIB:,.0f} MiB"


def _rate(speed: float) -> str:
    return f"{speed:.1f} tokens/s"


if __name__ == "__main__":
    main()
