"""vLLM in a lab's file: what its stack and its card decide, what is refused before anything is made."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from provisioner.catalog import load_catalog
from provisioner.lab import Known, problems, resolve
from provisioner.lab.rules import card_problems
from provisioner.labfile.parsing import parse_spec
from provisioner.labfile.spec import Spec
from provisioner.services import knowledge_of
from provisioner.services.base import Limits
from provisioner.services.vllm import DEFAULT_CACHE_GIB
from provisioner.values import paths
from provisioner.values.address import Address
from provisioner.values.state import Secret
from tests.unit.lab.test_cards import AMD, NVIDIA

CATALOG = load_catalog()
ADDRESS = Address.of("hub", "vllm")


def lab(model: str = "dir:/models/qwen", memory: str = "", gpu: str = "", **options: Any) -> dict[str, Any]:
    """The content of a file with a server."""
    service = {"model": "qwen", "api_key": Secret("key", "0123456789abcdef"), **options}
    container: dict[str, Any] = {"services": {"vllm": service}}
    container |= {"memory": memory} if memory else {}
    container |= {"gpu": gpu} if gpu else {}
    source: dict[str, Any] = {"source": model}
    if model.startswith("dir:"):
        source["format"] = "safetensors"
    return {"name": "lab", "models": {"qwen": source}, "containers": {"hub": container}}


def parsed(content: dict[str, Any]) -> Spec:
    """The file, which has the right form."""
    found = parse_spec(content, CATALOG)
    assert found.problems == ()
    assert found.spec is not None
    return found.spec


def said(content: dict[str, Any]) -> list[str]:
    """What is wrong with the file."""
    return [problem.message for problem in problems(resolve(parsed(content), CATALOG))]


def test_a_gguf_is_for_another_engine() -> None:
    (message,) = said(lab("file:a.gguf"))
    assert message == 'vLLM server reads safetensors, awq, gptq, fp8, and model "qwen" is gguf'


@pytest.mark.parametrize(("memory", "backend", "needed"), [("2GiB", "cuda", "3GiB"), ("3GiB", "cpu", "4GiB")])
def test_a_container_without_the_memory_of_its_processes_is_refused(memory: str, backend: str, needed: str) -> None:
    (problem,) = problems(resolve(parsed(lab(memory=memory, gpu="any", backend=backend)), CATALOG))
    assert problem.path == ("containers", "hub", "memory")
    assert "vLLM's three processes take" in problem.message
    assert problem.hint == f"Write {needed} or more."
    assert said(lab(memory=needed, gpu="any", backend=backend)) == []


def test_a_larger_cache_on_the_processor_needs_more() -> None:
    assert said(lab(memory="6GiB", backend="cpu", kv_cache_gib=3)) == []
    (message,) = said(lab(memory="6GiB", backend="cpu", kv_cache_gib=4))
    assert "7GiB" in message


def test_what_the_role_takes_as_its_cache_is_what_is_reckoned() -> None:
    written = yaml.safe_load((paths.roles() / "vllm/vars/main.yml").read_text(encoding="utf-8"))["__vllm_cache_gib"]
    assert written.endswith(f"(0 if vllm_backend == 'cuda' else {DEFAULT_CACHE_GIB}) }}}}")


def test_another_card_than_nvidias_is_refused() -> None:
    spec = parsed(lab(gpu="any"))
    (problem,) = card_problems(resolve(spec, CATALOG, Known(cards={"hub": AMD})))
    assert "knows no CUDA" in problem.message
    assert card_problems(resolve(spec, CATALOG, Known(cards={"hub": NVIDIA}))) == []


def test_clients_are_told_what_a_request_may_hold() -> None:
    service = resolve(parsed(lab(max_model_len=4096, vision=True)), CATALOG).services[ADDRESS]
    assert knowledge_of(service.role).limits(service, "qwen") == Limits(4096, vision=True)
    service = resolve(parsed(lab()), CATALOG).services[ADDRESS]
    assert knowledge_of(service.role).limits(service, "qwen") == Limits(None)


@pytest.mark.parametrize(
    ("variables", "is_device"), [({"backend": "cpu"}, False), ({"backend": "cuda", "card": {"vendor": "nvidia"}}, True)]
)
def test_status_says_what_it_was_asked_to_compute_on(variables: dict[str, Any], is_device: bool) -> None:
    assert knowledge_of("vllm").processor(variables, has_card=is_device).is_device is is_device


def test_fit_says_that_it_does_not_know() -> None:
    service = resolve(parsed(lab(gpu="any", gpu_memory_utilization=0.5)), CATALOG).services[ADDRESS]
    loads = knowledge_of(service.role).loads(service, {}, 0)
    assert loads is not None
    assert "vLLM takes 50% of a card at its start" in loads.unknown
