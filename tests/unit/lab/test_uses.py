"""Who asks whom is found out once: graph, plan and drain say the same of every kind of option."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.catalog import load_catalog
from provisioner.lab import resolve
from provisioner.lab.resolved import ResolvedLab
from provisioner.labfile.spec import Spec
from provisioner.page.topology import topology
from provisioner.values.state import Secret

CATALOG = load_catalog()
KEY = Secret("key", "sk-0123456789abcdef")
ENGINES: dict[str, dict[str, Any]] = {
    "llama": {"llama_cpp": {"model": "tiny"}},
    "bert": {"llama_cpp": {"model": "bert", "embedding": True, "api_key": KEY}},
    "voice": {"kokoro": {}},
    "gateway": {"litellm": {"master_key": KEY, "aliases": {"fast": ["tiny"], "all": ["fast"]}}},
}
USERS: dict[str, tuple[dict[str, dict[str, Any]], set[str]]] = {
    "connections and embeddings": (
        {"open_webui": {"connect": ["gateway/litellm", "voice/kokoro"], "embeddings": "bert/llama_cpp"}},
        {"gateway/litellm", "voice/kokoro", "bert/llama_cpp"},
    ),
    "sites": ({"door": {"sites": {"api.home.example": "gateway/litellm"}}}, {"gateway/litellm"}),
    "members": ({"agent_team": {"coordinator": {"model": "tiny"}}}, {"llama/llama_cpp"}),
    "pipelines": ({"pipelines": {"connect": ["llama/llama_cpp"]}}, {"llama/llama_cpp"}),
}


def lab(services: dict[str, dict[str, Any]]) -> ResolvedLab:
    containers: dict[str, Any] = {}
    for container, written in {**ENGINES, "user": services}.items():
        options = {role: {"role": role, "options": one, "expose": "host"} for role, one in written.items()}
        containers[container] = {"services": options}
    models = {"tiny": {"source": "builtin:tiny"}, "bert": {"source": "builtin:tiny"}}
    return resolve(Spec.model_validate({"name": "homelab", "models": models, "containers": containers}), CATALOG)


def drawn(resolved: ResolvedLab, user: str) -> set[str]:
    return {
        edge.target for edge in topology(resolved).edges if edge.source == user and edge.target in resolved.services
    }


@pytest.mark.parametrize("name", USERS)
def test_what_a_service_asks_is_drawn_and_waited_for(name: str) -> None:
    services, asked = USERS[name]
    resolved = lab(services)
    (user,) = (one.address for one in resolved.containers["user"].services)
    assert drawn(resolved, user) == asked
    assert {*resolved.needs(user)} == asked


def test_a_gateway_is_drawn_with_its_engines_and_with_what_speaks() -> None:
    resolved = lab({})
    (gateway,) = (one.address for one in resolved.containers["gateway"].services)
    assert drawn(resolved, gateway) == {"llama/llama_cpp", "voice/kokoro"}
    assert resolved.needs(gateway) == ("llama/llama_cpp", "voice/kokoro")


def test_what_may_be_reached_is_drawn_and_not_waited_for() -> None:
    resolved = lab({"open_webui": {"connect": ["gateway/litellm"], "reaches": ["llama/llama_cpp"]}})
    (user,) = (one.address for one in resolved.containers["user"].services)
    assert drawn(resolved, user) == {"gateway/litellm", "llama/llama_cpp"}
    assert resolved.needs(user) == ("gateway/litellm",)
