"""What a llama.cpp server's options say about the program that is to be built for it, and what it runs with. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from provisioner.catalog import Catalog, ServiceType
from provisioner.cuda.architectures import EXAMPLES, architecture_problem
from provisioner.lab.engines import services_of
from provisioner.spec import ServiceSpec, Spec
from provisioner.state import Problem, Service

ROLE = "llama_cpp"
CPU, CUDA, VULKAN = "cpu", "cuda", "vulkan"
WITHOUT_DEVICE = ("auto", 0)
_DEVICES = re.compile(r"[A-Za-z]+\d+(,[A-Za-z]+\d+)*")
_SOURCE = re.compile(r"pypi:[A-Za-z0-9._-]+==[A-Za-z0-9._+!-]+|git\+https://[!-~]+@[0-9a-f]{40}|https://[!-~]+")
_CONTROL = re.compile(r"[\x00-\x1f]")
_SHA256 = re.compile(r"[0-9a-f]{64}")

_Found = Iterator[tuple[str, str, str]]
"""The option, what is wrong with it, and what to write."""


def engine_builds(spec: Spec, catalog: Catalog) -> Iterator[Problem]:
    """What could not be built, and what would compute on the CPU though a device is asked for."""
    for container, service, page in services_of(spec, catalog):
        if service.role == ROLE:
            for option, message, hint in _all(service, page, has_card=spec.containers[container].gpu is not None):
                yield Problem(("containers", container, "services", service.role, option), message, hint)


def _all(service: ServiceSpec, page: ServiceType, *, has_card: bool) -> _Found:
    """What a card decides is known, and held against it, when its host has been looked at."""
    yield from _source(service)
    yield from _layers(service, page, is_open=has_card and "backend" not in service.options)
    yield from _cuda(service, page, is_open=has_card)
    yield from _environment(service)


def wants_device(service: Service) -> bool:
    """Whether the service computes on a device or not at all."""
    backend, layers = (service.variables.get(f"{ROLE}_{option}") for option in ("backend", "gpu_layers"))
    return service.role == ROLE and backend not in (None, CPU) and layers != 0


def _value(service: ServiceSpec, page: ServiceType, name: str) -> Any:
    return service.options.get(name, page.options[name].default if name in page.options else None)


def _source(service: ServiceSpec) -> _Found:
    source = service.options.get("source")
    if source is None:
        return
    if not _SOURCE.fullmatch(source):
        hint = 'Write "git+https://HOST/PATH@COMMIT" (40 digits), "https://….tar.gz" or "pypi:NAME==VERSION".'
        yield "source", "not a source of llama.cpp", hint
    elif not source.startswith("git+") and not _SHA256.fullmatch(str(service.options.get("source_sha256", ""))):
        yield "source", "what is downloaded needs its sha256", "Write `source_sha256`, 64 digits: sha256sum FILE"


def _layers(service: ServiceSpec, page: ServiceType, *, is_open: bool) -> _Found:
    layers, device = _value(service, page, "gpu_layers"), _value(service, page, "device")
    is_count = isinstance(layers, int) and not isinstance(layers, bool) and layers >= 0
    if layers is not None and not is_count and layers not in ("auto", "all"):
        yield "gpu_layers", f"{layers!r} is no number of layers", "Write auto, all or a number."
    elif not is_open and _value(service, page, "backend") == CPU and (device or layers not in (None, *WITHOUT_DEVICE)):
        option = "device" if device else "gpu_layers"
        yield option, "the program is built for the CPU alone", "Write backend: cuda, or backend: vulkan."
    if device and not _DEVICES.fullmatch(device):
        yield "device", f"{device!r} names no devices", "Write CUDA0, or CUDA0,CUDA1: llama-server --list-devices"


def _cuda(service: ServiceSpec, page: ServiceType, *, is_open: bool) -> _Found:
    version = _value(service, page, "cuda_version")
    if version is None or _value(service, page, "backend") != CUDA:
        return
    names = _value(service, page, "cuda_architectures") or []
    if not names and not is_open:
        yield (
            "backend",
            "a build for CUDA has to know its cards",
            f"Write cuda_architectures: [N], N one of {EXAMPLES}.",
        )
    for name in names:
        problem = architecture_problem(name, version)
        if problem:
            hint = f"Such as {EXAMPLES}; for older cards write backend: vulkan."
            yield "cuda_architectures", f"{name!r}: {problem}", hint


def _environment(service: ServiceSpec) -> _Found:
    for name, value in (service.options.get("environment") or {}).items():
        if _CONTROL.search(str(value)):
            yield "environment", f"the value of {name} holds a control character", "Write one line."
