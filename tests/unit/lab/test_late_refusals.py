"""What a role's table of refusals says in the container, ``validate`` has said before, wherever the file tells it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from provisioner.catalog import load_catalog
from provisioner.lab import problems, resolve
from provisioner.lab.opening.model_files import read_headers
from provisioner.lab.resolved import Known
from provisioner.lab.rules import card_problems, model_option_problems
from provisioner.labfile.parsing import parse_spec
from provisioner.values import paths
from tests.case_files import read_cases

CASES: dict[str, list[Any]] = read_cases("lab/late_refusals")
KEY = "a-key-of-the-lab-0123"
USUAL: dict[str, dict[str, Any]] = {
    "oci": {"image": f"registry.lan/a/b@sha256:{'a' * 64}", "image_port": 80, "pages": ["/"]},
    "llama_cpp": {"model": "m"},
    "ollama": {"models": ["m"], "api_key": KEY},
    "vllm": {"model": "hf", "stack": "vllm-cpu", "api_key": KEY},
    "tabbyapi": {"model": "exl", "stack": "tabbyapi-cu13", "api_key": KEY, "admin_key": f"{KEY}4"},
}
MODELS = {"m": {"source": "builtin:tiny"}, "hf": {"source": "builtin:tiny-hf"}, "exl": {"source": "hf:a/b-exl3@main"}}
BROKEN = [(role, *case) for role, cases in CASES.items() for case in cases if isinstance(case, list)]


@pytest.mark.parametrize("role", CASES)
def test_each_check_of_a_role_has_its_case(role: str) -> None:
    tasks = yaml.safe_load((paths.roles() / role / "tasks/preflight_options.yml").read_text(encoding="utf-8"))
    checks = [check for task in tasks for check in task.get("vars", {}).get("__checks", ())]
    assert len(checks) == len(CASES[role])


@pytest.mark.parametrize(("role", "options", "words"), BROKEN)
def test_what_the_file_tells_is_refused_before_anything_is_made(role: str, options: dict[str, Any], words: str) -> None:
    assert said_of(role, {}) == ""
    said = said_of(role, options)
    assert words in said


def said_of(role: str, options: dict[str, Any]) -> str:
    containers = {"a": {"services": {role: {**USUAL[role], **options}}}}
    parsed = parse_spec({"name": "lab", "models": MODELS, "containers": containers}, load_catalog())
    found = list(parsed.problems)
    if parsed.spec is not None:
        lab = resolve(parsed.spec, load_catalog(), Known(headers=read_headers(parsed.spec.models)[0]))
        found += [*problems(lab), *model_option_problems(lab), *card_problems(lab)]
    return "; ".join(f"{one.path} {one.message} {one.hint}" for one in found)


@pytest.mark.parametrize("name", ["TOOLS", "TOOLS_RUNTIME", "AGENT", "MCP_SERVERS_JSON", "UI_MCP_PROXY", "no_tools"])
def test_no_variable_of_llama_server_gives_a_shell(name: str) -> None:
    assert "this variable opens the server" in said_of("llama_cpp", {"environment": {f"LLAMA_ARG_{name}": "1"}})


def test_a_value_of_two_lines_is_refused_where_it_stands_on_a_line() -> None:
    assert "control character" in said_of("llama_cpp", {"environment": {"A": "x\nExecStartPre=/bin/true"}})
    assert "control character" in said_of("oci", {"arguments": ["a\tb"]})
    assert "control character" in said_of("oci", {"environment": {"A": "x\x7fy"}})


def test_a_value_is_a_word_of_its_own_for_llama_server() -> None:
    assert "takes no value in --temp=" in said_of("llama_cpp", {"extra_arguments": ["--temp=0.5"]})
    assert said_of("llama_cpp", {"extra_arguments": ["--temp", "0.5", "-ot", "exps=CPU"]}) == ""


@pytest.mark.parametrize(
    ("model", "is_elsewhere"),
    [
        ("gpt-oss:120b-cloud", True),
        ("qwen3:CLOUD", True),
        ("someone/big:cloud", True),
        ("someone/nimbus-cloud", False),
        ("registry.lan:5000/a/b:cloud", False),
        ("cloud:8b", False),
    ],
)
def test_a_model_that_is_computed_elsewhere_is_refused(model: str, is_elsewhere: bool) -> None:
    assert ("Ollama's servers" in said_of("ollama", {"pull": [{"name": "big", "model": model}]})) == is_elsewhere
