"""Teams of agents: what a file may not say of one, what a question may use, and what a client may ask."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from provisioner.values import paths

PROGRAMS = paths.roles() / "agent_team/programs"


def load(name: str) -> ModuleType:
    """A program of the role as a module; its dataclasses look for it among all modules."""
    spec = importlib.util.spec_from_file_location(f"agent_team_{name}", PROGRAMS / f"{name}.py")
    assert spec
    assert spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BUDGET, WIRE = load("budget"), load("wire")
FILE = """name: lab
models: { tiny: { source: "builtin:tiny" } }
upstreams: { far: { model: cohere/model, api_key: !secret key } }
containers:
  llama: { services: { llama_cpp: { model: tiny } } }
  gateway: { services: { litellm: { master_key: !secret master, aliases: { fast: [tiny], team: [team/agent_team] } } } }
  team:
    services:
      agent_team:
        api_key: !secret key
        coordinator: { instructions: a, model: tiny }
        members: [{ name: coder, instructions: a, model: tiny }]
        most_turns: 12
"""
MEMBER, COORDINATOR = "{ name: coder, instructions: a, model: tiny }", "coordinator: { instructions: a, model: tiny }"
WRONG = [
    ("model: tiny }]", "model: fast }]", 12, '"fast" is an alias of gateway/litellm'),
    ("model: tiny }]", "model: team/agent_team }]", 12, "team/agent_team computes no answers"),
    ("model: tiny }]", "model: nobody }]", 12, 'no engine or upstream "nobody"'),
    ("model: tiny }]", "model: far }]", 12, "where cohere answers in OpenAI's words is not known"),
    ("name: coder", "name: a b", 12, '"a b" is no name of a function'),
    (MEMBER, f"{MEMBER}, {MEMBER}", 12, 'two members are called "coder"'),
    ("tiny }]", "tiny, price: { read: 1, written: 2 } }]", 12, "what costs money needs a limit"),
    ("most_turns: 12", "most_turns: 0", 13, "0 is too small"),
    ("most_turns: 12", "most_cost: 1.0", 13, "nothing has a price"),
    (COORDINATOR, "most_tokens: 5", 9, "coordinator"),
]


def validated(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """What the command says of the file."""
    (folder / "homelab.yml").write_text(text, encoding="utf-8")
    secrets = {"PROVISION_SECRET_KEY": "key", "PROVISION_SECRET_MASTER": "sk-master"}
    command = [sys.executable, "-m", "provisioner", "validate"]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **secrets}, capture_output=True, text=True, check=False, timeout=120
    )


def test_a_team_before_engines_and_behind_a_gateway_is_valid(tmp_path: Path) -> None:
    done = validated(tmp_path, FILE)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("right", "wrong", "line", "words"), WRONG)
def test_what_no_team_could_be_is_refused_with_its_line(
    tmp_path: Path, right: str, wrong: str, line: int, words: str
) -> None:
    done = validated(tmp_path, FILE.replace(right, wrong))
    assert done.returncode == 64
    assert words in done.stderr
    assert f"homelab.yml:{line}:" in done.stderr


def test_a_question_ends_at_its_limits() -> None:
    budget = BUDGET.Budget(BUDGET.Limits(turns=2, tokens=100, seconds=1, cost=0.01))
    budget.begin_turn()
    budget.charge(10, 5, BUDGET.Price(read=1.0, written=2.0))
    assert (budget.tokens, budget.cost) == (15, pytest.approx(20e-6))
    budget.begin_turn()
    with pytest.raises(BUDGET.LimitReachedError) as reached:
        budget.begin_turn()
    assert reached.value.option == "most_turns"
    with pytest.raises(BUDGET.LimitReachedError) as reached:
        budget.check_running(80, 5, BUDGET.Price())
    assert reached.value.option == "most_tokens"
    assert budget.reached.option == "most_turns", "the first one counts"


@pytest.mark.parametrize(
    "changed", [{"model": "x"}, {"tools": [{}]}, {"n": 2}, {"messages": []}, {"max_tokens": 0}, {"temperature": 3}]
)
def test_what_a_team_does_not_take_is_refused(changed: dict[str, object]) -> None:
    asked = {"model": "team", "messages": [{"role": "user", "content": "a"}]}
    assert WIRE.read_question(json.dumps(asked).encode(), "team").messages == (("user", "a"),)
    with pytest.raises(WIRE.RefusedError):
        WIRE.read_question(json.dumps({**asked, **changed}).encode(), "team")
