"""An answer that was cut is none: the proofs of engines and gateways look at how it ended, as Ansible judges it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.values import paths
from tests.plays import rescued, run_cases

ROOT = Path(__file__).resolve().parents[3]
ENDINGS = ("stop", "length", "abort", None)
"""vLLM says "abort" of half an answer, with HTTP 200; a server that is killed says nothing."""
MODEL = "/srv/models/tiny/tiny.gguf"


def completion(ended: str | None) -> dict[str, Any]:
    """What a task registers of a completion that ended in this way."""
    choice = {"finish_reason": ended, "message": {"content": "hello"}}
    answer = {"model": "tiny", "choices": [choice], "usage": {"completion_tokens": 1}}
    return {"status": 200, "item": "tiny", "json": answer}


CLOSED = {"asked": 1, "answered": [], "silent": 0, "left": 0, "problem": ""}
OLLAMA = (
    "{{ [{'name': 'tiny', 'kind': 'chat', 'status': 200, 'tokens': 1, 'size': 1, 'on_card': 0,"
    " 'ended': __ollama_answer.json.choices[0].finish_reason | default('nothing', true)}] | to_json }}"
)
"""What its program tells of such an answer."""
PROPS = {"status": 200, "item": "tiny", "json": {"model_path": MODEL}}
CHECKS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "one model": (
        *("llama_cpp", "verify_chat", "verify_chat | Check the completion"),
        {"llama_cpp_model": MODEL, "llama_cpp_alias": "tiny", "__llama_cpp_props": PROPS},
    ),
    "several models": (
        *("llama_cpp", "verify_models", "verify_models | Check the completions of several models"),
        {"llama_cpp_models": [{"alias": "tiny", "path": MODEL}], "__llama_cpp_props_of": {"results": [PROPS]}},
    ),
    "Ollama": (
        *("ollama", "verify", "verify | Check the answers, where the models lie, and what is refused"),
        {
            "ollama_api_key": "canary-key-0123456789",
            "__ollama_proofs": {"rc": 0, "stdout": OLLAMA},
            "__ollama_journal": {"leaks": 0, "said": []},
            "__ollama_seen": {"serving": True, "stale": [], "main_pid": 1, "listeners": []},
            "__ollama_strangers": {"rc": 0, "stdout": json.dumps({"doors": [CLOSED]})},
            "__ollama_closed": {"status": 404},
        },
    ),
    "a gateway": (
        *("litellm", "verify_gateway", "verify_gateway | Check that each engine of this lab answered itself"),
        {
            "litellm_master_key": "sk-x",
            "litellm_routes": {"aliases": [], "engines": [], "deployments": [], "asked": ["tiny"]},
        },
    ),
}
"""The role, its file of tasks, the task that judges an answer, and what it knows beside the answer."""


def task_of(role: str, file: str, name: str) -> dict[str, Any]:
    """The one task of that name."""
    page = paths.roles() / role / "tasks" / f"{file}.yml"
    found = [task for task in yaml.safe_load(page.read_text(encoding="utf-8")) if task["name"] == name]
    assert len(found) == 1
    return dict(found[0])


def variables(role: str, known: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    """The variables of a case with this answer, beside the role's own."""
    several = {f"__{role}_answers": {"results": [answer]}}
    return {"role_name": role, "role_path": str(paths.roles() / role), **known, f"__{role}_answer": answer, **several}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What is said by each check of each way to end; no entry where it is taken."""
    answers = {}
    for check, (role, file, name, known) in CHECKS.items():
        cases = {f"{check}: {ended}": variables(role, known, completion(ended)) for ended in ENDINGS}
        folder = tmp_path_factory.mktemp("play")
        facts = run_cases(ROOT, folder, role, cases, [rescued(task_of(role, file, name))])
        answers.update({case: found["said"] for case, found in facts.items() if "said" in found})
    return answers


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("ended", ENDINGS)
def test_only_an_answer_that_came_to_its_end_proves_something(
    told: dict[str, str], check: str, ended: str | None
) -> None:
    is_whole = ended in ("stop", "length")
    assert (f"{check}: {ended}" not in told) == is_whole, told


def test_it_is_said_how_the_answer_ended(told: dict[str, str]) -> None:
    assert "tiny: the answer was cut, its finish_reason is abort" in told["a gateway: abort"]
    assert "its finish_reason is nothing" in told["a gateway: None"]
    assert "'finish_reason': 'abort'" in told["one model: abort"]
    assert "tiny (HTTP 200, 1 tokens, ended by nothing)" in told["Ollama: None"]
