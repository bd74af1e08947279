"""Options of tabbyAPI that exllamav3 refuses, because of its models' files: at its start, or with a longer prompt.

Read in exllamav3 1.4.2 and tabbyAPI e632af4; the older commits of the known stacks do the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from provisioner.loads.exllama import ATTENDING, is_recurrent, stored_bytes
from provisioner.loads.terms import MIB, cache_bytes
from provisioner.models.header import Header
from provisioner.services.base import ResolvedService
from provisioner.services.tabbyapi.loads import PAGE, asked_tokens, is_older, load_of, names_of
from provisioner.values.declared import Problem

LEAST_PAGES = 2
"""Pages for which the host's memory has to have room where it is to hold any (``CPUPageCache``)."""
ONE_PART = ATTENDING - {"glm4_moe"}
"""The ``model_type`` of models that nobody makes with a component for drafts (MTP): no exllamav3 has one for them."""


def model_problems(service: ResolvedService) -> Iterator[Problem]:
    """Yield what its models' files say against its options, as far as they are known."""
    if is_older(service):
        return
    yield from _length_problems(service)
    yield from _draft_problems(service)
    yield from _page_problems(service)
    yield from _state_problems(service)


def _length_problems(service: ResolvedService) -> Iterator[Problem]:
    """Yield a cache without whole pages, which nobody wrote: it has as many tokens as a sequence.

    ``CacheLayer_fp16`` and the others assert it. tabbyAPI rounded up until 6bf3670, and may at a commit of one's own.
    """
    tokens = asked_tokens(service)
    if tokens % PAGE and not service.option("cache_size") and "commit" not in service.written:
        message = f"the cache would have {tokens} tokens, as many as a request, and no whole pages of {PAGE}"
        yield service.problem("cache_size", message, f"Write cache_size: {-(-tokens // PAGE) * PAGE}.")


def _draft_problems(service: ResolvedService) -> Iterator[Problem]:
    """Yield a drafting model that keeps a state of each request, and a component for drafts of a model without one.

    ``Generator`` and ``Model.from_config`` assert it.
    """
    answering = service.model_names[0]
    if service.option("draft_mode") == "mtp" and service.headers.get(answering, Header("")).architecture in ONE_PART:
        message = f"{answering} has no component for drafts"
        yield service.problem("draft_mode", message, "Write draft_mode: ngram, or leave it out.")
    for name in names_of(service)[1:]:
        if is_recurrent(service.headers.get(name, Header(""))):
            message = f"{name} keeps a state of each request, and exllamav3 drafts with no such model"
            yield service.problem("draft_model", message, "Take another one, or write draft_mode: ngram.")


def _page_problems(service: ResolvedService) -> Iterator[Problem]:
    """Yield memory of the host for pages of the cache that has no room for two of them."""
    asked, page = service.option("sysmem_kv_cache"), 0
    for name in names_of(service):
        load = load_of(service, name, service.headers.get(name), 0)
        page += cache_bytes(replace(load, context=PAGE))
    least = -(-LEAST_PAGES * page // MIB)
    if 0 < asked < least:
        message = f"{asked} MiB have no room for {LEAST_PAGES} pages of the cache, of {PAGE} tokens"
        yield service.problem("sysmem_kv_cache", message, f"Write {least} or more, or leave it out.")


def _state_problems(service: ResolvedService) -> Iterator[Problem]:
    """Yield memory of the host that holds no state of a request: a prompt with a whole page breaks off all answers.

    ``RecurrentCache.put`` takes states out to make room, and fails where none is left to take.
    """
    name, asked = service.model_names[0], service.option("sysmem_recurrent_cache")
    least = -(-stored_bytes(service.headers.get(name, Header(""))) // MIB)
    if asked < least:
        message = f"{asked} MiB hold no state of a request to {name}, of which exllamav3 stores one of each prompt"
        yield service.problem("sysmem_recurrent_cache", message, f"Write {least} or more, or leave it out.")
