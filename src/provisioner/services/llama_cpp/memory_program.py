"""The question to llama.cpp itself, by ``llama-memory`` of the role's build: what its server takes of a card. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from provisioner.loads.weighing import ARGUMENT, OF_AN_ARGUMENT, uncounted

PROGRAM = "bin/llama-memory-1"
"""Its place in what the role builds (``files/less_optimised.cmake``); another number where it answers otherwise."""
DEVICES = {"cuda": "CUDA0", "vulkan": "Vulkan0"}
"""The role's names of the one card of a container (``vars/main.yml``; a test holds both equal)."""
UNSEEN = frozenset(
    {
        *("--lora", "--lora-scaled", "--control-vector", "--control-vector-scaled"),
        *("--image-min-tokens", "--image-max-tokens"),
        *("--context-shift", "--cache-reuse"),
    }
)
"""Arguments of which the program says nothing: files that are loaded beside the model, images that are larger than the
one for which it makes room at its start, and caches that are moved, of which a layer's keys are unpacked for that."""
MISTOLD = frozenset({"minimax-01"})
"""Architectures that reserve less in the program than in the server, where it has several requests at a time."""


def program_of(source: str, sha256: str) -> str:
    """Return the name under which the program of a source is kept: all builds of one source answer the same."""
    return f"{PROGRAM.rpartition('/')[2]}-{hashlib.sha256(f'{source} {sha256}'.encode()).hexdigest()[:16]}"


def device_of(backend: str, device: str) -> str:
    """Return the card that the program stands in for; empty where there are several, or none."""
    name = device or DEVICES.get(backend, DEVICES["cuda"])
    return "" if "," in name else name


def counting_words(words: Iterable[str], free: Collection[str]) -> Iterator[str]:
    """Yield the words of a command line without those arguments, and their values, that take nothing (``free``).

    Others may name files of the container, which are not on this machine.
    """
    counts = True
    for word in words:
        if ARGUMENT.match(word):
            counts = word.replace("_", "-") not in free
        if counts:
            yield word


def counting_variables(variables: Mapping[str, Any], free: Collection[str]) -> dict[str, str]:
    """Return the variables that stand for arguments which may take something."""
    told = [name for name in variables if name.startswith(OF_AN_ARGUMENT)]
    return {name: str(variables[name]) for name in told if any(uncounted((), [name], free))}


def words_of_options(options: Mapping[str, Any], *, batch: int, ubatch: int) -> Iterator[str]:
    """Yield the words by which the role has the server take more or less (``__llama_cpp_arguments``)."""
    yield from (
        "--parallel",
        str(options.get("parallel") or 1),
        "--batch-size",
        str(batch),
        "--ubatch-size",
        str(ubatch),
    )
    yield from ("--flash-attn", str(options.get("flash_attention") or "auto"))
    yield "--kv-offload" if options.get("kv_offload", True) else "--no-kv-offload"
    layers = options.get("gpu_layers")
    yield from ("--gpu-layers", "all" if layers in (None, "auto") else str(layers))
    for option, word in (("embedding", "--embedding"), ("rerank", "--reranking"), ("cpu_moe", "--cpu-moe")):
        if options.get(option):
            yield word
    if options.get("n_cpu_moe"):
        yield from ("--n-cpu-moe", str(options["n_cpu_moe"]))
