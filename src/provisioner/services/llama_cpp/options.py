"""The rules of a llama.cpp server's options: against each other, its models' files, and this version. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from provisioner.models.header import Header
from provisioner.services.base import ModelUse, ResolvedService
from provisioner.services.gateway_routes import CHAT, EMBEDDING, RERANK
from provisioner.values.declared import Problem

JOINED = re.compile(r"--?[A-Za-z][A-Za-z0-9-]*=")
PLAIN_TYPES = frozenset({"f32", "f16", "bf16"})
BLOCK = 32
"""Every other type of the cache packs this many numbers of one head together (ggml's ``QK8_0`` and its sisters)."""
BLURRED_KEYS = "q4_0"
ENCODERS = frozenset(
    {
        "bert",
        "eurobert",
        "gemma-embedding",
        "jina-bert-v2",
        "jina-bert-v3",
        "modern-bert",
        "neo-bert",
        "nomic-bert",
        "nomic-bert-moe",
    }
)
"""Architectures that answer nothing in words."""
LONGEST_TEXT = 2048
"""Tokens that one text may have where the context is the model's own (``vars/main.yml``; a test holds both equal)."""


def number_problems(service: ResolvedService) -> Iterator[Problem]:
    """Numbers and words that no server takes beside each other."""
    batch, ubatch = service.option("batch") or 0, service.option("ubatch") or 0
    if 0 < batch < ubatch:
        yield service.problem("ubatch", f"{ubatch} is larger than batch, {batch}", f"Write {batch} or less.")
    words = [str(word).replace("_", "-") for word in service.option("extra_arguments") or ()]
    for place, word in enumerate(words):
        found = JOINED.match(word)
        if found is not None:
            hint = "Write the name and the value as two items of the list."
            yield service.problem(f"extra_arguments.{place}", f"llama-server takes no value in {found[0]}", hint)
    if "--pooling" in words and not service.option("embedding"):
        message = "--pooling says how vectors are made, which only a server with embedding does"
        yield service.problem("extra_arguments", message, "Leave it out, or write embedding: true.")
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
    yield from _idle_experts(service)


def _idle_experts(service: ResolvedService) -> Iterator[Problem]:
    """Options for experts of models that have none, as far as their files are known."""
    headers = [service.headers.get(use.name) for use in served_uses(service)]
    if not all(header and not header.experts for header in headers):
        return
    for name in ("cpu_moe", "n_cpu_moe"):
        if service.option(name):
            yield service.problem(name, "the model has no experts, so that this does nothing", "Leave it out.")
            return


def kind_of(service: ResolvedService) -> str:
    """What the server is for."""
    if service.option("embedding"):
        return EMBEDDING
    return RERANK if service.option("rerank") else CHAT


def longest_text(service: ResolvedService, name: str) -> int:
    """Tokens that a text may have, as the role says it, of which the server makes a vector or a score by a model."""
    asked = asked_context(service, name)
    context: int = service.option("context") if asked is None else asked
    share = context // max(1, service.option("parallel") or 1)
    usual = share or LONGEST_TEXT
    ubatch = service.option("ubatch") or 0
    batch = service.option("batch") or max(usual, ubatch)
    return min(ubatch or usual, batch)


def pooling_of(header: Header) -> int | None:
    """How the file says that vectors become one; None where it says nothing."""
    said = header.values.get(f"{header.architecture}.pooling_type")
    return said if isinstance(said, int) else None


def is_plain_chat(service: ResolvedService) -> bool:
    """Whether it is a chat, of models that are made for nothing else as far as their files are known."""
    headers = [service.headers[name] for name in service.model_names if name in service.headers]
    is_made_for_more = any(one.architecture in ENCODERS or pooling_of(one) is not None for one in headers)
    return kind_of(service) == CHAT and not is_made_for_more


def asked_context(service: ResolvedService, name: str) -> int | None:
    """Tokens that are asked for a model, for all slots together; None where nothing is said.

    Of one model the server's number counts first, of the models of a list their own.
    """
    of_server: int | None = service.written.get("context")
    model = service.models.get(name)
    of_model = model.context if model else None
    numbers = [of_server, of_model]
    if any(use.place is not None for use in service.uses):
        numbers.reverse()
    first, second = numbers
    return second if first is None else first


def request_context(service: ResolvedService, name: str, header: Header | None = None) -> int | None:
    """Tokens that one request to a model may fill, as the server divides them; None where only its file could tell."""
    trained = header.context if header else 0
    asked = asked_context(service, name)
    if asked is None:
        asked = service.option("context")
    slots = max(1, service.option("parallel") or 1)
    share = (asked or trained) // slots
    if trained:
        share = min(share, trained)
    return share or None


def cache_type(service: ResolvedService, part: str) -> str:
    """The type of the cached keys ("k") or values ("v")."""
    return str((service.option("kv_cache") or {}).get(part) or "f16")


def served_uses(service: ResolvedService) -> Iterator[ModelUse]:
    """Each model that answers; others help it."""
    served = service.served_models
    return (use for use in service.uses if use.name in served)


def place_of(use: ModelUse) -> str:
    """The option that names the model, and where in it."""
    return use.option if use.place is None else f"{use.option}.{use.place}"


def _too_much_context(service: ResolvedService) -> Iterator[Problem]:
    for use in served_uses(service):
        header = service.headers.get(use.name)
        trained = header.context if header else 0
        asked = request_context(service, use.name) or 0
        if not 0 < trained < asked:
            continue
        message = f"a request gets {asked} tokens, the model was trained with {trained}, and gets no more"
        most = trained * service.option("parallel")
        if use.place is None:
            yield service.problem("context", message, f"Write {most} or less.")
        else:
            yield service.problem(place_of(use), message, f"Give {use.name} a context of {most} or less.")


def _cache_problems(service: ResolvedService) -> Iterator[Problem]:
    of_values = cache_type(service, "v")
    if of_values not in PLAIN_TYPES and service.option("flash_attention") == "off":
        message = f"values of type {of_values} need flash attention"
        yield service.problem("kv_cache.v", message, "Leave flash_attention at auto, or write f16.")
    for use in served_uses(service):
        header = service.headers.get(use.name)
        if header is not None:
            yield from _unpackable(service, use, "k", header.key_size)
            yield from _unpackable(service, use, "v", header.value_size)


def _unpackable(service: ResolvedService, use: ModelUse, part: str, size: int) -> Iterator[Problem]:
    """A type that packs more numbers together than go into the model's heads; ``size``: numbers of one head."""
    type_of_part = cache_type(service, part)
    if type_of_part in PLAIN_TYPES or size % BLOCK == 0:
        return
    whose = "the model's heads" if use.place is None else f"the heads of {use.name}"
    message = f"{type_of_part} packs {BLOCK} numbers together, {whose} have {size}"
    yield service.problem(f"kv_cache.{part}", message, "Write f16 or bf16.")


def _file_problems(service: ResolvedService) -> Iterator[Problem]:
    """A helper in a model's place, a model in a projector's, and a projector that no server could load."""
    for use in served_uses(service):
        header = service.headers.get(use.name)
        if header and header.helps:
            hint = "Name it as mmproj, beside a model." if header.is_projector else "Name the model that it belongs to."
            yield service.problem(place_of(use), header.helps, hint)
    if service.option("mmproj") and service.option("models"):
        hint = "Give the model that looks at images a container of its own, with model and mmproj."
        yield service.problem("mmproj", "a projector belongs to one model, and this server has several", hint)
    projector = service.headers.get(str(service.written.get("mmproj", "")))
    if projector is None:
        return
    if not projector.is_projector:
        message = f"it is a model ({projector.architecture}), not the projector of one"
        yield service.problem("mmproj", message, "Name the file that its makers call mmproj-….gguf.")
    if projector.parts > 1:
        hint = "Join them with: llama-gguf-split --merge FIRST.gguf WHOLE.gguf"
        yield service.problem("mmproj", f"its file is one of {projector.parts} parts", hint)


# Servers for embeddings or an order of documents, and their models. No lab whose servers and models are for chats needs
# it (`is_plain_chat`).

NO_POOLING, RANK_POOLING = 0, 4
"""What a file says of how the vectors of all tokens become one (``ARCHITECTURE.pooling_type``): not at all; a score."""
POOLINGS = {NO_POOLING: "none", 1: "mean", 2: "cls", 3: "last", RANK_POOLING: "rank"}
POOLING_ARGUMENT = "--pooling"


def kind_problems(service: ResolvedService) -> Iterator[Problem]:
    """Options that do not go together, and models that are made for something else, as far as their files are known."""
    yield from _option_problems(service)
    for use in served_uses(service):
        header = service.headers.get(use.name)
        if header is not None and not header.helps:
            yield from _PROBLEMS[kind_of(service)](service, use, header)


def _option_problems(service: ResolvedService) -> Iterator[Problem]:
    kind = kind_of(service)
    if service.option("embedding") and service.option("rerank"):
        message = "embedding is written, too, and a server does one thing"
        yield service.problem(RERANK, message, "Give each of them a container of its own.")
    if kind == CHAT:
        return
    if service.option("models"):
        message = "it is for one model, and this server has several"
        yield service.problem(kind, message, "Give each model for it a container of its own, with `model`.")
    if service.option("mmproj"):
        message = f"it looks at images for a chat, and {kind} is written"
        yield service.problem("mmproj", message, "Leave one of them out.")


def kind_warnings(service: ResolvedService) -> Iterator[Problem]:
    """What a server runs with, and does less than its user expects."""
    kind = kind_of(service)
    for use in served_uses(service):
        header = service.headers.get(use.name)
        pooling = pooling_of(header) if header else None
        if kind == CHAT and header and header.architecture not in ENCODERS and pooling in (1, 2, 3):
            hint = "Write embedding: true, or name another model."
            yield service.problem(place_of(use), "its file says that it is made for embeddings", hint)
        if kind == RERANK and header and pooling is None:
            hint = "Name a reranker; its proof tells whether it orders documents."
            yield service.problem(place_of(use), "its file does not say that it is a reranker", hint)
        if kind != CHAT:
            yield from _short_texts(service, use, header)


def _short_texts(service: ResolvedService, use: ModelUse, header: Header | None) -> Iterator[Problem]:
    """Parts of a prompt that are smaller than the context: a vector or a score is made of a whole text at once."""
    room, longest = request_context(service, use.name, header) or 0, longest_text(service, use.name)
    if longest >= room:
        return
    message = f"texts of more than {longest} tokens are refused, though the context has room for {room}"
    for option in ("ubatch", "batch"):
        if 0 < (service.option(option) or 0) < room:
            yield service.problem(option, message, f"Leave it out, or write {room} or more.")
            return
    yield service.problem("context", message, f"Write context: {room * (service.option('parallel') or 1)}.")


def _chat_problems(service: ResolvedService, use: ModelUse, header: Header) -> Iterator[Problem]:
    if pooling_of(header) == RANK_POOLING:
        hint = "Write rerank: true; a server of several models cannot have it."
        yield service.problem(place_of(use), "it orders documents and answers no chat, as its file says", hint)
    elif header.architecture in ENCODERS:
        hint = "Write embedding: true; a server of several models cannot have it."
        message = f"it makes embeddings and answers no chat (architecture {header.architecture})"
        yield service.problem(place_of(use), message, hint)


def _embedding_problems(service: ResolvedService, use: ModelUse, header: Header) -> Iterator[Problem]:
    pooling = pooling_of(header)
    if pooling == RANK_POOLING:
        message = "it orders documents and makes no embeddings, as its file says"
        yield service.problem(place_of(use), message, "Write rerank: true in place of embedding.")
    elif pooling in (None, NO_POOLING) and POOLING_ARGUMENT not in _extra_names(service):
        message = "its file does not say how the vectors of a text's tokens become one, so that a text would get none"
        hint = 'Name one for embeddings, or write extra_arguments: ["--pooling", "last"] or "mean", as its makers say.'
        yield service.problem(place_of(use), message, hint)


def _rerank_problems(service: ResolvedService, use: ModelUse, header: Header) -> Iterator[Problem]:
    pooling = pooling_of(header)
    if pooling in (None, RANK_POOLING):
        return
    message = f"its file says pooling {POOLINGS.get(pooling, pooling)}, and that of a reranker says rank"
    hint = "Name a reranker." if pooling == NO_POOLING else "Name a reranker, or write embedding in place of rerank."
    yield service.problem(place_of(use), message, hint)


_PROBLEMS = {CHAT: _chat_problems, EMBEDDING: _embedding_problems, RERANK: _rerank_problems}


def _extra_names(service: ResolvedService) -> set[str]:
    return {str(word).replace("_", "-") for word in service.option("extra_arguments") or ()}
