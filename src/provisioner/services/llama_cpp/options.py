"""What a llama.cpp server's options say against each other, against its models' files and this version. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from provisioner.gguf import Header
from provisioner.services.base import ModelUse, ResolvedService
from provisioner.state import Problem

PLAIN_TYPES = frozenset({"f32", "f16", "bf16"})
BLOCK = 32
"""Every other type of the cache packs this many numbers of one head together (ggml's ``QK8_0`` and its sisters)."""
BLURRED_KEYS = "q4_0"


def number_problems(service: ResolvedService) -> Iterator[Problem]:
    """Numbers that no server takes beside each other."""
    batch, ubatch = service.option("batch"), service.option("ubatch")
    if batch and ubatch and ubatch > batch:
        yield service.problem("ubatch", f"{ubatch} is larger than batch, {batch}", f"Write {batch} or less.")
    if service.option("cpu_moe") and service.option("n_cpu_moe"):
        message = "cpu_moe keeps the experts of every layer already"
        yield service.problem("n_cpu_moe", message, "Keep one of them.")


def model_problems(service: ResolvedService) -> Iterator[Problem]:
    """A cache, models and a projector that do not go together."""
    yield from _cache_problems(service)
    yield from _file_problems(service)


def option_warnings(service: ResolvedService) -> Iterator[Problem]:
    """What a server runs with, and its user will not like."""
    if cache_type(service, "k") == BLURRED_KEYS:
        message = f"models lose track of code with keys of {BLURRED_KEYS}: long prompts are remembered too vaguely"
        yield service.problem("kv_cache.k", message, 'Write "q8_0"; values may be smaller.')
    yield from _too_much_context(service)
    headers = [service.headers.get(use.name) for use in _served(service)]
    are_dense = all(header and not header.experts for header in headers)
    if are_dense and (service.option("cpu_moe") or service.option("n_cpu_moe")):
        name = "cpu_moe" if service.option("cpu_moe") else "n_cpu_moe"
        yield service.problem(name, "the model has no experts, so that this does nothing", "Leave it out.")


def asked_context(service: ResolvedService, name: str) -> int | None:
    """Tokens that are asked for a model, for all slots together: of one model the server's number counts first,
    of the models of a list their own; None where nothing is said.
    """
    model, of_server = service.models.get(name), service.written.get("context")
    of_model = model.context if model else None
    is_of_a_list = any(use.place is not None for use in service.uses)
    first, second = (of_model, of_server) if is_of_a_list else (of_server, of_model)
    return second if first is None else first


def request_context(service: ResolvedService, name: str, header: Header | None = None) -> int | None:
    """Tokens that one request to a model may fill, as the server divides them; None where only its file could tell."""
    trained = header.context if header else 0
    asked = asked_context(service, name)
    if asked is None:
        asked = service.option("context") or 0
    parallel = max(1, service.option("parallel") or 1)
    share = (asked or trained) // parallel
    return (min(share, trained) if trained else share) or None


def cache_type(service: ResolvedService, part: str) -> str:
    """The type of the cached keys ("k") or values ("v")."""
    return str((service.option("kv_cache") or {}).get(part) or "f16")


def _served(service: ResolvedService) -> Iterator[ModelUse]:
    """Each model that answers; others help it."""
    served = service.served_models
    return (use for use in service.uses if use.name in served)


def _place(use: ModelUse) -> str:
    return use.option if use.place is None else f"{use.option}.{use.place}"


def _too_much_context(service: ResolvedService) -> Iterator[Problem]:
    for use in _served(service):
        header = service.headers.get(use.name)
        asked = request_context(service, use.name)
        if not header or not header.context or not asked or asked <= header.context:
            continue
        message = f"a request gets {asked} tokens, the model was trained with {header.context}, and gets no more"
        most = header.context * service.option("parallel")
        if use.place is None:
            yield service.problem("context", message, f"Write {most} or less.")
        else:
            yield service.problem(_place(use), message, f"Give {use.name} a context of {most} or less.")


def _cache_problems(service: ResolvedService) -> Iterator[Problem]:
    of_values = cache_type(service, "v")
    if of_values not in PLAIN_TYPES and service.option("flash_attention") == "off":
        message = f"values of type {of_values} need flash attention"
        yield service.problem("kv_cache.v", message, "Leave flash_attention at auto, or write f16.")
    for use in _served(service):
        header = service.headers.get(use.name)
        if header is None:
            continue
        whose = "the model's heads" if use.place is None else f"the heads of {use.name}"
        for part, size in (("k", header.key_size), ("v", header.value_size)):
            type_of_part = cache_type(service, part)
            if type_of_part not in PLAIN_TYPES and size % BLOCK:
                message = f"{type_of_part} packs {BLOCK} numbers together, {whose} have {size}"
                yield service.problem(f"kv_cache.{part}", message, "Write f16 or bf16.")


def _file_problems(service: ResolvedService) -> Iterator[Problem]:
    for use in _served(service):
        header = service.headers.get(use.name)
        if header and header.is_projector:
            message = "it only turns images into tokens"
            yield service.problem(_place(use), message, "Name it as mmproj, beside a model.")
    if service.option("mmproj") and service.option("models"):
        hint = "Give the model that looks at images a container of its own, with model and mmproj."
        yield service.problem("mmproj", "a projector belongs to one model, and this server has several", hint)
    projector = service.headers.get(str(service.written.get("mmproj", "")))
    if projector and not projector.is_projector:
        message = f"it is a model ({projector.architecture}), not the projector of one"
        yield service.problem("mmproj", message, "Name the file that its makers call mmproj-….gguf.")
    if projector and projector.parts > 1:
        hint = "Join them with: llama-gguf-split --merge FIRST.gguf WHOLE.gguf"
        yield service.problem("mmproj", f"its file is one of {projector.parts} parts", hint)
