"""Pipelines behind their switch: an answer made of an engine's, what is closed, and a file that cannot be loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from testinfra.host import Host

from tests.case_files import read_case

SCENARIO = Path(__file__).resolve().parents[1]
VARS = read_case(SCENARIO / "vars.yml")
SERVED = "/etc/pipelines/served"
ASK = """
import json, sys, urllib.error, urllib.request
key, method, path, body = json.load(sys.stdin)
headers = {"Content-Type": "application/json"} | ({"Authorization": "Bearer " + key} if key else {})
data = json.dumps(body).encode() if body is not None else None
request = urllib.request.Request("http://127.0.0.1:9099" + path, data, headers, method=method)
try:
    answer = urllib.request.urlopen(request, timeout=60)
except urllib.error.HTTPError as error:
    answer = error
print(json.dumps([answer.status, answer.read().decode()]))
"""


def ask(host: Host, method: str, path: str, body: Any = None, key: str = VARS["pipelines_api_key"]) -> tuple[int, str]:
    """Status and text of an answer at the service's port."""
    told = json.dumps([key, method, path, body])
    status, text = json.loads(host.check_output("printf %%s %s | python3 -c %s", told, ASK))
    return status, text


def said(host: Host, model: str) -> str:
    """What a pipeline answers."""
    question = {"model": model, "stream": False, "messages": [{"role": "user", "content": "Who?"}]}
    status, text = ask(host, "POST", "/v1/chat/completions", question)
    assert status == 200, text
    return str(json.loads(text)["choices"][0]["message"]["content"])


def test_pipelines_answer_and_have_their_environment_as_it_was_written(host: Host) -> None:
    assert said(host, "team") == "[Who?\n\nWhat was found: [Who?]]"
    assert said(host, "many.loud") == "WHO?"
    told = json.loads(said(host, "environment"))
    assert told["WORD"] == VARS["pipelines_environment"]["WORD"]
    assert told["FAR_KEY"] == VARS["pipelines_secrets"][0]["value"]
    assert json.loads(told["LAB_CONNECT"]) == {"llama/llama_cpp": VARS["pipelines_connect"][0]}


def test_what_people_ask_is_not_in_the_journal(host: Host) -> None:
    assert "Who?" not in host.check_output("journalctl -u pipelines -o cat")


def test_the_switch_passes_questions_and_the_list_of_models_alone(host: Host) -> None:
    question = {"model": "team", "messages": [{"role": "user", "content": "Who?"}]}
    assert ask(host, "GET", "/v1/models")[0] == 200
    assert ask(host, "POST", "/v1/chat/completions", question, key="")[0] == 401
    closed = (
        *("/v1/pipelines/add", "/pipelines/upload", "/v1/pipelines/reload", "/chat/completions"),
        *("/v1/team/valves/update", "/team/filter/inlet"),
    )
    assert {path: ask(host, "POST", path, {})[0] for path in closed} == dict.fromkeys(closed, 404)
    for path in ("/", "/v1/pipelines", "/v1/team/valves", "/openapi.json"):
        assert ask(host, "GET", path)[0] == 404, path


def test_the_server_cannot_write_to_what_it_runs(host: Host) -> None:
    for path in (SERVED, f"{SERVED}/team.py", f"{SERVED}/team/valves.json", "/opt/pipelines/source/main.py"):
        assert host.run("runuser -u pipelines -- test -w %s", path).rc != 0, path
    text = (SCENARIO / "files/pipelines/told.py").read_text(encoding="utf-8")
    assert host.check_output(f"cat {SERVED}/told.py") == text.strip()


def test_keys_are_read_by_root_alone_and_stand_in_no_other_file(host: Host) -> None:
    secrets = host.file("/etc/pipelines/secrets.env")
    assert (secrets.mode, secrets.user) == (0o600, "root")
    assert "canary" not in host.check_output("cat /etc/pipelines/pipelines.json")


def test_one_that_cannot_be_loaded_stops_the_server_and_says_which_and_why(host: Host) -> None:
    text = host.check_output(f"cat {SERVED}/many.py")
    try:
        host.check_output("printf 'class Pipeline:\\n    word = nobody\\n' > %s", f"{SERVED}/many.py")
        host.run("systemctl restart pipelines")
        waited = "for i in $(seq 120); do systemctl is-failed -q pipelines && break; sleep 0.5; done"
        host.check_output(waited)
        assert host.run("systemctl is-failed pipelines").rc == 0
        journal = host.check_output("journalctl -u pipelines -o cat")
        assert "many.py, line 2 could not be loaded: NameError: name 'nobody' is not defined" in journal
        assert not host.file(f"{SERVED}/failed").exists
    finally:
        host.check_output("printf %%s %s > %s", f"{text}\n", f"{SERVED}/many.py")
        host.check_output("systemctl reset-failed pipelines; systemctl start pipelines")
        ready = "for i in $(seq 120); do curl -fs http://127.0.0.1:19099/health && exit 0; sleep 0.5; done; exit 1"
        host.check_output(
            ready.replace("curl -fs", "python3 -c 'import sys,urllib.request as r; r.urlopen(sys.argv[1])'")
        )
