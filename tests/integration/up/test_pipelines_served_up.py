"""Pipelines where people meet them: a real gateway and a real Open WebUI offer what they answer.

The server is a stand-in with upstream's routes and habits. ``PROVISION_TEST_PIPELINES`` names where upstream's own
archive is asked for in the place of it, as a container of the lab reaches it.
"""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.up.bridged_files import files_on_bridge
from tests.integration.up.quickstart_lab import MASTER_KEY, Lab
from tests.lab.incus import Lab as Incus
from tests.pipelines_source import STANDIN, standin_in

pytestmark = [pytest.mark.incus, pytest.mark.network, pytest.mark.slow]

NAME, SOURCE_PORT = "served", 18884
TEAM = STANDIN.parent / "pipelines/team.py"
ADMIN, PASSWORD = "penny@home.example", "CANARY3-{{7*7}}-$x"
PIPES_KEY = "CANARY-PIPES-{{7*7}}-0123456789"
GATEWAY, CHAT = ("served-gateway", 4000), ("served-chat", 8090)
REAL = os.environ.get("PROVISION_TEST_PIPELINES", "")
FILE = """
name: served
models:
  tiny: {{ source: "builtin:tiny", context: 4096 }}
containers:
  served-llama: {{ memory: 3GiB, services: {{ llama_cpp: {{ model: tiny, api_key: !secret engine_key }} }} }}
  served-pipes:
    services:
      pipelines:
        {source}
        api_key: !secret pipes_key
        pipelines: [team.py]
        connect: [served-llama/llama_cpp]
        asked: true
  served-gateway:
    services:
      litellm:
        master_key: !secret master_key
        aliases: {{ fast: [tiny], team: [served-pipes/pipelines] }}
  served-chat:
    services:
      open_webui:
        admin: {admin}
        password: !secret webui_password
        connect: [served-gateway/litellm, served-pipes/pipelines]
"""


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab, up: what its first ``up`` said is its first run."""
    lab = Lab(tmp_path_factory.mktemp(NAME), incus_lab.environment, "debian/12", "debian/12", name=NAME)
    text = TEAM.read_text(encoding="utf-8").replace("llama/llama_cpp", "served-llama/llama_cpp")
    (lab.folder / "team.py").write_text(text, encoding="utf-8")
    served = tmp_path_factory.mktemp("source")
    made = standin_in(served)
    with files_on_bridge(lab, served, SOURCE_PORT) as address:
        stand_in = {"source": address, "commit": made.commit, "source_sha256": made.source_sha256}
        said = {"source": REAL} if REAL else stand_in
        lab.write(FILE.format(admin=ADMIN, source="\n        ".join(f'{k}: "{v}"' for k, v in said.items())))
        with (lab.folder / "secrets.env").open("a", encoding="utf-8") as file:
            file.write(f"webui_password={PASSWORD}\npipes_key={PIPES_KEY}\n")
        with lab.brought_up():
            yield lab


def asked(lab: Lab, place: tuple[str, int], path: str, token: str = "", body: object = None) -> bytes:
    """What somebody answers, to its end."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    content = json.dumps(body).encode() if body is not None else None
    container, port = place
    request = urllib.request.Request(f"http://{lab.address(container)}:{port}{path}", content, headers)
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(request, timeout=300) as answer:
        whole: bytes = answer.read()
    return whole


def question(model: str, *, stream: bool) -> dict[str, Any]:
    """A short question; the engine's model is random, so that any text is an answer."""
    return {"model": model, "stream": stream, "messages": [{"role": "user", "content": "Say hello."}]}


def streamed(answer: bytes) -> str:
    """The text of a streamed answer that came to its end."""
    lines = [line for line in answer.decode().splitlines() if line.startswith("data: ")]
    assert lines[-1] == "data: [DONE]", answer[-500:]
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk.get("choices") or () if "delta" in choice]
    return "".join(delta.get("content") or "" for delta in deltas)


def test_all_of_them_are_proved_and_the_next_run_has_nothing_to_do(lab: Lab) -> None:
    checks = lab.runs[0].checks
    places = ("llama/llama_cpp", "pipes/pipelines", "gateway/litellm", "chat/open_webui")
    assert checks == {f"{NAME}-{place}": True for place in places}
    lab.succeeded("plan", "--detailed-exitcode")


def test_a_gateway_offers_a_pipeline_whole_and_streamed(lab: Lab) -> None:
    whole = json.loads(asked(lab, GATEWAY, "/v1/chat/completions", MASTER_KEY, question("team", stream=False)))
    assert whole["choices"][0]["message"]["content"].strip()
    assert streamed(asked(lab, GATEWAY, "/v1/chat/completions", MASTER_KEY, question("team", stream=True))).strip()


def test_people_find_it_in_their_chat_and_are_answered(lab: Lab) -> None:
    signed_in = asked(lab, CHAT, "/api/v1/auths/signin", body={"email": ADMIN, "password": PASSWORD})
    token = json.loads(signed_in)["token"]
    models = {model["id"] for model in json.loads(asked(lab, CHAT, "/api/models", token))["data"]}
    assert models >= {"fast", "team"}, models
    assert streamed(asked(lab, CHAT, "/api/chat/completions", token, question("team", stream=True))).strip()


def test_no_secret_was_seen(lab: Lab) -> None:
    lab.shows_none_of("CANARY")
