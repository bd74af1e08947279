"""Teams of agents: what a file may not say of one, what a question may use, and what a client may ask."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Protocol

import pytest

from provisioner.cli.app import run
from provisioner.values import paths
from tests.case_files import read_cases
from tests.scenario_programs import module_at

CASES = read_cases("services/agent_team")

PROGRAMS = paths.roles() / "agent_team/programs"


BUDGET, WIRE = module_at(PROGRAMS / "budget.py"), module_at(PROGRAMS / "wire.py")
FILE: str = CASES["file"]
MEMBER, COORDINATOR = "{ name: coder, instructions: a, model: tiny }", "coordinator: { instructions: a, model: tiny }"
FAR = "far: { model: cohere/model, api_key: !secret key }"
WRONG = CASES["wrong"]


ASKERS = [
    ("http://gateway.incus:4000/v1", "gateway/litellm"),
    ("http://gateway:4000/v1", "gateway/litellm"),
    ("http://team.incus:4100/v1", "team/agent_team"),
    ("http://127.0.0.1:4100/v1", "team/agent_team"),
    ("http://other.incus:4100/v1", "other/agent_team"),
    ("http://chat.incus:8090/api", "chat/open_webui"),
]
"""Addresses of this file's own services, written as that of an upstream."""


class Validate(Protocol):
    """Gives the exit code of ``validate`` of a file, and what it said."""

    def __call__(self, text: str) -> tuple[int, str]:
        """Of a file that says ``text``."""


@pytest.fixture
def validate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Validate:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROVISION_SECRET_KEY", "key-of-the-engine-01")
    monkeypatch.setenv("PROVISION_SECRET_MASTER", "sk-master-0123456789")
    monkeypatch.setenv("PROVISION_SECRET_PASSWORD", "password-of-it")

    def validate(text: str) -> tuple[int, str]:
        Path("homelab.yml").write_text(text, encoding="utf-8")
        code = run(("validate",))
        return code, capfd.readouterr().err

    return validate


def test_a_team_before_engines_and_behind_a_gateway_is_valid(validate: Validate) -> None:
    assert validate(FILE) == (0, "")


@pytest.mark.parametrize(("right", "wrong", "line", "words"), WRONG)
def test_what_no_team_could_be_is_refused_with_its_line(
    validate: Validate, right: str, wrong: str, line: int, words: str
) -> None:
    assert right in FILE
    code, said = validate(FILE.replace(right, wrong, 1))
    assert code == 64
    assert words in said
    assert f"homelab.yml:{line}:" in said


@pytest.mark.parametrize(("address", "asker"), ASKERS)
def test_a_roundabout_way_to_itself_is_refused(validate: Validate, address: str, asker: str) -> None:
    upstream = f'far: {{ model: openai/far, base_url: "{address}", api_key: !secret key }}'
    text = FILE.replace(FAR, upstream).replace("model: tiny }]", "model: far }]", 1)
    code, said = validate(text)
    assert code == 64
    assert f"homelab.yml:12:51: containers.team.services.agent_team.members[0].model: upstream far is {asker}" in said
    for elsewhere in (address.replace("http://", "http://house-"), "http://llama.incus:8080/v1"):
        assert validate(text.replace(address, elsewhere))[0] == 0


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
