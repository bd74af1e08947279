"""llama.cpp's server: what it is built for, what it can run with, what it needs of a card, what a request may hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from provisioner.services import base
from provisioner.services.base import (
    NATIVE,
    CudaBuild,
    EngineBench,
    Limits,
    Metrics,
    Processor,
    ResolvedService,
    Trial,
    quoted_changes,
    template_thinking,
)
from provisioner.services.gateway_routes import CHAT
from provisioner.services.llama_cpp.builds import CPU, CUDA, VULKAN, build_problems, made_for, processor_flags
from provisioner.services.llama_cpp.options import (
    is_plain_chat,
    kind_of,
    kind_problems,
    kind_warnings,
    longest_text,
    model_problems,
    number_problems,
    option_warnings,
    request_context,
)
from provisioner.values.declared import Problem

if TYPE_CHECKING:
    from provisioner.gpus.cards import Card, Vendor
    from provisioner.loads.engines import EngineLoads

BACKENDS: Mapping[Vendor, str] = {"nvidia": CUDA, "amd": VULKAN, "intel": VULKAN}
"""What computes best on a vendor's cards of those that can be built."""

WORD = "--ctx-size"
STEP = 256
"""Tokens to which it rounds the context of a slot."""
KEY_FILE = "/run/llama-server/api-key"
"""As in the role's ``vars/main.yml``; a test holds both equal."""
SERIES = {
    "read": "llamacpp:prompt_tokens_total",
    "written": "llamacpp:tokens_predicted_total",
    "running": "llamacpp:requests_processing",
    "waiting": "llamacpp:requests_deferred",
}
"""As 0.5.0 says them. How full its cache is none of them says, and what is written counts when a request has ended."""
NO_ROOM = ("out of memory", "failed to allocate", "unable to allocate", "failed to create context")
"""What it says, and ggml's back ends, where a context does not fit."""
BESIDE_SHARE = 0.9
"""So much of what is free a second server may take (``vars/main.yml``; a test holds both equal)."""


