"""tabbyAPI: what it is told of its card, and what it cannot compute on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from provisioner.gpus.cards import Card, described
from provisioner.services import base
from provisioner.services.base import (
    CONTEXT,
    OPENAI,
    Processor,
    ResolvedService,
    Trial,
    template_thinking,
    unusual_options,
)
from provisioner.values.declared import Problem

if TYPE_CHECKING:
    from provisioner.loads.engines import EngineLoads
    from provisioner.wheels.known import Stack

NVIDIA = "nvidia"
EXL3, EXL2 = "exl3", "exl2"
CACHE_MODES = {EXL3: ("FP16", "8,8", "8,4"), EXL2: ("FP16", "Q8", "Q6")}
"""Those that are suggested, the one that loses least first; keys of 4 bits let models lose track of what they read."""
STACKS, IMAGE = {EXL3: "tabbyapi-cu13", EXL2: "exllamav2-cu12"}, "ubuntu/24.04"
"""Those that are suggested: for the Python of that image each wheel of the stack of EXL3 has a hash that was read."""
LOCK = {EXL3: "provision lock", EXL2: "provision lock --accept-unverified"}
"""What finds the wheels: nobody tells the hashes of exllamav2's."""
WORD = "--context"
"""By which the launcher is told another context than its file says."""
PORT = "--port [0-9]+"
EXLLAMAV2 = "exllamav2"
AMPERE = (8, 0)
"""The compute capability without which exllamav3 does not start (``hardware_supports_exllamav3``, e632af4)."""
STEP = 256
"""Tokens of one page of the cache, with either backend."""
OF_REQUEST = 8
"""Tokens of one request that exllamav2 computes at once at most: a chunk has room for so many fewer requests."""
DECIDING = ("backend", "tensor_parallel", "gpu_split", "cpu_moe_offload_layers", "draft_mode")
"""Options beside its cache by which it writes faster or slower; blocks that are suggested leave them as they are."""
KEY_FILE = "/run/tabbyapi/api_tokens.yml"
NO_ROOM = ("Insufficient VRAM in split for model and cache", "CUDA out of memory")
"""Both as in the role's ``vars/main.yml``; a test holds them equal. The second one is torch's."""


MODES = re.compile(r"FP16|Q[468]|[2-8],[2-8]")
"""Types of the cache; exllamav2 has no two numbers (``vars/main.yml``)."""


