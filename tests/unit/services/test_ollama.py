"""Ollama in a lab's file: what its card decides, what is refused before anything is made, who may ask for what."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from provisioner.catalog import load_catalog
from provisioner.lab import Known, problems, resolve
from provisioner.lab.filling import Place, filled_in
from provisioner.models.header import Header
from provisioner.services import knowledge_of
from provisioner.services.base import Limits
from provisioner.services.ollama import NAME, REFERENCE
from provisioner.values import paths
from provisioner.values.address import Address
from provisioner.values.state import Secret
from tests.case_files import read_cases
from tests.lab_files import spec_of
from tests.unit.lab.test_cards import AMD, NVIDIA

CASES = read_cases("services/ollama")

CATALOG = load_catalog()
ADDRESS = Address.of("amd", "ollama")
KNOWLEDGE = knowledge_of("ollama")
SMALL = {"name": "small", "model": "qwen3:0.6b"}


def lab(models: tuple[str, ...] = ("tiny",), **options: Any) -> dict[str, Any]:
    """The content of a file with a server and a gateway."""
    service = {"api_key": Secret("key", "0123456789abcdef"), **options}
    service |= {"models": list(models)} if models else {}
    named = [*models, *(one["name"] for one in options.get("pull", ()))]
    gateway = {"master_key": Secret("master", "sk-master"), "aliases": {"fast": named[:1] or ["amd/ollama"]}}
    return {
        "name": "lab",
        "models": {name: {"source": "builtin:tiny"} for name in models},
        "containers": {"amd": {"services": {"ollama": service}}, "gateway": {"services": {"litellm": gateway}}},
    }


def said(content: dict[str, Any]) -> list[str]:
    """What is wrong with the file."""
    return [problem.message for problem in problems(resolve(spec_of(content), CATALOG))]


def test_models_of_the_file_and_fetched_ones_are_served_and_offered_by_a_gateway() -> None:
    content = lab(pull=[SMALL])
    content["containers"]["gateway"]["services"]["litellm"]["aliases"] = {"fast": ["small"], "whole": ["tiny"]}
    assert said(content) == []
    resolved = resolve(spec_of(content), CATALOG)
    assert resolved.services[ADDRESS].served_models == ("tiny", "small")
    gateway = resolved.services[Address.of("gateway", "litellm")]
    filled = filled_in(Place(resolved, gateway, {}), "aliases")
    rows = str(filled)
    assert "openai/small" in rows
    assert "openai/tiny" in rows
    assert ":11434/v1" in rows
    assert resolved.needs(gateway.address) == (ADDRESS,)


def test_a_server_with_nothing_but_fetched_models_needs_no_file() -> None:
    assert said(lab((), pull=[SMALL])) == []


@pytest.mark.parametrize(("models", "options", "message"), CASES["what no server could serve is refused before"])
def test_what_no_server_could_serve_is_refused_before(
    models: tuple[str, ...], options: dict[str, Any], message: str
) -> None:
    assert message in said(lab(models, **options))


def test_a_folder_of_safetensors_is_for_another_engine() -> None:
    content = lab()
    content["models"]["tiny"] = {"source": "dir:/models/whole", "format": "safetensors"}
    (message,) = (one for one in said(content) if "safetensors" in one)
    assert message.startswith("Ollama server reads gguf")


@pytest.mark.parametrize(("card", "vulkan"), [(NVIDIA, False), (AMD, True)])
def test_cards_of_others_than_nvidia_compute_by_vulkan(card: Any, vulkan: bool) -> None:
    options = KNOWLEDGE.options_of_card({}, card)
    assert options["vulkan"] is vulkan
    assert options["card"]["vendor"] == card.vendor
    assert KNOWLEDGE.processor(options, has_card=True).is_device is True
    assert KNOWLEDGE.processor({}, has_card=True).is_device is False


def test_the_context_of_a_model_counts_before_that_of_the_server() -> None:
    content = lab(("tiny", "other"), context=8192)
    content["models"]["tiny"]["context"] = 512
    service = resolve(spec_of(content), CATALOG).services[ADDRESS]
    assert KNOWLEDGE.limits(service, "tiny") == Limits(512)
    assert KNOWLEDGE.limits(service, "other") == Limits(8192)
    trained = Known(headers={"other": Header("llama", context=4096), "tiny": Header("llama", context=4096)})
    service = resolve(spec_of(content), CATALOG, trained).services[ADDRESS]
    assert KNOWLEDGE.limits(service, "tiny") == Limits(512)
    assert KNOWLEDGE.limits(service, "other") == Limits(4096)


def test_the_role_holds_names_against_the_same_forms() -> None:
    variables = yaml.safe_load((paths.roles() / "ollama/vars/main.yml").read_text(encoding="utf-8"))
    names = ["qwen", "a.b-c_d", "a" * 80, "a" * 81, "a:b", "", ".a", "ä", "a b", "a\n"]
    models = ["qwen3", "qwen3:0.6b", "hf.co/org/repo:Q4_K_M", "org/model", "10.0.0.1:5000/library/a:b", "https://a/b"]
    for value in (*names, *models, "a/b/c/d", "../a", "../etc/x", "a:", ":a"):
        assert bool(re.match(variables["__ollama_name_pattern"], value)) == bool(NAME.fullmatch(value)), value
        assert bool(re.match(variables["__ollama_reference_pattern"], value)) == bool(REFERENCE.fullmatch(value)), value