class Knowledge(base.Knowledge):
    """Knowledge of llama.cpp's server."""

    def problems(self, service: ResolvedService) -> Iterator[Problem]:
        """What could not be built, and what would compute on the CPU though a device is asked for."""
        return build_problems(service, has_card=service.wants_card)

    def model_problems(self, service: ResolvedService) -> Iterator[Problem]:
        """What no server could run with, because of its options or of what its models' files say."""
        yield from number_problems(service)
        yield from model_problems(service)
        if not is_plain_chat(service):
            yield from kind_problems(service)

    def warnings(self, service: ResolvedService) -> Iterator[Problem]:
        """What a server runs with, and its user will not like."""
        yield from option_warnings(service)
        if not is_plain_chat(service):
            yield from kind_warnings(service)

    def options_of_card(self, said: Mapping[str, Any], card: Card) -> Mapping[str, Any]:
        """The backend, the architecture to compile for, and all layers on the card."""
        from provisioner.gpus.cards import described

        backend = said.get("backend", BACKENDS[card.vendor])
        if backend == CPU:
            return {}
        # Left to itself the server keeps room on the card and moves layers to the CPU for it, without a word.
        options = {"backend": backend, "card": described(card), "gpu_layers": "all"}
        digits = card.capability.replace(".", "")
        if backend == CUDA and digits:
            options["cuda_architectures"] = [digits]
        return options

    def options_of_processor(
        self, service: ResolvedService, flags: frozenset[str], all_flags: Sequence[frozenset[str]]
    ) -> Mapping[str, Any]:
        """The instruction sets that the program is built for."""
        needed = processor_flags(service, flags, all_flags)
        return {} if needed is None else {"processor_flags": needed}

    def made_for(self, service: ResolvedService) -> str:
        """Which processors it is built for."""
        return made_for(service)

    def asked_program(self, options: Mapping[str, Any]) -> tuple[str, str]:
        """``llama-memory``; one for all builds of a source."""
        from provisioner.services.llama_cpp.loads import PROGRAM, program_of

        return PROGRAM, program_of(str(options.get("source")), str(options.get("source_sha256")))

    def card_problems(self, service: ResolvedService) -> Iterator[Problem]:
        """A backend that the card does not know, and a build that nobody can choose the architecture of."""
        if service.card is None:
            return
        title, backend = service.card.title, service.said.get("backend")
        if backend == CUDA and service.card.vendor != "nvidia":
            yield service.problem("backend", f"{title} knows no CUDA", "Leave it out, or write backend: vulkan.")
        elif backend == CUDA and not service.said.get("cuda_architectures"):
            hint = "Install nvidia-smi on the host, or write cuda_architectures: [N]."
            yield service.problem("backend", f"nobody tells what {title} can compute", hint)
        yield from build_problems(service, has_card=True)

    def needs_vulkan(self, service: ResolvedService) -> bool:
        """Whether it is built for Vulkan."""
        return bool(service.said.get("backend") == VULKAN)

    def cuda_build(self, service: ResolvedService) -> CudaBuild | None:
        """The version of CUDA and the architectures it is compiled for."""
        if service.option("backend") != CUDA:
            return None
        return CudaBuild(str(service.option("cuda_version")), tuple(service.option("cuda_architectures") or ()))

    def loads(self, service: ResolvedService, sizes: Mapping[str, int], memory: int) -> EngineLoads | None:
        """The loads of its models; None where it is told to compute on the CPU."""
        if service.option("gpu_layers") == 0 or service.written.get("backend") == CPU:
            return None
        from provisioner.services.llama_cpp.loads import loads_of  # what no run needs that only looks

        return loads_of(service, sizes, memory)

    def changes_beside(self, service: ResolvedService, sizes: Mapping[str, int | None]) -> bool | None:
        """Where the processor computes, and twice its files fit into what a second server may take.

        Of several models those count that are in memory at once, the largest ones. On a card its role finds whether at
        that moment so much of it is free as a second server is reckoned to take.

        Never where it takes turns: a second server would be there at another's turn.
        """
        if service.share:
            return False
        on_card = service.option("backend") != CPU and service.option("gpu_layers") not in (0, "0")
        if not service.option("beside"):
            return False
        if on_card:
            needed = self._on_card(service, sizes)
            return None if service.card is not None and 0 < 2 * needed <= service.card.memory else False
        known = list(map(sizes.get, service.model_names))
        if None in known:
            return None
        at_once = service.option("models_max") if service.written.get("models") else 0
        largest = sorted((size for size in known if size), reverse=True)[: at_once or len(known)]
        return 2 * sum(largest) < BESIDE_SHARE * service.memory

    def estimates(self, service: ResolvedService, sizes: Mapping[str, int | None]) -> Mapping[str, int]:
        """What it takes of its card, where that is known."""
        needed = self._on_card(service, sizes)
        return {f"{service.role}_card_bytes": needed} if needed else {}

    def _on_card(self, service: ResolvedService, sizes: Mapping[str, int | None]) -> int:
        """Bytes that one model takes of a card of NVIDIA, the engine's own context included; 0 where it is a guess."""
        is_one = service.card is not None and not service.written.get("models")
        if not is_one or service.option("backend") != CUDA or None in map(sizes.get, service.model_names):
            return 0
        from provisioner.loads.budgets import RESERVED

        known = {name: size for name, size in sizes.items() if size is not None}
        needed = self.loads(service, known, service.card.memory if service.card else 0)
        return needed.total + RESERVED if needed and needed.loads and not needed.unknown and not needed.unread else 0

    def thinking(self, service: ResolvedService, *, is_on: bool) -> Mapping[str, Any] | None:
        """By a variable of its chat template, which it reads with ``jinja`` alone."""
        return template_thinking(is_on=is_on) if service.option("jinja") else None

    def thinking_budget(self, service: ResolvedService, tokens: int) -> Mapping[str, Any]:  # noqa: ARG002
        """It ends a thought itself."""
        return {"thinking_budget_tokens": tokens}

    def processor(self, variables: Mapping[str, Any], *, has_card: bool) -> Processor:  # noqa: ARG002
        """A device unless the build or the layers say the CPU; its proof notes which."""
        is_device = variables.get("backend") not in (None, CPU) and variables.get("gpu_layers") != 0
        return Processor(is_device, "no device was asked for")

    def answers(self, service: ResolvedService) -> str:
        """What its options say: embeddings, an order of documents, or a chat."""
        return kind_of(service)

    def trial(self, service: ResolvedService) -> Trial | None:
        """By its context, which its slots share; not that of several models, and of none that only makes vectors."""
        if service.written.get("models") or kind_of(service) != CHAT:
            return None
        (model,) = service.model_names
        header, parallel = service.headers.get(model), service.option("parallel")
        most = header.context * parallel if header else 0
        key_file = KEY_FILE if service.key else ""
        wants_all = service.card is not None and not str(service.option("gpu_layers")).isdigit()
        placed = r"offloaded (\d+)/(\d+) layers" if wants_all else ""
        return Trial(
            option="context",
            word=WORD,
            changes=quoted_changes(WORD),
            step=STEP * parallel,
            most=most,
            path=NATIVE,
            requests=parallel,
            key_file=key_file,
            no_room=NO_ROOM,
            placed=placed,
        )

    def engine_bench(self, service: ResolvedService) -> EngineBench | None:
        """With the words that it is served with; of one model."""
        return None if service.written.get("models") else EngineBench("llama-server", NO_ROOM)

    def quality_bench(self, service: ResolvedService) -> EngineBench | None:
        """By llama-perplexity, where it was asked for; of several models."""
        has_parent = len(service.model_names) > 1 and bool(service.written.get("models"))
        return EngineBench("llama-server", NO_ROOM) if has_parent and service.option("perplexity") else None

    def metrics(self, service: ResolvedService) -> Metrics | None:
        """Its page for Prometheus with its slots, unless that is off; a server of several models says which it has."""
        if not service.option("metrics"):
            return None
        several = bool(service.written.get("models"))
        return Metrics(
            page="/metrics",
            series=SERIES,
            slots="/slots",
            models="/models" if several else "",
            sleeping="" if several else "/props",
            key_file=KEY_FILE,
        )

    def limits(self, service: ResolvedService, model: str) -> Limits:
        """The tokens of one of its slots; images where it has a projector."""
        context = request_context(service, model, service.headers.get(model))
        if context is not None and kind_of(service) != CHAT:
            context = min(context, longest_text(service, model))
        return Limits(context, vision=bool(service.written.get("mmproj")))
