"""Members of a team: which engine each of them names, and where that answers. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from provisioner.lab.aliases import ENGINE_STAGE, Engine, find_engines
from provisioner.labfile.spec import OLLAMA, Upstream, provider_of
from provisioner.services.base import ResolvedService

MEMBERS = "members"
"""The kind of a reference by which a service names engines that its members are asked of."""
MODEL = "model"
PROVIDERS: Mapping[str, str] = {
    "anthropic": "https://api.anthropic.com/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "mistral": "https://api.mistral.ai/v1",
    "groq": "https://api.groq.com/openai/v1",
    "deepseek": "https://api.deepseek.com/v1",
}
"""Where providers answer in OpenAI's words; of others the file has to say it."""
VERSION = "/v1"


def written_members(service: ResolvedService, option: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each member that the option says, with where it stands, as ``ResolvedService.problem`` takes it."""
    written = service.written.get(option)
    if isinstance(written, Mapping):
        yield option, written
    elif isinstance(written, Sequence):
        yield from ((f"{option}.{place}", member) for place, member in enumerate(written))


def member_engines(engines: Sequence[Engine], name: str) -> tuple[Engine, ...]:
    """The engines that a member's ``name`` means: of all that answer, a team asks no other team."""
    return tuple(engine for engine in find_engines(engines, name) if engine.service.page.stage == ENGINE_STAGE)


def engines_of_members(service: ResolvedService, engines: Sequence[Engine]) -> Iterator[Engine]:
    """The engines that members of the service are asked of."""
    for option, reference in service.page.references.items():
        if reference.kind != MEMBERS:
            continue
        for _, member in written_members(service, option):
            yield from member_engines(engines, str(member.get(MODEL)))[:1]


def upstream_address(upstream: Upstream) -> str:
    """Where an upstream answers in OpenAI's words, up to the version; empty where nobody knows."""
    provider = provider_of(upstream.model)
    if upstream.base_url is None:
        return PROVIDERS.get(provider, "")
    address = str(upstream.base_url).rstrip("/")
    return address if urlsplit(address).path or provider not in OLLAMA else f"{address}{VERSION}"
