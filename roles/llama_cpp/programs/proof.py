"""Asks a llama-server that makes embeddings or orders documents, and judges what it answers.

Reads JSON: ``kind`` (``embedding`` or ``rerank``), ``url``, ``key``, ``model``, ``timeout_s``, and ``measured``: how
many requests are timed beside. The key is no argument, which all processes can read. Answers as JSON: ``status`` of
HTTP (0: nobody answered), ``problem`` (empty: all is well), ``said``, what it answered in words where all is well, and
``timings``: of each timed request the tokens a second.
"""

from __future__ import annotations

import http.client
import json
import math
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

PATHS = {"embedding": "/v1/embeddings", "rerank": "/v1/rerank"}
QUESTION = "What is the capital of France?"
ANSWER = "Paris is the capital of France."
DOCUMENTS = ("Bread is baked from flour, water and salt.", ANSWER, "The moon moves around the earth.")
"""The answer does not stand first, so that a server which leaves the order as it is fails."""
OTHER_ORDER = (2, 0, 1)
TEXTS = (QUESTION, DOCUMENTS[0], QUESTION)
EUCLIDEAN = 2
NORM_TOLERANCE = 1e-3
SAME, DIFFERENT = 0.999, 0.9999
"""Cosines: equal texts have more than the first, different ones less than the second."""
SCORE_TOLERANCE = 0.01
"""By how much a score may change, in parts of it where it is larger than 1, when documents are computed together."""
MEASURED_TEXTS = 8
LONGEST = 300
"""Characters of an error that are passed on."""


def main() -> None:
    """Ask and tell."""
    sys.stdout.write(json.dumps(told(json.load(sys.stdin))))


