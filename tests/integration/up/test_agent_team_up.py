"""A team of agents before an engine on a real Incus: it is proved, answers, and costs nothing where nothing changed.

The tests of this module build on each other, in their order.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.up.quickstart_lab import ENGINE_KEY, MASTER_KEY, Lab
from tests.lab.incus import Lab as Incus

pytestmark = [pytest.mark.incus, pytest.mark.network, pytest.mark.slow]

NAME = "agents"
FILE = """
name: agents
models:
  tiny: { source: "builtin:tiny", context: 4096 }
containers:
  agents-llama: { services: { llama_cpp: { model: tiny, api_key: !secret engine_key } } }
  agents-team:
    services:
      agent_team:
        api_key: !secret master_key
        coordinator: { instructions: "Coordinate {{ 7*7 }}.", model: tiny }
        members:
          - { name: researcher, says: "Ask it for facts.", instructions: "Find facts.", model: tiny }
          - { name: coder, instructions: "Write code.", model: agents-llama/llama_cpp }
"""


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab, up: its first ``up`` has proved the engine and then the team."""
    lab = Lab(tmp_path_factory.mktemp(NAME), incus_lab.environment, "debian/12", "debian/12", name=NAME)
    lab.write(FILE)
    lab.provision("destroy", "--prune", "--yes", "--lab", NAME)  # what an interrupted run of this test left
    lab.runs.clear()
    first = lab.provision("up", "--yes", "--json")
    assert first.code == 0, first.out[-4000:] + first.err[-4000:]
    yield lab
    ended = lab.provision("destroy", "--prune", "--yes", "--lab", NAME, "--json")
    assert ended.code == 0, ended.out + ended.err


def test_the_team_was_proved_after_its_engine(lab: Lab) -> None:
    checks = {line["target"]: line["ok"] for line in lab.runs[0].lines if line["type"] == "check"}
    assert checks == {"agents-llama/llama_cpp": True, "agents-team/agent_team": True}


def test_it_answers_with_its_key_and_nobody_else(lab: Lab) -> None:
    answer = lab.ask("agents-team", 4100, "agent_team", MASTER_KEY)
    assert answer.status == 200, answer.body
    assert answer.body["usage"]["total_tokens"] > 0
    for key in (None, "wrong", ENGINE_KEY):
        assert lab.ask("agents-team", 4100, "agent_team", key).status == 401


def test_keys_stand_in_one_file_and_in_nothing_that_was_written_or_printed(lab: Lab) -> None:
    there = lab.incus(
        "exec", "agents-team", "--", "grep", "-rl", "CANARY", "/etc", "/usr/local", "/var/log", check=False
    )
    assert there.split() == ["/etc/agent_team/secrets.env"]
    printed = "".join(run.out + run.err for run in lab.runs) + "".join(lab.arguments_seen)
    assert "CANARY" not in printed


def test_what_it_opens_is_on_its_page_and_a_second_run_has_nothing_to_do(lab: Lab) -> None:
    looked = lab.provision("audit", "agents-team")
    assert looked.code == 0, looked.out + looked.err
    again = lab.provision("up", "--yes", "--json")
    assert again.code == 0, again.out + again.err
    assert not [line for line in again.lines if line["type"] in ("planned_change", "apply_start")]
