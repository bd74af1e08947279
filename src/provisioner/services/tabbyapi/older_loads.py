"""What tabbyAPI's models take of a card with exllamav2 (EXL2, GPTQ), and what of it is reckoned. Pure.

Read in tabbyAPI 79126f9 (``backends/exllamav2/model.py``), the last commit that has it, and exllamav2 0.3.2; nothing
of it was measured on a card.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from provisioner.gpus.cards import Card
from provisioner.loads.exllama2 import (
    HALF,
    is_output_embedded,
    passing_bytes,
    reserved_bytes,
    shape_of_exllama2,
    table_bytes,
    unpacked_bytes,
)
from provisioner.loads.layers import Shape
from provisioner.loads.terms import Load
from provisioner.loads.weighing import idle_encoder
from provisioner.models.header import Header
from provisioner.services.base import ResolvedService
from provisioner.services.tabbyapi import OF_REQUEST

MODES = {"FP16": ("f16", "f16"), "Q8": ("exl8", "exl8"), "Q6": ("exl8", "exl4"), "Q4": ("exl4", "exl4")}
"""The types of keys and values. Any other word is taken as FP16, with a warning."""
SMALLER = (("exl8", "exl8", "cache_mode: Q8"), ("exl8", "exl4", "cache_mode: Q6"))
"""The better first; keys of 4 bits let models lose track of what they have read."""
PAGE = 256
DRAFTED = 4
"""Tokens that a drafting model tries at once."""
FLASH_SINCE = (8, 0)
"""The compute capability without which flash-attn does not compute, and tabbyAPI takes another way."""


def too_old(card: Card) -> str:
    """Return the reason why nobody knows what it takes of that card; empty where nothing is known against it."""
    if card.may_compute(FLASH_SINCE):
        return ""
    computes = f"exllamav2 computes without flash-attn on cards of compute capability {card.capability}"
    return f"{computes}, which is not added up"


def older_load(service: ResolvedService, name: str, header: Header | None, size: int, tokens: int) -> Load:
    """One model; ``tokens``: of the cache, ``size``: of its files in bytes, 0 where unknown."""
    answers = name == service.model_names[0]
    keys, values = MODES.get(str(service.option("cache_mode")), MODES["FP16"]) if answers else MODES["FP16"]
    if header is None:
        shape = Shape("", unread=("its config.json is not known",))
        return Load(name, shape, size, tokens, keys, values, is_paged=True)
    shape = shape_of_exllama2(header)
    embedded = shape.vocabulary * shape.embedding * HALF
    chunk = _chunk(service, tokens)
    drafts = answers and service.option("draft_mode") == "model"
    outputs = _requests(service, chunk) * (1 + (DRAFTED if drafts else 0))
    buffers = 0
    if not shape.unread:
        buffers = reserved_bytes(header, chunk) + passing_bytes(header, chunk, outputs)
    return Load(
        name,
        # Several requests share the cache, which may be longer than any of them.
        replace(shape, context=max(shape.context, tokens)),
        size if is_output_embedded(header) else max(size - embedded, 0),
        tokens,
        keys,
        values,
        ubatch=chunk,
        buffers=buffers,
        is_paged=True,
        tables=table_bytes(header),
        unpacked=unpacked_bytes(header),
        smaller=SMALLER if answers else (),
    )


def _chunk(service: ResolvedService, tokens: int) -> int:
    """Tokens of a prompt that are computed at once, in whole pages: no more than a request may have."""
    longest = tokens
    if service.option("max_seq_len") > 0:
        longest = min(tokens, service.option("max_seq_len"))
    wanted = min(max(PAGE, service.option("chunk_size")), max(PAGE, longest))
    return int(-(-wanted // PAGE) * PAGE)


def _requests(service: ResolvedService, chunk: int) -> int:
    """Requests that are computed at once."""
    return int(service.option("max_batch_size") or chunk // OF_REQUEST)


def older_guesses(service: ResolvedService, load: Load, header: Header | None) -> Iterator[str]:
    """What is reckoned, and what is left out of the sum."""
    if not load.is_guessed:
        yield (
            f"{load.name}: what is computed with follows from what exllamav2 reserves and from the sizes of what it "
            "computes, with flash-attn; reckoned, measured on no card"
        )
    yield from idle_encoder(load, header, sees=service.option("vision"))
