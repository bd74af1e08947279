"""Engines of embeddings, of an order of documents and of thoughts, and a gateway, on a real Incus: each as such.

The tests of this module build on each other, in their order.
"""

from __future__ import annotations

import json
import math
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.integration.up.quickstart_lab import CANARIES, ENGINE_KEY, MASTER_KEY, Answer, Lab
from tests.lab.incus import Lab as Incus
from tests.lab_files import lab_text

pytestmark = [pytest.mark.incus]

NAME = "vectors"
FILE = lab_text("embeddings")
ENGINES = {"embedding": ("vectors-embeds", ENGINE_KEY), "rerank": ("vectors-ranks", ""), "chat": ("vectors-chats", "")}
QUESTION = "What is the capital of France?"
DOCUMENTS = ["Bread is baked from flour, water and salt.", "Paris is the capital of France.", "The moon moves."]
ASKED: Mapping[str, tuple[str, dict[str, Any]]] = {
    "embedding": ("/v1/embeddings", {"input": [QUESTION, DOCUMENTS[0]]}),
    "rerank": ("/v1/rerank", {"query": QUESTION, "documents": DOCUMENTS}),
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}),
}
ALIASES = {"embedding": "find", "rerank": "order", "chat": "fast"}


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab, up: its first ``up`` has proved vectors, an order and the gateway."""
    lab = Lab(tmp_path_factory.mktemp(NAME), incus_lab.environment, "debian/12", "debian/12", name=NAME)
    lab.write(FILE)
    with lab.brought_up():
        yield lab


def asked(lab: Lab, engine: tuple[str, str], kind: str, model: str, port: int = 8080) -> Answer:
    """What a service answers to the question of a kind, over the network."""
    (container, key), (path, fields) = engine, ASKED[kind]
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    url = f"http://{lab.address(container)}:{port}{path}"
    request = urllib.request.Request(url, json.dumps({"model": model, **fields}).encode(), headers)  # our own bridge
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(request, timeout=120) as answer:
            return Answer(answer.status, json.load(answer), dict(answer.headers))
    except urllib.error.HTTPError as error:
        return Answer(error.code, {"error": error.read().decode()}, dict(error.headers))


def is_well(kind: str, answer: Answer) -> bool:
    """Whether it is an answer of that kind."""
    if answer.status != 200:
        return False
    if kind == "chat":
        message = answer.body["choices"][0]["message"]
        return bool(message["content"] or message["reasoning_content"])
    if kind == "embedding":
        vectors = [entry["embedding"] for entry in answer.body["data"]]
        return len(vectors) == 2 and all(abs(math.hypot(*vector) - 1) < 1e-3 for vector in vectors)
    results = answer.body["results"]
    return len(results) == len(DOCUMENTS) and results[0]["index"] == 1


def test_all_of_it_was_proved(lab: Lab) -> None:
    checks = lab.runs[0].checks
    engines = {f"{container}/llama_cpp": True for container, _ in ENGINES.values()}
    assert checks == {**engines, "vectors-gateway/litellm": True}


@pytest.mark.parametrize("kind", ASKED)
def test_the_gateway_offers_it_as_such(lab: Lab, kind: str) -> None:
    answer = asked(lab, ("vectors-gateway", MASTER_KEY), kind, ALIASES[kind], port=4000)
    assert is_well(kind, answer), answer.body


def said(lab: Lab, alias: str) -> tuple[str, str]:
    """The thought and the answer of an alias."""
    fields = {"model": alias, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 24, "temperature": 0}
    url = f"http://{lab.address('vectors-gateway')}:4000/v1/chat/completions"
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {MASTER_KEY}"}
    request = urllib.request.Request(url, json.dumps(fields).encode(), headers)  # our own bridge
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=120) as answer:
        message = json.load(answer)["choices"][0]["message"]
    return str(message.get("reasoning_content") or ""), str(message["content"] or "")


def test_of_two_aliases_of_one_engine_one_thinks_and_the_other_does_not(lab: Lab) -> None:
    """The model's template has it think unless it is told not to, and it never ends a thought by itself."""
    thought, answer = said(lab, "talk")
    assert (thought, bool(answer)) == ("", True)
    thought, answer = said(lab, "batch")
    assert 0 < len(thought) < 24  # the budget ends it
    assert answer
    thought, answer = said(lab, "fast")
    assert (bool(thought), answer) == (True, "")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", ASKED)
def test_an_engine_answers_what_it_is_for_and_nothing_else(lab: Lab, kind: str, engine: str) -> None:
    answer = asked(lab, ENGINES[engine], kind, "any")
    if kind == engine:
        assert is_well(kind, answer), answer.body
    else:
        assert answer.status == 404, answer.body


def test_a_text_as_long_as_the_context_gets_its_vector(lab: Lab) -> None:
    words = "a " * 900  # two tokens each, more than a batch of 512 holds
    url = f"http://{lab.address('vectors-embeds')}:8080/v1/embeddings"
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {ENGINE_KEY}"}
    request = urllib.request.Request(url, json.dumps({"input": words}).encode(), headers)  # our own bridge
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=120) as answer:
        assert json.load(answer)["usage"]["prompt_tokens"] > 512


def test_verify_proves_it_again(lab: Lab) -> None:
    lab.succeeded("verify", "--json")


def test_a_full_up_changes_nothing(lab: Lab) -> None:
    lab.succeeded("up", "--yes", "--full")
    newest = max((lab.folder / ".provision" / "logs").glob("*-site.log"), key=lambda file: file.stat().st_mtime)
    recap = [line for line in newest.read_text(encoding="utf-8").splitlines() if "changed=" in line]
    assert len(recap) == 4
    assert [line for line in recap if "changed=0" not in line] == []


def test_a_server_that_is_changed_is_tried_beside_the_one_that_serves(lab: Lab) -> None:
    lab.write(FILE.replace("parallel: 2", "parallel: 1"))
    lab.succeeded("up", "--yes", "--json")
    assert is_well("rerank", asked(lab, ENGINES["rerank"], "rerank", "ranks"))


def test_an_alias_whose_engine_does_not_think_fails_the_gateways_proof(lab: Lab) -> None:
    """``builtin:tiny`` has a chat template that knows no thoughts."""
    lab.write(FILE.replace("builtin:tiny-thinking", "builtin:tiny"))
    lab.succeeded("up", "--yes")
    found = lab.provision("verify")
    assert found.code == 3, found.out[-4000:] + found.err[-4000:]
    assert "batch: it is to think (`thinking: on`), and no thought came" in " ".join((found.out + found.err).split())
    lab.write(FILE)
    lab.succeeded("up", "--yes")


def test_a_model_that_orders_nothing_is_refused_before_anything_is_touched(lab: Lab) -> None:
    lab.write(FILE.replace("model: ranks, rerank", "model: embeds, rerank"))
    refused = lab.provision("validate")
    lab.write(FILE)
    assert refused.code != 0
    assert "its file says pooling mean, and that of a reranker says rank" in refused.out + refused.err


def test_no_key_was_seen(lab: Lab) -> None:
    said = "".join(ran.out + ran.err for ran in lab.runs)
    assert not any(canary in said for canary in CANARIES)
    assert lab.arguments_seen == set()
