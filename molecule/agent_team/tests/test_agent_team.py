"""A team behind its switch: an answer that needs two members, and the order of hand-overs in the journal."""

from __future__ import annotations

import json
from pathlib import Path

from testinfra.host import Host

from tests.case_files import read_case

VARS = read_case(Path(__file__).resolve().parents[1] / "vars.yml")
ASK = """
import json, sys, urllib.request
key, question = json.load(sys.stdin)
headers = {"Authorization": "Bearer " + key, "Content-Type": "application/json"}
request = urllib.request.Request("http://127.0.0.1:4100/v1/chat/completions", json.dumps(question).encode(), headers)
print(urllib.request.urlopen(request, timeout=60).read().decode())
"""


def test_an_answer_needs_two_members_and_the_journal_has_their_order(host: Host) -> None:
    question = {"model": "agent_team", "messages": [{"role": "user", "content": "Who knows what?"}]}
    told = json.dumps([VARS["agent_team_api_key"], question])
    answer = json.loads(host.check_output("printf %%s %s | python3 -c %s", told, ASK))
    assert answer["choices"][0]["message"]["content"] == "researcher was asked, coder was asked"
    journal = host.check_output("journalctl -u agent-team -o cat")
    lines = [json.loads(line.removeprefix("transcript ")) for line in journal.splitlines() if "transcript " in line]
    way = [(line["giver"], line["taker"]) for line in lines if line["question"] == answer["id"]]
    assert way == [
        ("coordinator", "researcher"),
        ("researcher", "coordinator"),
        ("coordinator", "coder"),
        ("coder", "coordinator"),
    ]


def test_keys_are_read_by_root_alone_and_stand_in_no_other_file(host: Host) -> None:
    secrets = host.file("/etc/agent_team/secrets.env")
    assert (secrets.mode, secrets.user) == (0o600, "root")
    page = json.loads(host.check_output("cat /etc/agent_team/team.json"))
    assert "canary" not in json.dumps(page)
    assert page["coordinator"]["instructions"] == VARS["agent_team_coordinator"]["instructions"]
