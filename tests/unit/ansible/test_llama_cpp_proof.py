"""What judges role ``llama_cpp``: embeddings and orders of documents, and what role and modules say twice."""

from __future__ import annotations

import io
import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import ThreadingHTTPServer
from typing import Any

import pytest
import yaml

from provisioner.ansible.modules import provision_card_memory, provision_engine_verdict
from provisioner.inside import agent
from provisioner.values import paths
from tests.http_servers import HERE, QuietHandler, served
from tests.scenario_programs import module_at

ROLE = paths.roles() / "llama_cpp"
VARIABLES: dict[str, Any] = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))


def test_the_unit_asks_the_cards_as_the_proof_does_later() -> None:
    assert VARIABLES["__llama_cpp_card_query"].split() == list(provision_card_memory.QUERY)
    unit = (ROLE / "templates/llama-server.service.j2").read_text(encoding="utf-8")
    assert 'echo "$$INVOCATION_ID"; timeout 60 {{ __llama_cpp_card_query }}' in unit


def test_the_limit_of_what_can_be_measured_is_one_number() -> None:
    assert VARIABLES["__llama_cpp_provable_bytes"] == provision_engine_verdict.PROVABLE


def test_the_agent_reads_where_the_proof_writes() -> None:
    assert VARIABLES["__llama_cpp_proofs"] == agent.PROOFS


@pytest.mark.parametrize("words", ["offloaded 33/33 layers to GPU", "CUDA0 model buffer size =  4403.49 MiB"])
def test_the_journal_is_asked_for_all_that_is_judged(words: str) -> None:
    asked = VARIABLES["__llama_cpp_device_words"].replace(
        "{{ __llama_cpp_fallback_words }}", VARIABLES["__llama_cpp_fallback_words"]
    )
    assert re.search(asked, words)
    fallback = VARIABLES["__llama_cpp_fallback_words"].split("|")
    assert [one for one in fallback if not provision_engine_verdict.FALLBACK.search(one)] == []


PROOF = module_at(paths.roles() / "llama_cpp" / "programs" / "proof.py")
SCORES = (-8.0, 4.0, -6.0)
LONG, OTHER = [0.6, 0.8, 0.0], [0.0, 0.6, 0.8]


def embeddings(*vectors: Any) -> dict[str, Any]:
    return {"data": [{"index": place, "embedding": vector} for place, vector in enumerate(vectors)]}


def ranks(scores: Any) -> dict[str, Any]:
    results = [{"index": place, "relevance_score": score} for place, score in enumerate(scores)]
    return {"results": sorted(results, key=lambda one: -one["relevance_score"])}


def moved(scores: Any) -> Any:
    return [scores[place] for place in PROOF.OTHER_ORDER]


def test_vectors_that_are_well() -> None:
    assert PROOF.embedding_problem(embeddings(LONG, OTHER, LONG)) == ""


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (embeddings(LONG, OTHER), "of 3 texts it gave 2 vectors"),
        (embeddings(LONG, OTHER, [1.0, 0.0]), "its vectors have 2 and 3 numbers"),
        (embeddings([1.0], [1.0], [1.0]), "its vectors have 1 numbers"),
        (embeddings(LONG, [math.nan, 0.6, 0.8], LONG), "a number of its vectors is none"),
        (embeddings(LONG, [None, 0.6, 0.8], LONG), "it gave no vectors"),
        (embeddings(LONG, [0.0, 1.2, 1.6], LONG), "its vectors are not 1 long but 1.0000, 2.0000, 1.0000"),
        (embeddings([0.0] * 3, [0.0] * 3, [0.0] * 3), "its vectors are not 1 long"),
        (embeddings(LONG, OTHER, OTHER), "one text, given twice, got two vectors (their cosine is 0.4800)"),
        (embeddings(LONG, LONG, LONG), "two texts got one vector (their cosine is 1.000000)"),
        ({"data": []}, "of 3 texts it gave 0 vectors"),
        ({"error": "no"}, "it gave no vectors"),
        ([], "it gave no vectors"),
    ],
)
def test_vectors_that_are_none(answer: Any, words: str) -> None:
    assert PROOF.embedding_problem(answer).startswith(words)


