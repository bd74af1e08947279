"""Aliases that say whether their engines think: what each engine is told, and what the gateway is held against."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.catalog import load_catalog
from provisioner.lab import problems, resolve
from provisioner.lab.filling import Place, filled_in
from provisioner.services import knowledge_of
from provisioner.values.address import Address
from provisioner.values.state import Secret
from tests.lab_files import spec_of

CATALOG = load_catalog()
GATEWAY = Address.of("gateway", "litellm")
OFF, ON = {"chat_template_kwargs": {"enable_thinking": False}}, {"chat_template_kwargs": {"enable_thinking": True}}
KEY = Secret("key", "0123456789abcdef")


def routes(aliases: dict[str, Any]) -> dict[str, Any]:
    """What the gateway of a lab with llama.cpp and Ollama is told."""
    services: dict[str, dict[str, Any]] = {
        "llama": {"llama_cpp": {"model": "own"}},
        "spare": {"llama_cpp": {"model": "spare"}},
        "box": {"ollama": {"models": ["other"], "api_key": KEY}},
        "gateway": {"litellm": {"master_key": Secret("master", "sk-master"), "aliases": aliases}},
    }
    content = {
        "name": "lab",
        "models": {name: {"source": "builtin:tiny-thinking"} for name in ("own", "spare", "other")},
        "containers": {name: {"services": one} for name, one in services.items()},
    }
    lab = resolve(spec_of(content), CATALOG)
    assert [problem.message for problem in problems(lab)] == []
    filled = filled_in(Place(lab, lab.services[GATEWAY], {}), "aliases")
    return dict(filled["routes"])


def told(aliases: dict[str, Any], alias: str) -> list[Any]:
    """What the body of a request of an alias says besides to each of its engines, in their order."""
    return [one.get("extra_body") for one in routes(aliases)["deployments"] if one["model_name"] == alias]


def test_each_engine_is_told_in_its_own_words() -> None:
    aliases = {
        "talk": {"engines": ["own", "other"], "thinking": "off"},
        "batch": {"engines": ["own"], "thinking": "on", "thinking_budget": 2048},
        "plain": ["own"],
    }
    assert told(aliases, "talk") == [OFF, {"reasoning_effort": "none"}]
    assert told(aliases, "batch") == [{**ON, "thinking_budget_tokens": 2048}]
    assert told(aliases, "plain") == [None]
    assert told(aliases, "own") == [None]
    assert routes(aliases)["thinking"] == {"talk": "off", "batch": "on"}


def test_who_is_asked_what_is_too_long_is_told_as_well() -> None:
    aliases = {"talk": {"engines": ["own"], "thinking": "off", "context_window_fallbacks": ["spare"]}}
    assert routes(aliases)["context_window_fallbacks"] == [
        {"alias": "talk", "engines": [{"model": "spare", "extra_body": OFF}]}
    ]
    usual = {"talk": {"engines": ["own", "spare"], "thinking": "off"}}
    assert routes(usual)["context_window_fallbacks"][0]["engines"] == [{"model": "spare", "extra_body": OFF}]


def test_a_lab_whose_aliases_say_nothing_of_it_is_told_as_before() -> None:
    assert "thinking" not in routes({"fast": ["own"], "quick": {"engines": ["own"], "timeout": 3}})


def test_an_alias_of_such_an_alias_says_itself_what_it_wants() -> None:
    aliases = {"talk": {"engines": ["own"], "thinking": "off"}, "outer": ["talk"]}
    assert told(aliases, "outer") == [None]


@pytest.mark.parametrize("role", ["vllm", "tabbyapi"])
def test_engines_with_chat_templates_are_told_by_a_variable_of_theirs_and_of_no_budget(role: str) -> None:
    """VLLM wants a configuration of its own for budgets, tabbyAPI has none."""
    knowledge: Any = knowledge_of(role)
    assert knowledge.thinking(None, is_on=False) == OFF
    assert knowledge.thinking(None, is_on=True) == ON
    assert knowledge.thinking_budget(None, 8) is None
