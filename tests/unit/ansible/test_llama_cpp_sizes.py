"""Which sizes of a prompt's parts the role chooses by itself, as Ansible works them out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.plays import run_cases

ROOT = Path(__file__).resolve().parents[3]
CARD = {"llama_cpp_backend": "cuda", "llama_cpp_mmproj": "/srv/models/eye/eye.gguf"}
CASES: dict[str, tuple[dict[str, Any], int, int]] = {
    "text on the CPU": ({}, 2048, 512),
    "images on the CPU": ({"llama_cpp_mmproj": "/srv/models/eye/eye.gguf"}, 2048, 512),
    "images on a card of 8 GiB": ({**CARD, "__llama_cpp_devices": {"memory_mib": 8192}}, 128, 64),
    "images on a card of 12 GiB": ({**CARD, "__llama_cpp_devices": {"memory_mib": 12287}}, 2048, 512),
    "images on a card of unknown size": ({**CARD, "__llama_cpp_devices": {"memory_mib": 0}}, 2048, 512),
    "text on a card of 8 GiB": ({"llama_cpp_backend": "cuda", "__llama_cpp_devices": {"memory_mib": 8192}}, 2048, 512),
    "no layer on the card": (
        {**CARD, "llama_cpp_gpu_layers": 0, "__llama_cpp_devices": {"memory_mib": 8192}},
        2048,
        512,
    ),
    "a small batch": ({"llama_cpp_batch": 256}, 256, 256),
    "a large part": ({"llama_cpp_ubatch": 4096}, 4096, 4096),
    "written on a small card": ({**CARD, "llama_cpp_batch": 512, "__llama_cpp_devices": {"memory_mib": 4096}}, 512, 64),
}


def test_sizes_follow_the_card_and_what_is_written(tmp_path: Path) -> None:
    cases = {name: variables for name, (variables, _, _) in CASES.items()}
    sizes = {"sizes": "{{ [__llama_cpp_batch | int, __llama_cpp_ubatch | int] }}"}
    facts = run_cases(ROOT, tmp_path, "llama_cpp", cases, [{"set_fact": sizes}])
    assert {name: found["sizes"] for name, found in facts.items()} == {
        name: [batch, ubatch] for name, (_, batch, ubatch) in CASES.items()
    }
