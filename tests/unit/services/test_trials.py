"""How another context of an engine is tried: by which words, with which key, and what it says without room."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from provisioner.inside import trial
from provisioner.services import base, llama_cpp, tabbyapi, vllm
from provisioner.values import paths


def variables_of(role: str) -> dict[str, Any]:
    """Those of the role's ``vars/main.yml``, as they stand there."""
    found: dict[str, Any] = yaml.safe_load((paths.roles() / role / "vars" / "main.yml").read_text("utf-8"))
    return found


@pytest.mark.parametrize(
    ("role", "file", "running", "name"),
    [
        ("llama_cpp", llama_cpp.KEY_FILE, "__llama_cpp_running_key_file", "__llama_cpp_run_name"),
        ("tabbyapi", tabbyapi.KEY_FILE, "__tabbyapi_running_tokens", "__tabbyapi_run_name"),
        ("vllm", vllm.KEY_FILE, "__vllm_running_key", "__vllm_run_name"),
    ],
)
def test_the_key_lies_where_the_role_puts_it(role: str, file: str, running: str, name: str) -> None:
    variables = variables_of(role)
    told = variables[running].replace(f"{{{{ {name} }}}}", variables[name])
    assert told == file


def test_what_vllm_says_without_room_is_what_its_role_knows() -> None:
    assert variables_of("vllm")["__vllm_no_room"] == [*vllm.NO_ROOM]


def test_what_tabbyapi_says_without_room_is_what_its_role_knows() -> None:
    assert tabbyapi.NO_ROOM[0] == variables_of("tabbyapi")["__tabbyapi_no_room"]


@pytest.mark.parametrize(
    ("role", "changes", "command"),
    [
        ("llama_cpp", base.quoted_changes("--ctx-size"), '"--port" "18080" "--ctx-size" "512"'),
        ("vllm", base.quoted_changes("--max-model-len"), '"--port" "18000" "--max-model-len" "512"'),
        ("tabbyapi", ((tabbyapi.PORT, ""),), "--host 127.0.0.1 --port 15000 --max-body 5"),
    ],
)
def test_what_is_changed_stands_once_in_such_a_command(
    role: str, changes: tuple[tuple[str, str], ...], command: str
) -> None:
    assert [len(re.findall(pattern, command)) for pattern, _ in changes] == [1] * len(changes), role


def test_the_interfaces_are_those_that_the_program_in_the_container_knows() -> None:
    assert (base.NATIVE, base.OPENAI) == (trial.NATIVE, trial.OPENAI)
