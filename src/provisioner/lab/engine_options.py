"""What a llama.cpp server's options say against each other, against its model's file and this version. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from provisioner.catalog import Catalog, ServiceType
from provisioner.gguf import Header
from provisioner.lab.engines import model_options, served_models, services_of
from provisioner.spec import ServiceSpec, Spec
from provisioner.state import Problem

ROLE = "llama_cpp"
PLAIN_TYPES = frozenset({"f32", "f16", "bf16"})
BLOCK = 32
"""Every other type of the cache packs this many numbers of one head together (ggml's ``QK8_0`` and its sisters)."""
BLURRED_KEYS = "q4_0"


@dataclass(frozen=True, slots=True)
class _Server:
    """One llama.cpp server of the file: its options as they will be, and what the files of its models say."""

    container: str
    service: ServiceSpec
    page: ServiceType
    spec: Spec
    headers: Mapping[str, Header]

    def option(self, name: str) -> Any:
        """The option as written, else its default; None where the role has none of that name."""
        return self.service.options.get(name, _default(self.page, name))

    def cache_type(self, part: str) -> str:
        """The type of the cached keys ("k") or values ("v")."""
        return str((self.option("kv_cache") or {}).get(part) or "f16")

    def header(self, option: str) -> Header | None:
        """What the file behind a reference says; None where it is not known yet."""
        return self.headers.get(str(self.service.options.get(option, "")))

    def served(self) -> Iterator[tuple[str, str, Header | None]]:
        """Each model that answers: its place among the options, its name, and what its file says where it is known."""
        names = served_models(self.service, self.page)
        for option, place, name in model_options(self.service, self.page):
            if name in names:
                yield option if place is None else f"{option}.{place}", name, self.headers.get(name)

    def problem(self, words: str, message: str, hint: str) -> Problem:
        """Something wrong with the option ``words``, dots between its parts."""
        parts = (int(part) if part.isdigit() else part for part in words.split("."))
        path = ("containers", self.container, "services", self.service.role, *parts)
        return Problem(path, message, hint)


def option_problems(spec: Spec, catalog: Catalog, headers: Mapping[str, Header]) -> Iterator[Problem]:
    """What no server could run with. ``headers`` holds the models whose files are there."""
    for server in _servers(spec, catalog, headers):
        yield from _numbers(server)
        yield from _cache(server)
        yield from _files(server)


def option_warnings(spec: Spec, catalog: Catalog, headers: Mapping[str, Header]) -> Iterator[Problem]:
    """What a server runs with, and its user will not like."""
    for server in _servers(spec, catalog, headers):
        if server.cache_type("k") == BLURRED_KEYS:
            message = f"models lose track of code with keys of {BLURRED_KEYS}: long prompts are remembered too vaguely"
            yield server.problem("kv_cache.k", message, 'Write "q8_0"; values may be smaller.')
        yield from _too_much_context(server)
        are_dense = all(header and not header.experts for _, _, header in server.served())
        if are_dense and (server.option("cpu_moe") or server.option("n_cpu_moe")):
            name = "cpu_moe" if server.option("cpu_moe") else "n_cpu_moe"
            yield server.problem(name, "the model has no experts, so that this does nothing", "Leave it out.")


def request_context(
    spec: Spec, service: ServiceSpec, page: ServiceType, name: str, header: Header | None = None
) -> int | None:
    """Tokens that one request to a model may fill, as the server divides them; None where only its file could tell."""
    trained = header.context if header else 0
    model, written = spec.models.get(name), service.options.get("context")
    own = model.context if model else None
    is_one_of_a_list = any(place is not None for _, place, _ in model_options(service, page))
    # What the server says of the models of a list is meant for those that say nothing themselves.
    wishes = (own, written) if is_one_of_a_list else (written, own)
    asked = _first(*wishes, _default(page, "context"), 0)
    parallel = max(1, _first(service.options.get("parallel"), _default(page, "parallel"), 1))
    share = (asked or trained) // parallel
    return (min(share, trained) if trained else share) or None


def takes_images(service: ServiceSpec) -> bool:
    """Whether the server has a projector beside its model."""
    return service.role == ROLE and bool(service.options.get("mmproj"))


def _first(*numbers: int | None) -> int:
    return next(one for one in numbers if one is not None)


def _default(page: ServiceType, name: str) -> Any:
    return page.options[name].default if name in page.options else None


def _servers(spec: Spec, catalog: Catalog, headers: Mapping[str, Header]) -> Iterator[_Server]:
    for container, service, page in services_of(spec, catalog):
        if service.role == ROLE:
            yield _Server(container, service, page, spec, headers)


def _too_much_context(server: _Server) -> Iterator[Problem]:
    for place, name, header in server.served():
        asked = request_context(server.spec, server.service, server.page, name)
        if header and header.context and asked and asked > header.context:
            message = f"a request gets {asked} tokens, the model was trained with {header.context}, and gets no more"
            most = header.context * server.option("parallel")
            hint = f"Write {most} or less." if place == "model" else f"Give {name} a context of {most} or less."
            yield server.problem("context" if place == "model" else place, message, hint)


def _numbers(server: _Server) -> Iterator[Problem]:
    batch, ubatch = server.option("batch"), server.option("ubatch")
    if batch and ubatch and ubatch > batch:
        yield server.problem("ubatch", f"{ubatch} is larger than batch, {batch}", f"Write {batch} or less.")
    if server.option("cpu_moe") and server.option("n_cpu_moe"):
        yield server.problem("n_cpu_moe", "cpu_moe keeps the experts of every layer already", "Keep one of them.")


def _cache(server: _Server) -> Iterator[Problem]:
    if server.cache_type("v") not in PLAIN_TYPES and server.option("flash_attention") == "off":
        message = f"values of type {server.cache_type('v')} need flash attention"
        yield server.problem("kv_cache.v", message, "Leave flash_attention at auto, or write f16.")
    for place, name, header in server.served():
        whose = "the model's heads" if place == "model" else f"the heads of {name}"
        sizes = {"k": header.key_size, "v": header.value_size} if header else {}
        for part, size in sizes.items():
            if server.cache_type(part) not in PLAIN_TYPES and size % BLOCK:
                message = f"{server.cache_type(part)} packs {BLOCK} numbers together, {whose} have {size}"
                yield server.problem(f"kv_cache.{part}", message, "Write f16 or bf16.")


def _files(server: _Server) -> Iterator[Problem]:
    served, projector = list(server.served()), server.header("mmproj")
    for place, _, header in served:
        if header and header.is_projector:
            yield server.problem(place, "it only turns images into tokens", "Name it as mmproj, beside a model.")
    if server.option("mmproj") and server.option("models"):
        hint = "Give the model that looks at images a container of its own, with model and mmproj."
        yield server.problem("mmproj", "a projector belongs to one model, and this server has several", hint)
    if projector and not projector.is_projector:
        message = f"it is a model ({projector.architecture}), not the projector of one"
        yield server.problem("mmproj", message, "Name the file that its makers call mmproj-….gguf.")
    if projector and projector.parts > 1:
        hint = "Join them with: llama-gguf-split --merge FIRST.gguf WHOLE.gguf"
        yield server.problem("mmproj", f"its file is one of {projector.parts} parts", hint)