def told(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What the server answered, judged."""
    server = Server(asked)
    try:
        problem, said = proved_by(server)
        timings = [server.speed() for _ in range(asked.get("measured", 0))] if not problem else []
    except AnswerError as error:
        return {"status": error.status, "problem": str(error), "said": "", "timings": []}
    return {"status": 200, "problem": problem, "said": said, "timings": timings}


class AnswerError(Exception):
    """The server did not answer, or refused: ``status`` is 0 or what it said."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"HTTP {status or 'none'}: {said[:LONGEST]}")
        self.status = status


class Server:
    """The server that is asked."""

    def __init__(self, asked: Mapping[str, Any]) -> None:
        self.kind = asked["kind"]
        self._asked = asked
        # Proxies are for others than this machine.
        self._direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def answer(self, fields: Mapping[str, Any]) -> Any:
        """The JSON with which it answers a request."""
        headers = {"Content-Type": "application/json"}
        if self._asked.get("key"):
            headers["Authorization"] = f"Bearer {self._asked['key']}"
        body = json.dumps({"model": self._asked["model"], **fields}).encode()
        request = urllib.request.Request(f"{self._asked['url']}{PATHS[self.kind]}", body, headers)  # noqa: S310  # this machine's
        try:
            with self._direct.open(request, timeout=self._asked["timeout_s"]) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise AnswerError(error.code, error.read().decode(errors="replace")) from error
        except ValueError as error:
            raise AnswerError(200, f"no JSON: {error}") from error
        except (OSError, http.client.HTTPException) as error:
            raise AnswerError(0, str(error)) from error

    def embeddings(self, texts: Sequence[str]) -> Any:
        """Its answer to texts; the vectors are to be of length 1 whatever its clients get without a word."""
        return self.answer({"input": list(texts), "encoding_format": "float", "embd_normalize": EUCLIDEAN})

    def ranks(self, documents: Sequence[str]) -> Any:
        """Its answer to the question with these documents."""
        return self.answer({"query": QUESTION, "documents": list(documents)})

    def speed(self) -> dict[str, float]:
        """Tokens per second of a request with several texts, as the server itself counts tokens."""
        texts = [f"{ANSWER} {DOCUMENTS[0]} {DOCUMENTS[2]}"] * MEASURED_TEXTS
        began = time.monotonic()
        answer = self.embeddings(texts) if self.kind == "embedding" else self.ranks(texts)
        took = time.monotonic() - began
        return {"prompt_per_second": answer["usage"]["prompt_tokens"] / took}


def proved_by(server: Server) -> tuple[str, str]:
    """What is wrong with its answers, empty when nothing is; and then what they are, in words."""
    if server.kind == "embedding":
        answer = server.embeddings(TEXTS)
        problem = embedding_problem(answer)
        return problem, "" if problem else embedding_words(answer)
    first = server.ranks(DOCUMENTS)
    second = server.ranks([DOCUMENTS[place] for place in OTHER_ORDER])
    problem = rank_problem(first, second)
    return problem, "" if problem else rank_words(first)


def embedding_words(answer: Any) -> str:
    """What vectors came that are well."""
    entries = sorted(answer["data"], key=lambda entry: entry["index"])
    text, other, again = ([float(number) for number in entry["embedding"]] for entry in entries)
    return (
        f"vectors of {len(text)} numbers; the cosine of one text given twice is {_cosine(text, again):.4f}, "
        f"that of two texts {_cosine(text, other):.4f}"
    )


def rank_words(answer: Any) -> str:
    """What scores came that are well."""
    _, scores = _scores(answer)
    shown = ", ".join(f"{score:.4f}" for score in scores)
    return f"asked {QUESTION!r} it puts {ANSWER!r} first; the scores are {shown}"


def embedding_problem(answer: Any) -> str:
    """What is wrong with the vectors of ``TEXTS``; empty when nothing is."""
    try:
        entries = sorted(answer["data"], key=lambda entry: entry["index"])
        vectors = [[float(number) for number in entry["embedding"]] for entry in entries]
    except (KeyError, TypeError, ValueError):
        return f"it gave no vectors: {json.dumps(answer)[:LONGEST]}"
    if [entry["index"] for entry in entries] != list(range(len(TEXTS))):
        return f"of {len(TEXTS)} texts it gave {len(vectors)} vectors"
    lengths = sorted({len(vector) for vector in vectors})
    if len(lengths) > 1 or lengths[0] < 2:
        return f"its vectors have {' and '.join(map(str, lengths))} numbers"
    if not all(math.isfinite(number) for vector in vectors for number in vector):
        return "a number of its vectors is none"
    norms = [math.hypot(*vector) for vector in vectors]
    if any(abs(norm - 1) > NORM_TOLERANCE for norm in norms):
        return f"its vectors are not 1 long but {', '.join(f'{norm:.4f}' for norm in norms)}"
    return _likeness_problem(*vectors)


def _likeness_problem(text: Sequence[float], other: Sequence[float], again: Sequence[float]) -> str:
    same, different = _cosine(text, again), _cosine(text, other)
    if same <= SAME:
        return f"one text, given twice, got two vectors (their cosine is {same:.4f})"
    if different >= DIFFERENT:
        return f"two texts got one vector (their cosine is {different:.6f})"
    return ""


def _cosine(first: Sequence[float], second: Sequence[float]) -> float:
    return sum(one * another for one, another in zip(first, second, strict=True))


def rank_problem(first: Any, second: Any) -> str:
    """What is wrong with the scores of ``DOCUMENTS``, and of the same in the other order; empty when nothing is."""
    try:
        order, scores = _scores(first)
        _, moved = _scores(second)
    except (KeyError, TypeError, ValueError):
        return f"it gave no score for each document: {json.dumps([first, second])[:LONGEST]}"
    shown = ", ".join(f"{score:.4f}" for score in scores)
    if not all(map(math.isfinite, [*scores, *moved])):
        return f"a score is no number: {shown}"
    if max(scores) == min(scores):
        return f"all documents got the score {scores[0]:.4f}"
    again = [moved[OTHER_ORDER.index(place)] for place in range(len(DOCUMENTS))]
    if any(abs(one - other) > SCORE_TOLERANCE * max(1.0, abs(one)) for one, other in zip(scores, again, strict=True)):
        told_again = ", ".join(f"{score:.4f}" for score in again)
        return f"scores depend on the order of the documents: {shown}, and then {told_again}"
    return _order_problem(order, scores, shown)


def _order_problem(order: Sequence[int], scores: Sequence[float], shown: str) -> str:
    best = DOCUMENTS.index(ANSWER)
    if scores[best] != max(scores):
        worse = DOCUMENTS[scores.index(max(scores))]
        return f"to {QUESTION!r} it finds {worse!r} a better answer than {ANSWER!r} (scores {shown})"
    if order[0] != best:
        return f"the document with the highest score does not come first (scores {shown})"
    return ""


def _scores(answer: Any) -> tuple[list[int], list[float]]:
    """The places of the documents, best first as the server says, and their scores by their places."""
    by_place = {int(one["index"]): float(one["relevance_score"]) for one in answer["results"]}
    if sorted(by_place) != list(range(len(DOCUMENTS))) or len(answer["results"]) != len(DOCUMENTS):
        raise ValueError(answer)
    return list(by_place), [by_place[place] for place in range(len(DOCUMENTS))]


if __name__ == "__main__":
    main()