class Knowledge(base.Knowledge):
    """Knowledge of tabbyAPI."""

    def options_of_card(self, said: Mapping[str, Any], card: Card) -> Mapping[str, Any]:  # noqa: ARG002
        """The card, on which its proof has a kernel of the stack run."""
        return {"card": described(card)}

    def options_of_stack(self, stack: Stack) -> Mapping[str, Any]:
        """The commit that the stack serves, and through which of its backends."""
        if stack.serves is None:
            return {}
        return {"commit": stack.serves.commit, "backend": stack.serves.backend}

    def problems(self, service: ResolvedService) -> Iterator[Problem]:
        """Sizes that its cache has no pages for, drafts without a model, more requests than exllamav2 starts with."""
        yield from _page_problems(service)
        yield from _draft_problems(service)
        if service.option("backend") != EXLLAMAV2:
            return
        chunk = service.option("chunk_size")
        most = chunk // OF_REQUEST
        if service.option("max_batch_size") > most:
            message = f"exllamav2 computes {most} requests at once at most with a chunk of {chunk}"
            yield service.problem("max_batch_size", message, f"Write {most} or less, or a larger chunk_size.")

    def model_problems(self, service: ResolvedService) -> Iterator[Problem]:
        """Yield what exllamav3 refuses because of what its models' files say."""
        from provisioner.services.tabbyapi.options import model_problems  # no lab without tabbyAPI needs it

        yield from model_problems(service)

    def card_problems(self, service: ResolvedService) -> Iterator[Problem]:
        """A card that knows no CUDA, or is too old for exllamav3."""
        from provisioner.services.tabbyapi.loads import is_older

        card = service.card
        if card is not None and card.vendor != NVIDIA:
            message = f"{card.title} knows no CUDA, which its stacks are for"
            yield Problem(service.path, message, "Give the container another card.")
        elif card is not None and _too_old(card) and not is_older(service):
            hint = f"Take a model of EXL2 and the stack {STACKS[EXL2]}, or give the container another card."
            yield Problem(service.path, f"{card.title}: {_too_old(card)}", hint)

    def loads(
        self,
        service: ResolvedService,
        sizes: Mapping[str, int],
        memory: int,  # noqa: ARG002
    ) -> EngineLoads | None:
        """What its models take of the card, whatever that has; None where nothing of it lies on a card."""
        if not service.wants_card:
            return None
        from provisioner.services.tabbyapi.loads import loads_of  # what no run needs that only looks

        return loads_of(service, sizes)

    def folder_serving(self, form: str, card: Card, usable: int) -> base.FolderServing | None:  # noqa: ARG002
        """EXL3 and EXL2, each with a stack that has wheels for the Python of that image."""
        from provisioner.services.tabbyapi.older_loads import too_old

        if form not in STACKS:
            return None
        unknown = too_old(card) if form == EXL2 else _too_old(card)
        if card.vendor != NVIDIA:
            unknown = "its stacks are for cards that know CUDA"
        caches = tuple((mode, {"stack": STACKS[form], "cache_mode": mode}) for mode in CACHE_MODES[form])
        return base.FolderServing("max_seq_len", ("api_key", "admin_key"), IMAGE, caches, unknown, lock=LOCK[form])

    def ways_of_writing(self, service: ResolvedService) -> Mapping[str, str]:
        """Its cache, and what else decides how fast it writes."""
        return {"cache": str(service.option("cache_mode")), **unusual_options(service, DECIDING)}

    def thinking(self, service: ResolvedService, *, is_on: bool) -> Mapping[str, Any]:  # noqa: ARG002
        """By a variable of its chat template."""
        return template_thinking(is_on=is_on)

    def processor(self, variables: Mapping[str, Any], *, has_card: bool) -> Processor:  # noqa: ARG002
        """The card that it was told of. Its proof runs a kernel of the stack there and notes nothing."""
        if variables.get("card"):
            return Processor(is_device=True, why="its proof does not note what computed", notes_verdict=False)
        return Processor(is_device=False, why="no device was asked for")

    def trial(self, service: ResolvedService) -> Trial | None:
        """By what a sequence may hold; the cache that all requests share is as long, or what the file says."""
        names = service.model_names
        if len(names) != 1:
            return None
        header = service.headers.get(names[0])
        limits = [size for size in (header.context if header else 0, service.option("cache_size")) if size]
        return Trial(
            option="max_seq_len",
            word=WORD,
            changes=((PORT, f"--port {{port}} {WORD} {CONTEXT}"),),
            step=STEP,
            most=min(limits, default=0),
            path=OPENAI,
            key_file=KEY_FILE,
            key_name="api_key",
            encode="/v1/token/encode",
            no_room=NO_ROOM,
        )


def _too_old(card: Card) -> str:
    """Return why exllamav3 does not start on the card; empty where nothing is known against it."""
    if card.may_compute(AMPERE):
        return ""
    return f"exllamav3 computes from compute capability 8.0 on, and this is {card.capability}"


def _page_problems(service: ResolvedService) -> Iterator[Problem]:
    """Sizes and types that no page of the cache has."""
    cache, longest = service.written.get("cache_size", 0), service.written.get("max_seq_len", -1)
    for name in ("cache_size", "chunk_size"):
        size = service.written.get(name, 0)
        if size % STEP:
            hint = f"Write {-(-size // STEP) * STEP}."
            yield service.problem(name, f"{size} is no multiple of {STEP}, the tokens of a page", hint)
    if longest == 0 or 0 < cache < longest:
        message = f"a request of {longest} tokens has no room in a cache of {cache}" if longest else "0 is no length"
        yield service.problem("max_seq_len", message, "Leave it out, or write what the cache has room for.")
    mode = str(service.written.get("cache_mode", "FP16"))
    if not MODES.fullmatch(mode):
        hint = "Write FP16, Q8, Q6, Q4, or the bits of keys and values, such as 8,8."
        yield service.problem("cache_mode", f"{mode} is no type of the cache", hint)


def _draft_problems(service: ResolvedService) -> Iterator[Problem]:
    """A draft model without its mode, and the other way round."""
    mode, model = service.option("draft_mode"), service.written.get("draft_model")
    if (mode == "model") != bool(model):
        hint = "Write both, draft_mode: model and a draft_model, or neither."
        yield service.problem("draft_mode", "drafts of a model need the model, and a model its mode", hint)
