"""A team whose coordinator and member share a card: each hand-over is a turn, and one that cannot be had is told.

``up``, its proofs and ``verify`` are of two real llama-servers with the model that needs no download, which asks no
member. So in their units, behind their switches, engines answer by a rule afterwards: what is seen of turns is as real
as before, and the answer needs both. The tests of this module build on each other, in their order.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.openai import rule_engine
from tests.integration.up import team_in_turns
from tests.integration.up.quickstart_lab import MASTER_KEY, Lab, sh
from tests.lab.incus import Lab as Incus
from tests.lab_files import lab_text
from tests.waiting import wait_until

pytestmark = [pytest.mark.incus, pytest.mark.network, pytest.mark.slow]

NAME = "teamturns"
CHAT, CODE, TEAM = f"{NAME}-chat", f"{NAME}-code", f"{NAME}-team"
BOTH = (CHAT, CODE)
FILE = lab_text("team_turns")
UNIT = "llama-server"
FOLDER = "/usr/local/lib/team-in-turns"
DROP_IN = f"/etc/systemd/system/{UNIT}.service.d/by-a-rule.conf"
OTHER_COMMAND = "[Service]\nExecStart=\nExecStart={command}\n"


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab, up."""
    environment = {**incus_lab.environment, "PROVISION_SECRET_SHARE_BOX": "CANARY2-of-those-who-share"}
    lab = Lab(tmp_path_factory.mktemp(NAME), environment, "debian/12", "debian/12", name=NAME)
    lab.write(FILE)
    with lab.brought_up():
        yield lab


def put(lab: Lab, container: str, file: str, text: str) -> None:
    """Write a file that everybody may read."""
    lab.incus("exec", container, "--", "mkdir", "-p", str(Path(file).parent))
    subprocess.run(
        ["incus", "file", "push", "--mode=0644", "-", f"{container}{file}"],
        input=text.encode(),
        env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/root", **lab.environment},
        check=True,
        timeout=60,
    )


def runs_as(lab: Lab, container: str, command: str) -> None:
    """Have the engine's unit run that command from its next start on."""
    put(lab, container, DROP_IN, OTHER_COMMAND.format(command=command))
    sh(lab, container, "systemctl daemon-reload")


def by_rule(name: str) -> str:
    """The command of an engine by the rule."""
    return f"/usr/bin/python3 -B {FOLDER}/serve.py {name} --port 18080"


def active(lab: Lab) -> list[str]:
    """The containers whose engines run."""
    return [name for name in BOTH if sh(lab, name, f"systemctl is-active {UNIT} || true").strip() == "active"]


def runs(lab: Lab, since: float) -> list[tuple[float, float, str]]:
    """From when to when engines ran since then, and whose, the earliest first."""
    found: list[tuple[float, float, str]] = []
    for name in BOTH:
        told = sh(
            lab, name, f"journalctl --quiet --output json --since @{since:.3f} --unit {UNIT}.service"
        ).splitlines()
        mine: list[tuple[float, float, str]] = []
        for line in map(json.loads, told):
            moment, words = int(line["__REALTIME_TIMESTAMP"]) / 1e6, str(line["MESSAGE"])
            if words.startswith("Started "):
                mine.append((moment, float("inf"), name))
            elif words.startswith("Stopped "):
                mine = mine or [(since, 0.0, name)]  # it ran before
                mine[-1] = (mine[-1][0], moment, name)
        found += mine
    return sorted(found)


