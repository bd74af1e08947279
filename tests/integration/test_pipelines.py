"""The launcher of role ``pipelines`` before the stand-in of upstream's server, and before the real one.

``PROVISION_TEST_PIPELINES`` names where its archives are asked for, in the place of GitHub; where it cannot be had,
its tests are skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.doubles.openai.rule_engine import Question, Reply, RuleEngine, last_text, serving
from tests.pipelines_server import FETCH_S, ROLE, pipelines_serving, pipelines_started, pipelines_venv
from tests.pipelines_source import FETCH, STANDIN
from tests.waiting import wait_until

pytestmark = [pytest.mark.network, pytest.mark.slow]
PIPELINES = ROLE.parents[1] / "molecule/pipelines/files/pipelines"
TEAM, MANY, SETTINGS = (
    (PIPELINES / name).read_text(encoding="utf-8") for name in ("team.py", "many.py", "settings.py")
)
BROKEN = 'class Pipeline:\n    def __init__(self):\n        self.engine = nobody["key"]\n'
ENDLESS = """
class Pipeline:
    def pipe(self, user_message, model_id, messages, body):
        yield "half"
        raise ValueError
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pipelines_venv(tmp_path_factory.mktemp("pipelines") / "venv")


@pytest.fixture(scope="module", params=["standin", "upstream"])
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a server."""
    folder = tmp_path_factory.mktemp("source") / "source"
    if request.param == "standin":
        shutil.copytree(STANDIN, folder)
        return folder
    said = yaml.safe_load((ROLE / "defaults/main.yml").read_text(encoding="utf-8"))
    address = os.environ.get("PROVISION_TEST_PIPELINES") or said["pipelines_source"]
    archive = f"{address}/archive/{said['pipelines_commit']}.tar.gz"
    command = [sys.executable, str(FETCH), archive, said["pipelines_source_sha256"], str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=FETCH_S)
    if done.returncode:
        pytest.skip(f"upstream's source cannot be had: {done.stderr.strip()}")
    return folder


def test_a_team_asks_an_engine_of_the_lab_and_answers_streamed_and_whole(
    python: Path, source: Path, tmp_path: Path
) -> None:
    def reply(asked: Question) -> Reply:
        return Reply(f"[{last_text(asked)}]")

    with serving(engine := RuleEngine(reply, key="key-of-the-engine")):
        told = {"url": engine.url, "api_key": "key-of-the-engine", "model": "tiny"}
        connect = {"LAB_CONNECT": json.dumps({"llama/llama_cpp": told})}
        with pipelines_serving(python, source, tmp_path, {"team": TEAM}, connect) as server:
            status, whole = server.ask("team", "How fast is light?", stream=False)
            unsaid = server.ask(
                "team", "How fast is light?"
            )  # upstream alone streams then; LiteLLM leaves the word out
            proof = server.proof("team")
    expected = "[How fast is light?\n\nWhat was found: [How fast is light?]]"
    assert (status, json.loads(whole)["choices"][0]["message"]["content"]) == (200, expected)
    assert (unsaid[0], json.loads(unsaid[1])["choices"][0]["message"]["content"]) == (200, expected)
    assert (proof["status"], proof["ended"], proof["problem"]) == (200, True, "")
    assert proof["text"] == expected.replace("How fast is light?", "Say hello.")
    assert set(engine.keys) == {"Bearer key-of-the-engine"}
    assert "How fast is light" not in "\n".join(server.lines), "what people ask is in the journal"


def test_what_upstream_leaves_open_is_closed(python: Path, source: Path, tmp_path: Path) -> None:
    with pipelines_serving(python, source, tmp_path, {"settings": SETTINGS}) as server:
        assert server.get("/v1/models")[0] == 200
        for key in (None, "wrong", "0p3n-w3bu!"):
            body = {"model": "settings", "messages": [{"role": "user", "content": "go"}]}
            assert server.get("/v1/chat/completions", method="POST", key=key, body=body)[0] == 401
            assert server.get("/v1/models", key=key)[0] == 401
        closed = [
            ("GET", "/settings/valves"),
            ("GET", "/v1/settings/valves"),
            ("POST", "/v1/settings/valves/update"),
            ("POST", "/settings/filter/inlet"),
            ("POST", "/v1/pipelines/add"),
            ("POST", "/pipelines/upload"),
            ("DELETE", "/pipelines/delete"),
            ("POST", "/v1/pipelines/reload"),
            ("POST", "/chat/completions"),
            ("GET", "/openapi.json"),
            ("GET", "/docs"),
        ]
        for method, path in closed:
            for key in (None, "key-of-the-pipelines"):
                status = server.get(path, method=method, key=key, body={} if method == "POST" else None)[0]
                assert status == 404, (method, path)
        assert server.get("/health", key=None) == (200, '{"status":true}')


def test_the_server_by_itself_answers_strangers_which_is_why_a_guard_stands_there(
    python: Path, source: Path, tmp_path: Path
) -> None:
    with pipelines_serving(python, source, tmp_path, {"settings": SETTINGS}) as server:
        program = (
            "import sys, main; from fastapi.testclient import TestClient\n"
            "with TestClient(main.app) as client: print(client.get('/v1/settings/valves').text)\n"
        )
        environment = {"PIPELINES_DIR": str(tmp_path / "served"), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [python, "-c", program], cwd=source, env=environment, capture_output=True, text=True, check=True, timeout=60
        )
        assert '"word":"a word of its own"' in done.stdout
        assert "a word of its own" not in server.get("/v1/settings/valves", key=None)[1]


def test_each_file_is_offered_by_its_own_name(python: Path, source: Path, tmp_path: Path) -> None:
    with pipelines_serving(python, source, tmp_path, {"many": MANY, "settings": SETTINGS}) as server:
        listed = {one["name"]: one["type"] for one in json.loads(server.get("/v1/pipelines")[1])["data"]}
        offered = {one["id"] for one in json.loads(server.get("/v1/models")[1])["data"]}
        assert server.proof("many.loud")["text"] == "SAY HELLO."
        assert server.proof("nobody")["status"] == 404
    assert listed == {"many": "manifold", "settings": "pipe"}
    assert offered == {"many.loud", "many.quiet", "settings"}


def test_an_answer_that_is_cut_is_no_proof(python: Path, source: Path, tmp_path: Path) -> None:
    with pipelines_serving(python, source, tmp_path, {"endless": ENDLESS}) as server:
        told = server.proof("endless")
    assert not told["ended"]
    assert told["problem"]


def test_one_that_cannot_be_loaded_ends_the_start_with_its_name_line_and_reason(
    python: Path, source: Path, tmp_path: Path
) -> None:
    pipelines = {"settings": SETTINGS, "broken": BROKEN}
    with pipelines_started(python, source, tmp_path, pipelines) as server:
        wait_until(lambda: server.process.poll() is not None)
    assert server.process.returncode == 1
    last = [line for line in server.lines if line][-1]
    assert last == (
        "Unable to start the Pipelines server: broken.py, line 3 could not be loaded: "
        "NameError: name 'nobody' is not defined"
    )
    assert sorted(path.name for path in (tmp_path / "served").glob("*.py")) == ["broken.py", "settings.py"]
