"""Pipelines on a real Incus: proved before an engine, asked, closed to strangers, rolled back where one is broken.

The server is a stand-in with upstream's routes and habits. The tests of this module build on each other, in their
order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest

from tests.integration.up.bridged_files import files_on_bridge
from tests.integration.up.quickstart_lab import ENGINE_KEY, MASTER_KEY, Lab
from tests.lab.incus import Lab as Incus
from tests.pipelines_source import STANDIN, standin_in

pytestmark = [pytest.mark.incus, pytest.mark.network, pytest.mark.slow]

NAME, PORT = "pipes", 18883
PIPELINES = STANDIN.parent / "pipelines"
FILE = """
name: pipes
models:
  tiny: {{ source: "builtin:tiny", context: 4096 }}
containers:
  pipes-llama: {{ services: {{ llama_cpp: {{ model: tiny, api_key: !secret engine_key }} }} }}
  pipes-server:
    services:
      pipelines:
        source: {address}
        commit: "{commit}"
        source_sha256: "{sha256}"
        api_key: !secret master_key
        pipelines: {pipelines}
        connect: [pipes-llama/llama_cpp]
        asked: true
"""


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab, up: its first ``up`` has built the server, and proved the engine and then the pipelines."""
    lab = Lab(tmp_path_factory.mktemp(NAME), incus_lab.environment, "debian/12", "debian/12", name=NAME)
    served = tmp_path_factory.mktemp("source")
    source = standin_in(served)
    agents = lab.folder / "agents"
    agents.mkdir()
    for name in ("team.py", "many.py"):
        text = (PIPELINES / name).read_text(encoding="utf-8").replace("llama/llama_cpp", "pipes-llama/llama_cpp")
        (agents / name).write_text(text, encoding="utf-8")
    with files_on_bridge(lab, served, PORT) as address:
        said = {"address": address, "commit": source.commit, "sha256": source.source_sha256}
        lab.write(FILE.format(**said, pipelines="[agents/team.py]"))
        with lab.brought_up():
            yield lab


def status(lab: Lab, model: str, key: str | None = MASTER_KEY) -> int:
    """The status of an answer, which is read to its end as it is streamed."""
    body = {"model": model, "messages": [{"role": "user", "content": "hello"}], "stream": True}
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    connection = HTTPConnection(lab.address("pipes-server"), 9099, timeout=120)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    assert answer.status != 200 or text.endswith(b"data: [DONE]"), text
    return answer.status


def inside(lab: Lab, *command: str) -> str:
    """What a command in the server's container prints."""
    return lab.incus("exec", "pipes-server", "--", *command, check=False)


def test_the_pipelines_were_proved_after_their_engine(lab: Lab) -> None:
    assert lab.runs[0].checks == {"pipes-llama/llama_cpp": True, "pipes-server/pipelines": True}


def test_a_team_answers_with_its_key_and_nobody_else(lab: Lab) -> None:
    assert status(lab, "team") == 200
    for key in (None, "wrong", ENGINE_KEY, "0p3n-w3bu!"):
        assert status(lab, "team", key) == 401


def test_keys_stand_in_one_file_and_in_nothing_that_was_written_or_printed(lab: Lab) -> None:
    there = inside(lab, "grep", "-rl", "CANARY", "/etc", "/usr/local", "/var/log")
    assert there.split() == ["/etc/pipelines/secrets.env"]
    lab.shows_none_of("CANARY")


def test_what_it_opens_is_on_its_page_and_a_second_run_has_nothing_to_do(lab: Lab) -> None:
    lab.succeeded("audit", "pipes-server")
    again = lab.succeeded("up", "--yes", "--json")
    assert not [line for line in again.lines if line["type"] in ("planned_change", "apply_start")]


def test_a_file_that_cannot_be_loaded_is_told_with_its_line_and_what_was_proved_serves_on(lab: Lab) -> None:
    file = lab.folder / "agents/team.py"
    whole = file.read_text(encoding="utf-8")
    file.write_text(whole.replace("ENGINE = json", "ENGINE = nobody"), encoding="utf-8")
    planned = lab.provision("plan", "--detailed-exitcode")
    assert planned.code == 2, planned.out + planned.err
    broken = lab.provision("up", "--yes")
    assert broken.code == 3, broken.out + broken.err
    assert "team.py, line 9 could not be loaded: NameError: name 'nobody' is not defined" in broken.out + broken.err
    assert status(lab, "team") == 200
    file.write_text(whole, encoding="utf-8")


def test_another_file_is_served_beside_it_and_one_that_is_no_longer_named_is_gone(lab: Lab) -> None:
    text = (lab.folder / "homelab.yml").read_text(encoding="utf-8")
    lab.write(text.replace("[agents/team.py]", "[agents/many.py]"))
    lab.succeeded("up", "--yes", "--json")
    assert inside(lab, "ls", "/etc/pipelines/served").split() == ["many", "many.py"]
    assert status(lab, "many.loud") == 200
    assert status(lab, "team") == 404
