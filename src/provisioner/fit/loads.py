"""The engines of a file as loads on a card: their models' shapes, and the options that decide what they need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from provisioner.catalog import Catalog, ServiceType
from provisioner.fit.layers import Shape, shape_of
from provisioner.fit.terms import Load, terms_of
from provisioner.gguf import Header
from provisioner.resolve.engines import models_of, services_of
from provisioner.spec import ServiceSpec, Spec

ROLE = "llama_cpp"
UBATCH = 512
"""What the server takes where nothing is written; less on a small card with an encoder."""


@dataclass(frozen=True, slots=True)
class Engine:
    """One service that computes on a card: ``loads`` lie there at the same time; ``unread`` says what is guessed."""

    container: str
    loads: tuple[Load, ...]
    unread: tuple[str, ...] = ()


def engines_on_cards(
    spec: Spec, catalog: Catalog, headers: Mapping[str, Header], sizes: Mapping[str, int]
) -> Iterator[Engine]:
    """Every llama.cpp server of the file. ``sizes``: bytes of the models' files; one that is in neither is named."""
    for container, service, page in services_of(spec, catalog):
        if service.role != ROLE:
            continue
        options = {name: one.default for name, one in page.options.items()} | dict(service.options)
        unread = [f"nothing is known of model {name}" for name in models_of(service, page) if name not in headers]
        loads = [
            _load(
                name,
                shape_of(headers[name].values, headers[name].tokens),
                options,
                _context(spec, service, name),
                sizes,
            )
            for name in _answering(service, page, headers)
        ]
        together = sorted(loads, key=lambda one: -sum(term.bytes for term in terms_of(one)))
        at_once = options.get("models_max") or len(loads)
        unread += [word for load in loads for word in load.shape.unread]
        if options.get("cpu_moe") or options.get("n_cpu_moe"):
            unread.append("experts that stay on the CPU are counted as if they were on the card")
        yield Engine(container, tuple(together[:at_once]), tuple(dict.fromkeys(unread)))


def _answering(service: ServiceSpec, page: ServiceType, headers: Mapping[str, Header]) -> list[str]:
    return [name for name in models_of(service, page) if name in headers and not headers[name].is_projector]


def _context(spec: Spec, service: ServiceSpec, name: str) -> int | None:
    """What is written of it: one model's context yields to its server's, several models' own contexts do not."""
    own, common = spec.models[name].context, service.options.get("context")
    first, second = (own, common) if "models" in service.options else (common, own)
    return second if first is None else first


def _load(name: str, shape: Shape, options: Mapping[str, Any], context: int | None, sizes: Mapping[str, int]) -> Load:
    cache = options.get("kv_cache") or {}
    return Load(
        name,
        shape,
        sizes.get(name, 0),
        (options["context"] if context is None else context) or shape.context,
        cache.get("k") or "f16",
        cache.get("v") or "f16",
        options.get("parallel") or 1,
        options.get("ubatch") or UBATCH,
        sizes.get(str(options.get("mmproj")), 0),
        cache_on_card=options.get("kv_offload", True),
    )