def test_an_order_that_is_well() -> None:
    assert PROOF.rank_problem(ranks(SCORES), ranks(moved(SCORES))) == ""


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ([8.0, -4.0, 6.0], f"to {PROOF.QUESTION!r} it finds {PROOF.DOCUMENTS[0]!r} a better answer than"),
        ([1.0, 1.0, 1.0], "all documents got the score 1.0000"),
        ([1.0, math.inf, 0.0], "a score is no number"),
        ([1.0, math.nan, 0.0], "a score is no number"),
        ([1.0, 2.0], "it gave no score for each document"),
    ],
)
def test_scores_that_are_none(scores: list[float], words: str) -> None:
    again = moved(scores) if len(scores) == len(PROOF.DOCUMENTS) else scores
    assert PROOF.rank_problem(ranks(scores), ranks(again)).startswith(words)


def test_scores_that_follow_the_place_of_a_document() -> None:
    assert PROOF.rank_problem(ranks(SCORES), ranks(SCORES)).startswith("scores depend on the order of the documents")


def test_scores_may_change_a_little_where_documents_are_computed_together() -> None:
    again = [score * 1.001 for score in moved(SCORES)]
    assert PROOF.rank_problem(ranks(SCORES), ranks(again)) == ""


def test_the_document_that_answers_comes_first() -> None:
    answer = ranks(SCORES)
    answer["results"].reverse()
    assert PROOF.rank_problem(answer, ranks(moved(SCORES))).startswith("the document with the highest score")


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[str, Any], tuple[int, Any]]], str]]:
    """A server that answers as a function says; gives its address."""
    with ExitStack() as stack:

        def start(answer: Callable[[str, Any], tuple[int, Any]]) -> str:
            class Handler(QuietHandler):
                def do_POST(self) -> None:
                    asked = json.loads(self.content())
                    status, content = answer(self.path, {**asked, "key": self.headers.get("Authorization")})
                    self.give(status, json.dumps(content).encode())

            server = stack.enter_context(served(ThreadingHTTPServer(HERE, Handler)))
            return f"http://127.0.0.1:{server.server_port}"

        yield start


def asked(url: str, kind: str, **more: Any) -> dict[str, Any]:
    told: dict[str, Any] = PROOF.told({"kind": kind, "url": url, "key": "", "model": "m", "timeout_s": 10, **more})
    return told


def test_a_reranker_is_asked_in_two_orders_and_timed(serve: Any) -> None:
    seen: list[Any] = []

    def answer(path: str, question: Any) -> tuple[int, Any]:
        seen.append((path, question["model"], question["key"]))
        known = dict(zip(PROOF.DOCUMENTS, SCORES, strict=True))
        scores = [known.get(document, 0.0) for document in question["documents"]]
        return 200, {**ranks(scores), "usage": {"prompt_tokens": 100}}

    told = asked(serve(answer), "rerank", key="sk-1", measured=2)
    assert (told["status"], told["problem"]) == (200, "")
    assert told["said"].endswith("first; the scores are -8.0000, 4.0000, -6.0000")
    assert [sorted(one) for one in told["timings"]] == [["prompt_per_second"]] * 2
    assert seen == [("/v1/rerank", "m", "Bearer sk-1")] * 4


def test_a_server_of_embeddings_is_asked_for_vectors_of_length_1(serve: Any) -> None:
    def answer(path: str, question: Any) -> tuple[int, Any]:
        assert (path, question["embd_normalize"], question["key"]) == ("/v1/embeddings", 2, None)
        by_text = {PROOF.TEXTS[0]: LONG}
        return 200, embeddings(*(by_text.get(text, OTHER) for text in question["input"]))

    said = "vectors of 3 numbers; the cosine of one text given twice is 1.0000, that of two texts 0.4800"
    assert asked(serve(answer), "embedding") == {"status": 200, "problem": "", "said": said, "timings": []}


def test_what_refuses_is_told_with_its_status(serve: Any) -> None:
    told = asked(serve(lambda *_: (503, {"error": "come again"})), "embedding", measured=3)
    assert told == {"status": 503, "problem": 'HTTP 503: {"error": "come again"}', "said": "", "timings": []}


def test_what_does_not_answer_is_told() -> None:
    told = asked("http://127.0.0.1:1", "rerank")
    assert told["status"] == 0
    assert told["problem"].startswith("HTTP none: ")


def test_it_reads_and_writes_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    question = {"kind": "rerank", "url": "http://127.0.0.1:1", "model": "m", "timeout_s": 1}
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(question)))
    PROOF.main()
    assert json.loads(capsys.readouterr().out)["status"] == 0
