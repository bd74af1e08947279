"""A stand-in for Open WebUI 0.12.4 as far as documents go, with its habits, and for an engine that makes embeddings.

Its habits: what is left out of an update of embeddings gets its own defaults; deleting a file leaves its vectors; a
search in vectors of another length is answered with 200 and nothing; of an engine's answer only the status is told.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import Any

from tests.http_servers import QuietHandler, served

KEY, MODEL = "key-of-the-engine", "find"
Vector = list[float]


class Server(ThreadingHTTPServer):
    """Answers by one function: method, path, body and headers in, status and JSON out."""

    def __init__(self, answer: Callable[[str, str, bytes, Any], tuple[int, Any]]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = answer

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_port}"


class Handler(QuietHandler):
    """One request."""

    def handle_one(self) -> None:
        """Whatever was asked."""
        assert isinstance(self.server, Server)
        body = self.content()
        status, said = self.server.answer(self.command, self.path, body, self.headers)
        data = json.dumps(said).encode()
        self.give(status, data)

    do_GET = do_POST = do_DELETE = handle_one  # its base calls them so


@contextmanager
def serving(answer: Callable[[str, str, bytes, Any], tuple[int, Any]]) -> Iterator[Server]:
    """A server as long as it is needed."""
    with served(Server(answer)) as server:
        yield server


class Engine:
    """Makes a vector of each text; ``mode`` says how it fails."""

    def __init__(self) -> None:
        self.mode = "well"
        self.asked = 0

    def answer(self, method: str, path: str, body: bytes, headers: Any) -> tuple[int, Any]:
        """``/v1/embeddings``, with a key."""
        if headers.get("Authorization") != f"Bearer {KEY}":
            return 401, {"error": {"message": f"Invalid API Key: {headers.get('Authorization')}"}}
        asked = json.loads(body)
        if (method, path, asked["model"]) != ("POST", "/v1/embeddings", MODEL):
            return 404, {"error": {"message": "no such model"}}
        if self.mode == "down":
            return 500, {"error": {"message": "out of memory"}}
        self.asked += 1
        vectors = [self.vector(text) for text in asked["input"]]
        return 200, {"data": [{"index": place, "embedding": one} for place, one in enumerate(vectors)]}

    def vector(self, text: str) -> Vector:
        """The same for the same text, of norm 1."""
        length = 8 + (self.asked if self.mode == "grows" else 0)
        digest = hashlib.sha256(b"" if self.mode == "same" else text.encode()).digest()[:length]
        vector = [byte / 255 - 0.5 for byte in digest]
        norm = math.hypot(*vector)
        return [number / norm for number in vector]


class WebUI:
    """What it keeps, and its routes."""

    def __init__(self, engine: str) -> None:
        self.rag: dict[str, Any] = {
            "RAG_EMBEDDING_ENGINE": "openai",
            "RAG_EMBEDDING_MODEL": "sentence-transformers/all-MiniLM-L6-v2",
            "RAG_EMBEDDING_BATCH_SIZE": 16,
            "ENABLE_ASYNC_EMBEDDING": False,
            "RAG_EMBEDDING_CONCURRENT_REQUESTS": 2,
            "openai_config": {"url": f"{engine}/v1", "key": ""},
        }
        self.retrieval: dict[str, Any] = {"BYPASS_EMBEDDING_AND_RETRIEVAL": True, "TOP_K": 1}
        self.openai: dict[str, Any] = {}
        self.files: set[str] = set()
        self.knowledge: set[str] = set()
        self.collections: dict[str, list[tuple[str, Vector]]] = {}
        self.writes: list[str] = []
        self.indexes_names = True
        self.uploads: list[bytes] = []

    def answer(self, method: str, path: str, body: bytes, headers: Any) -> tuple[int, Any]:
        """The first route of that form."""
        is_form = "multipart" in (headers.get("Content-Type") or "")
        asked = body if is_form else json.loads(body or b"null")
        for route, does in ROUTES.items():
            found = re.fullmatch(route, f"{method} {path}")
            if found:
                return does(self, asked, *found.groups())
        return 404, {"detail": f"Not Found: {method} {path}"}

    def update_embedding(self, asked: Any) -> tuple[int, Any]:
        """What is left out gets its own defaults."""
        self.writes.append("embedding")
        own = {
            "RAG_EMBEDDING_BATCH_SIZE": 1,
            "ENABLE_ASYNC_EMBEDDING": True,
            "RAG_EMBEDDING_CONCURRENT_REQUESTS": 0,
            "openai_config": self.rag["openai_config"],
        }
        self.rag = {**own, **asked}
        return 200, {"status": True, **self.rag}

    def update_retrieval(self, asked: Any) -> tuple[int, Any]:
        """What is left out stays."""
        self.writes.append("retrieval")
        self.retrieval |= {name: value for name, value in asked.items() if value is not None}
        return 200, {"status": True, **self.retrieval}

    def update_openai(self, asked: Any) -> tuple[int, Any]:
        """Its connections."""
        self.writes.append("connections")
        self.openai = asked
        return 200, asked

    def create_knowledge(self, asked: Any) -> tuple[int, Any]:
        """It has a number, and no vectors yet."""
        number = f"k-{len(self.knowledge)}"
        self.knowledge.add(number)
        return 200, {"id": number, "name": asked["name"], "description": asked["description"]}

    def delete_knowledge(self, _: Any, number: str) -> tuple[int, Any]:
        """Its vectors go with it."""
        self.knowledge.remove(number)
        self.collections.pop(number, None)
        return 200, True

    def index_names(self, _: Any) -> tuple[int, Any]:
        """The names of knowledge."""
        self.writes.append("names")
        return (200, {"total": 0}) if self.indexes_names else (500, {"detail": "no room"})

    def upload(self, asked: Any) -> tuple[int, Any]:
        """A form with one part."""
        self.uploads.append(asked)
        self.files.add("f-1")
        return 200, {"id": "f-1", "filename": "proof.txt"}

    def delete_file(self, _: Any, number: str) -> tuple[int, Any]:
        """Its vectors stay: its own deletion names none."""
        self.files.remove(number)
        return 200, {"message": "File deleted successfully"}

    def process(self, asked: Any) -> tuple[int, Any]:
        """Vectors of a text into a collection."""
        assert asked["file_id"] in self.files
        if self.retrieval["BYPASS_EMBEDDING_AND_RETRIEVAL"]:
            return 200, {"status": True, "collection_name": None}
        name = asked.get("collection_name") or f"file-{asked['file_id']}"
        try:
            (vector,) = self.embed([asked["content"]])
        except OSError as error:
            return 400, {"detail": str(error)}
        kept = self.collections.setdefault(name, [])
        if kept and len(kept[0][1]) != len(vector):
            lengths = f"{len(kept[0][1])}, got {len(vector)}"
            return 400, {"detail": f"Collection expecting embedding with dimension of {lengths}"}
        kept.append((asked["content"], vector))
        return 200, {"status": True, "collection_name": name}

    def query(self, asked: Any) -> tuple[int, Any]:
        """The nearest first; nothing where the lengths differ."""
        (wanted,) = self.embed([asked["query"]])
        kept = self.collections.get(asked["collection_name"], [])
        if not kept or len(kept[0][1]) != len(wanted):
            return 200, None
        near = [(sum(map(lambda a, b: a * b, wanted, one)) / 2 + 0.5, text) for text, one in kept]
        near.sort(key=lambda one: -one[0])
        near = near[: asked.get("k") or self.retrieval["TOP_K"]]
        return 200, {"documents": [[text for _, text in near]], "distances": [[score for score, _ in near]]}

    def embed(self, texts: list[str]) -> list[Vector]:
        """Ask the engine; of what it says the status alone is told."""
        own, model = self.rag["openai_config"], self.rag["RAG_EMBEDDING_MODEL"]
        headers = {"Authorization": f"Bearer {own['key']}", "Content-Type": "application/json"}
        data = json.dumps({"input": texts, "model": model}).encode()
        request = urllib.request.Request(f"{own['url']}/embeddings", data, headers)  # noqa: S310  # of 127.0.0.1
        try:
            with urllib.request.urlopen(request, timeout=10) as said:  # noqa: S310
                return [one["embedding"] for one in json.load(said)["data"]]
        except urllib.error.HTTPError as error:
            with error:
                raise OSError(f"{error.code}, message='{error.reason}', url='{own['url']}/embeddings'") from None


ROUTES: dict[str, Callable[..., tuple[int, Any]]] = {
    "GET /api/v1/retrieval/embedding": lambda ui, _: (200, {"status": True, **ui.rag}),
    "POST /api/v1/retrieval/embedding/update": WebUI.update_embedding,
    "GET /api/v1/retrieval/config": lambda ui, _: (200, {"status": True, **ui.retrieval}),
    "POST /api/v1/retrieval/config/update": WebUI.update_retrieval,
    "POST /api/v1/retrieval/process/file": WebUI.process,
    "POST /api/v1/retrieval/query/doc": WebUI.query,
    "POST /api/v1/knowledge/create": WebUI.create_knowledge,
    "POST /api/v1/knowledge/metadata/reindex": WebUI.index_names,
    "DELETE /api/v1/knowledge/(.+)/delete": WebUI.delete_knowledge,
    r"POST /api/v1/files/\?process=false": WebUI.upload,
    "DELETE /api/v1/files/(.+)": WebUI.delete_file,
    "GET /openai/config": lambda ui, _: (200, ui.openai),
    "POST /openai/config/update": WebUI.update_openai,
}
