"""What is wrong with a llama.cpp server for embeddings or an order of documents, and with their models.

No lab whose servers and models are for chats needs it (``is_plain_chat``).
"""

from __future__ import annotations

from collections.abc import Iterator

from provisioner.models.header import Header
from provisioner.services.base import ModelUse, ResolvedService
from provisioner.services.llama_cpp.options import (
    ENCODERS,
    kind_of,
    longest_text,
    place_of,
    pooling_of,
    request_context,
    served_uses,
)
from provisioner.services.routed import CHAT, EMBEDDING, RERANK
from provisioner.values.declared import Problem

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
