"""The programs of role ``litellm``: what is served stands behind the guard, and a word is said through the gateway."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.openai.speech import Speech, speaking
from tests.scenario_programs import module_at

PROGRAM = Path(__file__).resolve().parents[3] / "roles/litellm/programs/launch.py"
PAGE = {"limits": {"body": 5, "headers": 2048}, "paths": ["/v1/models"], "open": ["/health/readiness"], "drain_s": 120}
UVICORN = """
import asyncio, importlib, json, sys


def run(app, **options):
    module, _, name = app.partition(":")
    guard = getattr(importlib.import_module(module), name)()
    connection = getattr(importlib.import_module(module), options["http"].partition(":")[2])
    statuses = []

    async def send(message):
        statuses.append(message.get("status"))

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    for path, key in (("/v1/models", b"sk-right"), ("/v1/models", b"sk-wrong"), ("/ui/", b"sk-right")):
        headers = [(b"authorization", b"Bearer " + key)]
        scope = {"type": "http", "method": "GET", "path": path, "headers": headers}
        asyncio.run(guard(scope, receive, send))
    served = {"statuses": [one for one in statuses if one], "options": options, "argv": sys.argv}
    served["connection"] = type(connection(config=1)).__mro__[1].__name__
    print(json.dumps(served))
"""
LITELLM = """
import uvicorn


def run_server():
    uvicorn.run(app=%r, host="127.0.0.1", workers=2)
"""
APPLICATION = """
async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
"""
H11 = """
class H11Protocol:
    def __init__(self, config):
        pass
"""


def start(folder: Path, serves: str) -> subprocess.CompletedProcess[str]:
    """Start it where LiteLLM and uvicorn are stand-ins; LiteLLM wants to serve ``serves``."""
    modules = {
        "uvicorn/__init__.py": UVICORN,
        "uvicorn/protocols/http/h11_impl.py": H11,
        "litellm/__init__.py": LITELLM % serves,
        "litellm/proxy/proxy_server.py": APPLICATION,
    }
    for name, text in modules.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    page = folder / "guard.json"
    page.write_text(json.dumps(PAGE), encoding="utf-8")
    command = [sys.executable, str(PROGRAM), str(page), "--config", "c.yaml"]
    environment = {"PYTHONPATH": str(folder), "LITELLM_MASTER_KEY": "sk-right"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


def test_what_it_serves_stands_behind_the_guard(tmp_path: Path) -> None:
    done = start(tmp_path, "litellm.proxy.proxy_server:app")
    assert done.returncode == 0, done.stderr
    served = json.loads(done.stdout)
    assert served["statuses"] == [200, 401, 404]
    assert served["argv"] == ["litellm", "--config", "c.yaml"]
    assert served["connection"] == "H11Protocol"
    assert served["options"] == {
        "factory": True,
        "host": "127.0.0.1",
        "workers": 2,
        "timeout_graceful_shutdown": 120,
        "http": "launch:connection",
        "h11_max_incomplete_event_size": 2048,
        "ws": "none",
    }


@pytest.mark.parametrize("serves", ["litellm.proxy.other:app", ""])
def test_what_it_does_not_know_it_does_not_serve(tmp_path: Path, serves: str) -> None:
    done = start(tmp_path, serves)
    assert done.returncode == 78
    assert "Unable to guard LiteLLM" in done.stderr
    assert done.stdout == ""


WORD = module_at(Path(__file__).resolve().parents[3] / "roles/litellm/programs/word.py")


def told(port: int) -> Any:
    """What the program tells of the gateway at that port."""
    asked = {"key": "sk-canary", "model": "tts", "voice": "af_sky", "timeout_s": 5}
    return WORD.told({**asked, "url": f"http://127.0.0.1:{port}"})


@pytest.mark.parametrize(
    ("speech", "answer"),
    [
        (Speech([(0.0, b"audio"), (0.05, b"more")]), {"status": 200, "bytes": 9, "said": ""}),
        (Speech(), {"status": 200, "bytes": 0, "said": ""}),
        (Speech([(0.0, b"x" * 999)], status=500), {"status": 500, "bytes": 0, "said": "x" * 300}),
        (Speech([(0.0, b"audio")], cut=True), {"status": 0, "bytes": 0}),
    ],
    ids=["speech", "nothing", "an error", "cut"],
)
def test_an_answer_is_told_as_it_was(speech: Speech, answer: dict[str, Any]) -> None:
    with speaking(speech):
        found = told(speech.port)
    assert {name: found[name] for name in answer} == answer
    assert speech.seen == [{"model": "tts", "input": "Hello.", "voice": "af_sky", "response_format": "mp3"}]


def test_nobody_is_no_answer() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        found = told(taken.getsockname()[1])
    assert (found["status"], found["bytes"]) == (0, 0)
    assert "refused" in found["said"]
