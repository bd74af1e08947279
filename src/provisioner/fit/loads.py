"""The engines of a file as loads on a card: their models' shapes, and the options that decide what they need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from provisioner.catalog import Catalog, ServiceType
from provisioner.fit.layers import Shape, shape_of
from provisioner.fit.placing import Placing
from provisioner.fit.terms import LEAST_MARGIN, MARGIN, MIB, Load, total_of
from provisioner.fit.vision import image_buffer
from provisioner.fit.weights import estimated_by_name
from provisioner.gguf import Header
from provisioner.lab.engines import models_of, services_of
from provisioner.spec import ServiceSpec, Spec

ROLE, CPU = "llama_cpp", "cpu"
UBATCH, SMALL_UBATCH, BATCH, SMALL_BATCH = 512, 64, 2048, 128
SMALL_CARD = 8 * 2**30
"""With an encoder on such a card the role computes less at once."""
LONGEST_HEAD = 24 * MIB
"""What of a file is no tensor; where more is missing, not all of its tensors are known."""
IMAGES_UNKNOWN = 500 * MIB
MARGIN_WORDS = f"{MARGIN:.0%} of its weights, at least {LEAST_MARGIN // MIB} MiB, stand for cache, state and buffers"


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the models' files: ``sizes`` in bytes, by the models' names; ``memory`` of containers' cards."""

    headers: Mapping[str, Header]
    sizes: Mapping[str, int]
    memory: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Engine:
    """One service that computes on a card: ``loads`` lie there at the same time; ``unread`` says what is guessed.

    ``header`` of each load's model, where its file is known, is what advice is made from.
    """

    container: str
    loads: tuple[Load, ...]
    unread: tuple[str, ...] = ()
    headers: Mapping[str, Header] = field(default_factory=dict, compare=False)

    @property
    def address(self) -> str:
        """``container/service``."""
        return f"{self.container}/{ROLE}"

    @property
    def total(self) -> int:
        """Bytes that it needs on the card."""
        return sum(map(total_of, self.loads))


def engines_on_cards(spec: Spec, catalog: Catalog, known: Known) -> Iterator[Engine]:
    """Every llama.cpp server of the file, but those that are told to compute on the CPU."""
    for container, service, page in services_of(spec, catalog):
        options = {name: one.default for name, one in page.options.items()} | dict(service.options)
        if service.role != ROLE or options.get("gpu_layers") == 0 or service.options.get("backend") == CPU:
            continue
        server = _Server(spec, container, service, page, options, known)
        together = sorted(server.loads(), key=lambda one: -total_of(one))[: options.get("models_max") or None]
        yield Engine(container, tuple(together), tuple(dict.fromkeys(server.unread(together))), known.headers)


@dataclass(frozen=True, slots=True)
class _Server:
    """One server with its options as they will be."""

    spec: Spec
    container: str
    service: ServiceSpec
    page: ServiceType
    options: Mapping[str, Any]
    known: Known

    def loads(self) -> Iterator[Load]:
        """Each model that it answers with."""
        helper = self.service.options.get("mmproj")
        for name in models_of(self.service, self.page):
            header = self.known.headers.get(name)
            if name != helper and not (header and header.is_projector):
                yield self._load(name, header)

    def unread(self, loads: list[Load]) -> Iterator[str]:
        """What is guessed, and what stands for it."""
        for load in loads:
            if load.shape.unread:
                yield f"{load.name}: {'; '.join(load.shape.unread)}; {MARGIN_WORDS}"
            if not load.weights:
                yield f"{load.name}: nobody tells how large its file is, so its weights are missing in the sum"
            asked = self.options.get("cpu_moe") or load.placing != Placing()
            if asked and not load.tensors:
                yield f"{load.name}: its tensors are not known, so what stays in the host's memory is counted too"
            elif asked and self._header(load.name).parts > 1 and sum(load.tensors.values()) < load.weights * 0.9:
                yield f"{load.name}: only the tensors of its first file are known; all others are counted"
        if self._eye and self._image_buffer() is None:
            yield f"{self._eye}: how large images may be is not known; {IMAGES_UNKNOWN // MIB} MiB stand for one"

    @property
    def _eye(self) -> str:
        return str(self.service.options.get("mmproj") or "")

    @property
    def _has_card(self) -> bool:
        """Whether the file gives the container a card, on which then all layers are put."""
        return self.spec.containers[self.container].gpu is not None

    def _header(self, name: str) -> Header:
        return self.known.headers.get(name, Header(""))

    def _image_buffer(self) -> int | None:
        return image_buffer(self._header(self._eye).values) if self._eye else 0

    def _load(self, name: str, header: Header | None) -> Load:
        options, cache = self.options, self.options.get("kv_cache") or {}
        shape, weights = self._weighed(name, header)
        written = self.service.options.get("gpu_layers", "all" if self._has_card else options.get("gpu_layers"))
        layers = written if isinstance(written, int) and not isinstance(written, bool) else None
        with_experts = header.layers if header and options.get("cpu_moe") else options.get("n_cpu_moe") or 0
        buffer = self._image_buffer()
        return Load(
            name,
            shape,
            weights,
            self._context(name) or shape.context,
            cache.get("k") or "f16",
            cache.get("v") or "f16",
            options.get("parallel") or 1,
            self._ubatch(),
            self.known.sizes.get(self._eye, 0),
            IMAGES_UNKNOWN if buffer is None else buffer,
            options.get("kv_offload", True),
            unified=False,  # the role says how many slots there are, and then each has its own
            adapts=written in (None, "auto"),
            placing=Placing(layers, with_experts),
            tensors=header.tensors if header else {},
        )

    def _weighed(self, name: str, header: Header | None) -> tuple[Shape, int]:
        size = self.known.sizes.get(name, 0)
        if header is not None:
            tensors = sum(header.tensors.values())
            is_whole = tensors and size - tensors < LONGEST_HEAD
            return shape_of(header.values, header.tokens), tensors if is_whole else size
        guess = estimated_by_name(self.spec.models[name].source)
        said = f"nothing is known of it{f' but its name: {guess[1]}' if guess and not size else ''}"
        return Shape("", unread=(said,)), size or (guess[0] if guess else 0)

    def _context(self, name: str) -> int:
        """What is written of it: one model's context yields to its server's, several models' own contexts do not."""
        own, common = self.spec.models[name].context, self.service.options.get("context")
        first, second = (own, common) if "models" in self.service.options else (common, own)
        found = second if first is None else first
        return int(self.options["context"] if found is None else found)

    def _ubatch(self) -> int:
        is_tight = bool(self._eye) and 0 < self.known.memory.get(self.container, 0) <= SMALL_CARD
        batch = self.options.get("batch") or (SMALL_BATCH if is_tight else BATCH)
        return self.options.get("ubatch") or min(SMALL_UBATCH if is_tight else UBATCH, batch)