def asked(lab: Lab, container: str, port: int, body: dict[str, Any]) -> tuple[int, str]:
    """Status and body of an answer."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {MASTER_KEY}"}
    url = f"http://{lab.address(container)}:{port}/v1/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)  # http to our own bridge
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(request, timeout=180) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def team(lab: Lab, words: str = "go") -> tuple[int, Any]:
    """What the team says."""
    status, text = asked(lab, TEAM, 4100, {"model": "agent_team", "messages": [{"role": "user", "content": words}]})
    return status, json.loads(text)


def test_each_was_proved_in_its_turn_and_the_team_with_them(lab: Lab) -> None:
    assert lab.runs[0].checks == {f"{CHAT}/llama_cpp": True, f"{CODE}/llama_cpp": True, f"{TEAM}/agent_team": True}
    assert len(active(lab)) <= 1


def test_a_look_wakes_nobody_and_a_proof_that_may_wake_has_the_team_answer(lab: Lab) -> None:
    assert lab.provision("plan", "--detailed-exitcode").code == 0
    serving = active(lab)
    looked = lab.succeeded("verify", "--json")
    checks = {line["target"]: line for line in looked.lines if line["type"] == "check"}
    assert checks[f"{TEAM}/agent_team"]["not_asked"], "one of its engines is asleep"
    assert checks[f"{TEAM}/agent_team"]["ok"] is None
    assert active(lab) == serving
    proved = lab.succeeded("verify", "--wake", "--json")
    checks = {line["target"]: line for line in proved.lines if line["type"] == "check"}
    assert checks[f"{TEAM}/agent_team"]["ok"] is True


def test_a_hand_over_to_the_other_engine_is_a_turn(lab: Lab) -> None:
    for name, role in ((CHAT, "chat"), (CODE, "code")):
        for module, where in ((rule_engine, "tests/doubles/openai/rule_engine.py"), (team_in_turns, "serve.py")):
            put(lab, name, f"{FOLDER}/{where}", Path(str(module.__file__)).read_text(encoding="utf-8"))
        runs_as(lab, name, by_rule(role))
        sh(lab, name, f"systemctl restart {UNIT}")  # it waits for its turn
    assert active(lab) == [CODE]
    began = time.time()
    status, answer = team(lab)
    took = time.time() - began
    assert status == 200, answer
    message = answer["choices"][0]["message"]
    assert message["content"] == "chat(code(chat asks))"
    assert message["reasoning_content"].splitlines() == [
        "coordinator → coder: chat asks",
        "coder → coordinator: code(chat asks)",
    ]
    assert took < 120, "most_seconds"
    ran = runs(lab, began - 60)
    assert [name for begun, _, name in ran if begun > began] == [CHAT, CODE, CHAT]
    assert [one for one, other in pairwise(ran) if other[0] < one[1]] == [], "two at once"
    assert active(lab) == [CHAT]


def test_a_turn_that_cannot_be_had_is_told_with_whose_engine_did_not_come(lab: Lab) -> None:
    """The coordinator's engine is at a long answer of somebody else, for longer than the member's ``queue``."""
    stay = {"model": "small", "stream": True, "messages": [{"role": "user", "content": team_in_turns.STAY}]}
    stayed: list[tuple[int, str]] = []
    other = threading.Thread(target=lambda: stayed.append(asked(lab, CHAT, 8080, stay)), daemon=True)
    other.start()
    wait_until(lambda: '"is_processing": true' in sh(lab, CHAT, LOOK), poll_s=0.5)
    status, answer = team(lab)
    assert (status, answer["error"]["code"]) == (502, "engine_failed"), answer
    words = "The engine of coder (other) does not answer: HTTP 503: The engine is busy or is being exchanged."
    assert answer["error"]["message"].startswith(words), answer
    assert CODE not in active(lab), "the other one may finish its answer"
    other.join(300)
    assert stayed[0][0] == 200
    assert "chat(stay)" in spoken(stayed[0][1]), "it was not cut"
    status, answer = team(lab)
    assert (status, answer["choices"][0]["message"]["content"]) == (200, "chat(code(chat asks))"), answer


def test_an_engine_that_does_not_start_is_told_and_the_other_one_gets_the_card_again(lab: Lab) -> None:
    runs_as(lab, CODE, "/bin/false")
    began = time.time()
    status, answer = team(lab)
    assert (status, answer["error"]["code"]) == (502, "engine_failed"), answer
    assert answer["error"]["message"].startswith("The engine of coder (other) does not answer: HTTP 50"), answer
    assert time.time() - began < 120, "most_seconds"
    runs_as(lab, CODE, by_rule("code"))
    sh(lab, CODE, f"systemctl reset-failed {UNIT} && systemctl start {UNIT}")  # it counts as one that was ended by hand
    status, answer = team(lab)
    assert (status, answer["choices"][0]["message"]["content"]) == (200, "chat(code(chat asks))"), answer


def test_without_the_rule_all_is_as_the_file_says(lab: Lab) -> None:
    for name in BOTH:
        sh(lab, name, f"rm -r {DROP_IN} {FOLDER} && systemctl daemon-reload && systemctl restart {UNIT}")
    lab.succeeded("up", "--yes")
    assert lab.provision("plan", "--detailed-exitcode").code == 0
    lab.shows_none_of("CANARY")


LOOK = "python3 -c 'import urllib.request as u; print(u.urlopen(\"http://127.0.0.1:18080/slots\").read().decode())'"


def spoken(text: str) -> str:
    """What a stream said in all of its parts."""
    events = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")]
    deltas = [event["choices"][0]["delta"] for event in map(json.loads, events) if event["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)
