"""Copies that try something: nobody is led to one by the name of a model, and a file says of what they are."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.catalog import load_catalog
from provisioner.lab import ModelFile, desired_fleet, problems, resolve
from provisioner.lab.resolved import ResolvedLab
from provisioner.values.state import Service
from tests.lab_files import spec_of

FILES = {"m": ModelFile("m", "/m.gguf", "a" * 64)}
ENGINE: dict[str, Any] = {"services": {"llama_cpp": {"model": "m", "api_key": "key-of-the-engine"}}}
VOICE: dict[str, Any] = {"services": {"kokoro": {}}}


def lab(**containers: Any) -> ResolvedLab:
    """An engine, a voice, and a gateway to both, with more containers."""
    aliases = {"fast": ["m"], "tried": ["trial/llama_cpp"]} if "trial" in containers else {"fast": ["m"]}
    gateway = {"services": {"litellm": {"master_key": "sk-key-of-the-gateway", "aliases": aliases}}}
    file = {
        "name": "lab",
        "models": {"m": {"source": "builtin:tiny"}},
        "containers": {"engine": ENGINE, "voice": VOICE, "gateway": gateway, **containers},
    }
    return resolve(spec_of(file), load_catalog())


def gateway_of(resolved: ResolvedLab) -> Service:
    assert problems(resolved) == []
    instance = desired_fleet(resolved, FILES).instance("gateway")
    assert instance is not None
    return instance.services[-1]


def test_a_gateway_leads_to_a_copy_that_it_names_and_to_no_other() -> None:
    copies = {"trial": {**ENGINE, "copy_of": "engine"}, "voice-trial": {**VOICE, "copy_of": "voice"}}
    service = gateway_of(lab(**copies))
    text = str(service.variables)
    assert "http://engine.incus:8080/v1" in text
    assert "http://trial.incus:8080/v1" in text
    assert "voice-trial" not in text
    assert {str(need) for need in service.needs} == {"engine/llama_cpp", "trial/llama_cpp", "voice/kokoro"}


def test_a_gateway_is_the_same_with_a_copy_beside_and_not_with_another_engine() -> None:
    plain = gateway_of(lab())
    assert gateway_of(lab(other={**ENGINE, "copy_of": "engine"}, speech={**VOICE, "copy_of": "voice"})) == plain
    assert gateway_of(lab(other=ENGINE)) != plain
    assert gateway_of(lab(speech=VOICE)) != plain


@pytest.mark.parametrize(("source", "words"), [("copy", "no copy of itself"), ("nobody", 'no container "nobody"')])
def test_a_copy_is_of_another_container_of_the_file(source: str, words: str) -> None:
    (problem,) = problems(lab(copy={**ENGINE, "copy_of": source}))
    assert problem.path == ("containers", "copy", "copy_of")
    assert words in problem.message


def test_a_model_that_only_a_copy_serves_is_served_by_nobody() -> None:
    file = {"gateway": {"services": {"litellm": {"master_key": "sk-key", "aliases": {"a": ["m"]}}}}}
    copied = {**ENGINE, "copy_of": "gateway"}
    spec = spec_of(
        {"name": "lab", "models": {"m": {"source": "builtin:tiny"}}, "containers": {**file, "engine": copied}},
        load_catalog(),
    )
    assert 'no service serves model "m"' in [problem.message for problem in problems(resolve(spec, load_catalog()))]


def test_what_a_role_makes_for_its_clients_to_know_it_by_is_among_what_it_manages() -> None:
    pages = [page for page in load_catalog().services.values() if page.identity]
    assert [page.role for page in pages] == ["desktop"]
    managed = str([page.upkeep.managed for page in pages])
    for page in pages:
        for file in page.identity:
            assert file.rpartition("/")[0] in managed
