"""Ollama: what follows from its card, which models it can hold, what is not known of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from provisioner.gpus.cards import Card, described
from provisioner.models.header import Header
from provisioner.models.pulled import model_name
from provisioner.services import base
from provisioner.services.base import Limits, Metrics, Processor, ResolvedService
from provisioner.values.declared import Problem

if TYPE_CHECKING:
    from provisioner.loads.engines import EngineLoads

NVIDIA = "nvidia"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", re.ASCII)
"""A model's name as Ollama takes it, without a tag (``vars/main.yml``; a test holds both equal)."""
CLOUD = re.compile(r"(?![^/]*[.:][^/]*/).*:([^/:]+-)?cloud", re.IGNORECASE)
"""Models that Ollama has computed elsewhere, by their tag; the role switches that off (``OLLAMA_NO_CLOUD``)."""
REFERENCE = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]{1,5})?/)?([A-Za-z0-9_-]{1,80}/)?[A-Za-z0-9][A-Za-z0-9._-]{0,79}"
    r"(:[A-Za-z0-9_][A-Za-z0-9._-]{0,79})?",
    re.ASCII,
)
"""What a registry calls a model: perhaps its host, perhaps who made it, the name and perhaps a tag."""
FLASH_SINCE, NEVER_FLASHING = (6, 0), "7.2"
"""The compute capability from which Ollama uses flash attention on CUDA, but for one (``cudaFlashAttentionSupported``).

Read in ``ml/device.go`` of August 2026. llama.cpp then starts with no cache of another type than f16.
"""
DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)


class Knowledge(base.Knowledge):
    """Knowledge of Ollama."""

    def options_of_card(self, said: Mapping[str, Any], card: Card) -> Mapping[str, Any]:  # noqa: ARG002
        """The card, and Vulkan for what is none of NVIDIA's: its archive for cards of AMD is another one."""
        return {"card": described(card), "vulkan": card.vendor != NVIDIA}

    def problems(self, service: ResolvedService) -> Iterator[Problem]:
        """Nothing to serve, names that Ollama does not take, and a cache that needs what is switched off."""
        if not service.served_models:
            hint = "Write models: [NAME], of this file, or pull: [{name: small, model: qwen3:0.6b}]."
            yield service.problem("pull", "there is no model to serve", hint)
        yield from _name_problems(service)
        yield from _pull_problems(service)
        if service.option("kv_cache_type") != "f16" and service.option("flash_attention") == "off":
            message = f"a cache of {service.option('kv_cache_type')} needs flash attention"
            yield service.problem("kv_cache_type", message, "Leave flash_attention at auto, or write f16.")

    def model_problems(self, service: ResolvedService) -> Iterator[Problem]:
        """Files that only help a model, in the place of one."""
        for use in service.uses:
            header = service.headers.get(use.name)
            if header and header.helps:
                place = use.option if use.place is None else f"{use.option}.{use.place}"
                yield service.problem(place, header.helps, "Name the model that it belongs to.")

    def warnings(self, service: ResolvedService) -> Iterator[Problem]:
        """Requests at the same time to a model of which Ollama computes one at a time."""
        from provisioner.services.ollama.loads import ONE_AT_A_TIME

        for name in service.model_names:
            header = service.headers.get(name, Header(""))
            if header.architecture in ONE_AT_A_TIME and service.option("num_parallel") > 1:
                message = f"Ollama computes one request to {name} at a time, however many are asked for"
                yield service.problem("num_parallel", message, "Write 1, or serve it by llama_cpp.")

    def card_problems(self, service: ResolvedService) -> Iterator[Problem]:
        """A cache that needs flash attention on a card without it."""
        cache, card = service.option("kv_cache_type"), service.card
        if card is not None and cache != "f16" and not flashes(service):
            needs = f"a cache of {cache} needs flash attention"
            message = f"{needs}, which Ollama leaves off on {card.title}, of compute capability {card.capability}"
            yield service.problem("kv_cache_type", message, "Write f16.")

    def needs_vulkan(self, service: ResolvedService) -> bool:
        """Whether it computes by Vulkan."""
        return bool(service.option("vulkan"))

    def loads(self, service: ResolvedService, sizes: Mapping[str, int], memory: int) -> EngineLoads | None:
        """What its models need on its card, as far as their files are known; None without a card."""
        if not service.wants_card:
            return None
        from provisioner.services.ollama.loads import loads_of  # a lab without a card needs none of it

        return loads_of(service, sizes, memory)

    def limits(self, service: ResolvedService, model: str) -> Limits:
        """The context of the model where the file says one, else the server's; nobody knows Ollama's own choice.

        A request gets no more than the model was trained with, whatever is asked (``effectiveContext``).
        """
        asked = [service.option("context")]
        if model in service.models:
            asked.insert(0, service.models[model].context)
        longest = next(filter(None, asked), None)
        trained = service.headers.get(model, Header("")).context
        return Limits(min(longest, trained or longest) if longest else None)

    def metrics(self, service: ResolvedService) -> Metrics:  # noqa: ARG002
        """The models that it has in memory; it counts neither tokens nor requests."""
        return Metrics(held="/api/ps")

    def thinking(self, service: ResolvedService, *, is_on: bool) -> Mapping[str, Any]:  # noqa: ARG002
        """By the effort that OpenAI's clients ask for; a model that can think does so unless it is told not to."""
        return {} if is_on else {"reasoning_effort": "none"}

    def processor(self, variables: Mapping[str, Any], *, has_card: bool) -> Processor:  # noqa: ARG002
        """The card that it was told of: its proof fails where ``/api/ps`` says less, and notes nothing."""
        wants_device = {"card", "vulkan"} & {name for name, value in variables.items() if value}
        if wants_device:
            return Processor(is_device=True, why="its proof does not note what computed", notes_verdict=False)
        return Processor(is_device=False, why="no device was asked for")


