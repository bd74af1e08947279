"""Proves that documents are made searchable by the service of the file: a text is added, and found again.

Open WebUI says status 200 to much that has failed: to a file whose text got no vectors, to a search in vectors of
another length. So each answer is looked into, and where it is wrong the service itself is asked what it says.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

from client import AnswerError, Client, masked

PATH = "/api/v1/retrieval/embedding"
ENGINE = "openai"
"""Its word for a server that answers as OpenAI's does."""
KEPT = "The spare key of the greenhouse hangs behind the blue door."
OTHER = "Seven ships left the harbour before the storm came in from the west."
NEARER = 1e-5
"""So much nearer the text itself has to be than another one, where 1 is the same direction and 0 the opposite one."""


def service_in(found: dict[str, Any]) -> dict[str, Any]:
    """Whom it asks for embeddings, as it says at ``PATH``: ``engine``, ``url``, ``model`` and ``key``."""
    own = found.get("openai_config") or {}
    return {
        "engine": found.get("RAG_EMBEDDING_ENGINE"),
        "url": own.get("url"),
        "model": found.get("RAG_EMBEDDING_MODEL"),
        "key": own.get("key") or "",
    }


def finds(client: Client, wanted: dict[str, Any], answer_s: float) -> Iterator[str]:
    """What is wrong with making documents searchable; nothing of the documents is left."""
    now = service_in(client.mapping("GET", PATH))
    if {**wanted, "engine": ENGINE} != {name: now[name] for name in ("engine", "url", "model")}:
        by = f"{now['model']} at {now['url'] if now['engine'] == ENGINE else now['engine'] or 'nobody'}"
        as_wanted = f"{wanted['model']} at {wanted['url']}"
        yield f"documents are made searchable by {by} instead of {as_wanted}: run up with --full"
        return
    try:
        for line in _found_again(client):
            yield masked(f"{line}{_said_itself(now, answer_s)}", [now["key"]])
    except AnswerError as error:
        text = f"a document cannot be made searchable: {error}{_said_itself(now, answer_s)}"
        raise AnswerError(masked(text, [now["key"]])) from None


def _found_again(client: Client) -> Iterator[str]:
    """Add two texts to knowledge of its own, and look for one: deleting that deletes its vectors, a file's stay."""
    name = f"provisioner proof {secrets.token_hex(4)}"
    knowledge = _number(client.mapping("POST", "/api/v1/knowledge/create", {"name": name, "description": ""}))
    try:
        file = _number(client.upload("/api/v1/files/?process=false", "proof.txt", KEPT))
        try:
            for text in (KEPT, OTHER):
                wanted = {"file_id": file, "content": text, "collection_name": knowledge}
                said = client.mapping("POST", "/api/v1/retrieval/process/file", wanted)
                if said.get("collection_name") != knowledge:
                    yield "documents are read whole instead of being made searchable: run up with --full"
                    return
            yield from _first(client, knowledge)
        finally:
            client.ask("DELETE", f"/api/v1/files/{file}")
    finally:
        client.ask("DELETE", f"/api/v1/knowledge/{knowledge}/delete")


def _first(client: Client, knowledge: str) -> Iterator[str]:
    """Whether the text itself comes first, and nearer than the other one."""
    asked = {"collection_name": knowledge, "query": KEPT, "k": 2, "hybrid": False}
    said = client.ask("POST", "/api/v1/retrieval/query/doc", asked)
    found = said if isinstance(said, dict) else {}
    texts, near = (found.get(name) or [[]] for name in ("documents", "distances"))
    if not texts[0]:
        yield "a document that was added is not found: the vector of a search has not the length of those that are kept"
    elif texts[0][0] != KEPT:
        yield "a document is not found by its own words: another one comes first"
    elif len(texts[0]) != 2 or near[0][0] - near[0][1] < NEARER:
        yield "different documents have the same vector, so that none is found"


def _number(said: dict[str, Any]) -> str:
    if not isinstance(said.get("id"), str):
        raise AnswerError(f"what was added has no number: {json.dumps(said)[:200]}")
    return str(said["id"])


def _said_itself(service: dict[str, Any], answer_s: float) -> str:
    """What the service says when it is asked without Open WebUI between; of its answer only that Open WebUI hides."""
    direct = Client(service["url"], answer_s)
    direct.token = service["key"]
    try:
        said = direct.mapping("POST", "/embeddings", {"model": service["model"], "input": [KEPT, OTHER]})
    except AnswerError as error:
        return f"; {service['url']} itself says: {error}"
    vectors = [one.get("embedding") for one in said.get("data") or [] if isinstance(one, dict)]
    lengths = ", ".join(str(len(one)) if isinstance(one, list) else "none" for one in vectors)
    return f"; {service['url']} itself answers two texts with vectors of these lengths: {lengths or 'none'}"
