"""The program that is to be built for a llama.cpp server, as far as its options say it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from provisioner.services.base import ResolvedService
from provisioner.values.declared import Problem

CPU, CUDA, VULKAN = "cpu", "cuda", "vulkan"
COMMON, BASELINE = "common", "baseline"
"""Whose instruction sets a program uses (``instructions``), beside those of its host."""
BASELINE_FLAGS = frozenset({"avx", "avx2", "bmi2", "f16c", "fma", "sse4_2"})
"""Flags that processors of x86 have had since 2013; the default of ``processor_flags``."""
USED_FLAGS = BASELINE_FLAGS | {
    *("amx_int8", "amx_tile", "avx_vnni"),
    *("avx512_bf16", "avx512_vnni", "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vbmi", "avx512vl"),
}
"""Flags that ggml has kernels for, by Linux' names; the role lists them as well (a test holds both equal)."""
WITHOUT_DEVICE = ("auto", 0)
_DEVICES = r"[A-Za-z]+\d+(,[A-Za-z]+\d+)*"
_SOURCE = r"pypi:[A-Za-z0-9._-]+==[A-Za-z0-9._+!-]+|git\+https://[!-~]+@[0-9a-f]{40}|https://[!-~]+"
_SHA256 = r"[0-9a-f]{64}"


def build_problems(service: ResolvedService, *, has_card: bool) -> Iterator[Problem]:
    """What could not be built, and what would compute on the CPU though a device is asked for.

    What a card decides is left open while its host has not been looked at (``has_card``, no ``service.card``).
    """
    yield from _source(service)
    yield from _layers(service, is_open=has_card and "backend" not in service.said)
    yield from _cuda(service, is_open=has_card)


def processor_flags(
    service: ResolvedService, flags: frozenset[str], all_flags: Sequence[frozenset[str]]
) -> list[str] | None:
    """Return the processor flags that the built program needs; None where they are the page's default.

    ``flags`` are those of the service's host, ``all_flags`` those of all hosts of such services; empty: nobody knows.
    """
    asked = service.option("instructions")
    usable = _usable(flags)
    if asked == COMMON:
        usable = usable.intersection(*(_usable(others) for others in all_flags))
    if asked == BASELINE or not _processor_computes(service):
        usable &= BASELINE_FLAGS
    return None if usable == BASELINE_FLAGS else sorted(usable)


def _usable(flags: frozenset[str]) -> frozenset[str]:
    return flags & USED_FLAGS if flags else BASELINE_FLAGS


def _processor_computes(service: ResolvedService) -> bool:
    """Return whether the processor computes layers or experts, and not only what a device leaves to it."""
    layers = str(service.option("gpu_layers"))
    keeps_experts = service.option("cpu_moe") or service.option("n_cpu_moe")
    return service.option("backend") == CPU or bool(keeps_experts) or layers.isdigit()


def made_for(service: ResolvedService) -> str:
    """For which processors the program is made, where these are not the usual ones."""
    flags = frozenset(service.option("processor_flags"))
    more, missing = sorted(flags - BASELINE_FLAGS), sorted(BASELINE_FLAGS - flags)
    if missing:
        return f"for a processor without {', '.join(missing)}"
    return f"for a processor with {', '.join(more)}" if more else ""


def _source(service: ResolvedService) -> Iterator[Problem]:
    source = service.said.get("source")
    if source is None:
        return
    has_checksum = re.fullmatch(_SHA256, str(service.said.get("source_sha256", "")))
    if not re.fullmatch(_SOURCE, source):
        hint = 'Write "git+https://HOST/PATH@COMMIT" (40 digits), "https://….tar.gz" or "pypi:NAME==VERSION".'
        yield service.problem("source", "not a source of llama.cpp", hint)
    elif not source.startswith("git+") and not has_checksum:
        hint = "Write `source_sha256`, 64 digits: sha256sum FILE"
        yield service.problem("source", "what is downloaded needs its sha256", hint)


def _layers(service: ResolvedService, *, is_open: bool) -> Iterator[Problem]:
    layers, device = service.option("gpu_layers"), service.option("device")
    is_for_cpu = service.option("backend") == CPU and not is_open
    asks_for_device = device or layers not in (None, *WITHOUT_DEVICE)
    if not _is_layers(layers):
        yield service.problem("gpu_layers", f"{layers!r} is no number of layers", "Write auto, all or a number.")
    elif asks_for_device and is_for_cpu:
        option = "device" if device else "gpu_layers"
        hint = "Write backend: cuda, or backend: vulkan."
        yield service.problem(option, "the program is built for the CPU alone", hint)
    if device and not re.fullmatch(_DEVICES, device):
        hint = "Write CUDA0, or CUDA0,CUDA1: llama-server --list-devices"
        yield service.problem("device", f"{device!r} names no devices", hint)


def _is_layers(value: object) -> bool:
    """Whether a value of ``gpu_layers`` says how many: a word, a number, or nothing."""
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return value >= 0
    return value in (None, "auto", "all")


def _cuda(service: ResolvedService, *, is_open: bool) -> Iterator[Problem]:
    version, architectures = service.option("cuda_version"), service.option("cuda_architectures") or []
    if version is None or service.option("backend") != CUDA:
        return
    from provisioner.cuda.architectures import EXAMPLES, architecture_problem  # nothing that other builds need

    if not architectures and not is_open:
        hint = f"Write cuda_architectures: [N], N one of {EXAMPLES}."
        yield service.problem("backend", "a build for CUDA has to know its cards", hint)
    for architecture in architectures:
        problem = architecture_problem(architecture, version)
        if problem:
            hint = f"Such as {EXAMPLES}; for older cards write backend: vulkan."
            yield service.problem("cuda_architectures", f"{architecture!r}: {problem}", hint)