def flashes(service: ResolvedService) -> bool:
    """Return whether flash attention is used, where nobody writes it by what the card can."""
    asked, card = service.option("flash_attention"), service.card
    if asked != "auto" or card is None or service.option("vulkan"):
        return bool(asked != "off")
    return card.may_compute(FLASH_SINCE) and card.capability != NEVER_FLASHING


def _name_problems(service: ResolvedService) -> Iterator[Problem]:
    """Names that Ollama does not take, and one name for two models."""
    seen: set[str] = set()
    for name in service.served_models:
        if not NAME.fullmatch(name):
            message = f'Ollama takes no model named "{name}"'
            yield Problem(
                service.path, message, "Name it by letters, digits, dots, dashes and underscores, 80 at most."
            )
        if name in seen:
            yield service.problem("pull", f'two models are named "{name}"', "Give one of them another name.")
        seen.add(name)


def _pull_problems(service: ResolvedService) -> Iterator[Problem]:
    """What no registry calls a model, and a digest that is none."""
    for place, one in enumerate(service.option("pull")):
        model = str(one["model"])
        if not REFERENCE.fullmatch(model) or model_name(model) is None:
            hint = "Write what its registry calls it, such as qwen3:0.6b, without https://."
            yield service.problem(f"pull.{place}.model", "this is not what a registry calls a model", hint)
        elif CLOUD.fullmatch(model):
            hint = "Pull one that computes here; an upstream of a gateway may be elsewhere."
            yield service.problem(
                f"pull.{place}.model", "it computes on Ollama's servers, which this one never asks", hint
            )
        if one.get("digest") is not None and not DIGEST.fullmatch(str(one["digest"])):
            hint = "Write all 64 hexadecimal digits of what Ollama's /api/tags tells as its digest."
            yield service.problem(f"pull.{place}.digest", "this is no digest", hint)
