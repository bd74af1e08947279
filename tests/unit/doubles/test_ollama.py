"""The double of Ollama's server has upstream's routes, shapes and traps."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from tests.doubles.ollama.archive import ollama_archive, registry_with
from tests.doubles.ollama.running import COMMAND, ROOT, ollama
from tests.doubles.ollama.server.routes import ROUTES
from tests.gguf_bytes import gguf_bytes, model_bytes
from tests.http_servers import files_served
from tests.waiting import PATIENCE_S, wait_until

TIMEOUT_S = 60
OPENAPI = Path.home() / ".cache" / "provisioner" / "tests" / "ollama" / "openapi.yaml"
OPENAPI_SHA256 = "9c660bb9a714bcb746cff7ec4270a0e43f63b705f7f3362fcc335f18b5d0b178"
OTHER = gguf_bytes({"general.architecture": "llama", "llama.context_length": 8192, "llama.embedding_length": 16})
PLAIN = model_bytes(context_length=2048)


@dataclass
class Stand:
    """A running stand-in."""

    process: subprocess.Popen[bytes]
    address: str
    folder: Path

    @property
    def models(self) -> Path:
        """Where its store is."""
        return self.folder / "models"

    @property
    def log(self) -> str:
        """What it has said."""
        return (self.folder / "log").read_text("utf-8")

    def ask(self, path: str, body: Any = None, method: str = "", **headers: str) -> tuple[int, bytes]:
        """The status and the content of any answer."""
        content = json.dumps(body).encode() if isinstance(body, dict | list) else body
        method = method or ("GET" if body is None else "POST")
        request = urllib.request.Request(self.address + path, content, headers, method=method)  # noqa: S310  # loopback
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310  # loopback
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def json(self, path: str, body: Any = None, method: str = "", **headers: str) -> Any:
        """An answer of 200."""
        status, content = self.ask(path, body, method, **headers)
        assert status == 200, content
        return json.loads(content)

    def refusal(self, path: str, body: Any = None, method: str = "", **headers: str) -> tuple[int, str]:
        """The status and the words of an error."""
        status, content = self.ask(path, body, method, **headers)
        return status, json.loads(content)["error"]

    def lines(self, path: str, body: Any) -> list[dict[str, Any]]:
        """The events of a stream."""
        status, content = self.ask(path, body)
        assert status == 200, content
        return [json.loads(line) for line in content.splitlines()]

    def make(self, name: str, gguf: bytes, **more: Any) -> str:
        """A model of this file; the digest of the upload."""
        digest = digest_of(gguf)
        assert self.ask(f"/api/blobs/{digest}", gguf)[0] in {200, 201}
        made = {"model": name, "files": {"model.gguf": digest}, **more}
        assert self.lines("/api/create", made)[-1] == {"status": "success"}
        return digest

    def loaded(self) -> list[dict[str, Any]]:
        """What is loaded."""
        models: list[dict[str, Any]] = self.json("/api/ps")["models"]
        return models


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@contextmanager
def standing(folder: Path, **environment: str) -> Iterator[Stand]:
    quick = {"STAND_IN_TOKEN_S": "0", "STAND_IN_LOAD_S": "0"}
    with ollama(folder, **quick | environment) as (process, address):
        yield Stand(process, address, folder)


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    with standing(tmp_path_factory.mktemp("ollama"), OLLAMA_NO_CLOUD="1") as running:
        running.make("other", OTHER)
        running.make("plain", PLAIN)
        yield running


def chat(model: str, text: str = "hello there", **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}], "stream": False, **more}


def test_it_says_that_it_runs_and_asks_nobody_for_a_key(stand: Stand) -> None:
    assert stand.ask("/") == (200, b"Ollama is running")
    for header in ({}, {"Authorization": "Bearer wrong"}):
        assert stand.json("/api/version", **header) == {"version": "0.32.15"}
        assert len(stand.json("/v1/models", **header)["data"]) == 2


def test_a_name_that_is_not_local_is_turned_away_with_nothing(stand: Stand) -> None:
    for name in ("evil.example", "evil.example:11434", "1.2.3.4", "192.0.2.7"):
        assert stand.ask("/api/tags", Host=name) == (403, b"")
    for name in ("localhost", "host.internal:80", "10.0.0.1:11434", "[::1]:11434", "ai.local"):
        assert stand.ask("/api/tags", Host=name)[0] == 200
    assert stand.ask("/nothing", Host="evil.example")[0] == 403


def test_any_name_gets_in_where_it_listens_on_more_than_loopback(tmp_path: Path) -> None:
    with standing(tmp_path, OLLAMA_HOST="0.0.0.0:0") as stand:
        assert stand.ask("/api/tags", Host="evil.example")[0] == 200


def test_paths_and_methods_are_answered_as_gin_does(stand: Stand) -> None:
    assert stand.ask("/nothing") == (404, b"404 page not found")
    assert stand.ask("/api/chat") == (405, b"405 method not allowed")
    assert stand.ask("/api/chat", b"") == (400, b'{"error":"missing request body"}')


def test_what_is_not_played_is_refused_and_so_are_bodies_of_a_wrong_shape(stand: Stand) -> None:
    connection = http.client.HTTPConnection(stand.address.removeprefix("http://"), timeout=30)
    connection.putrequest("POST", "/api/blobs/sha256:" + "0" * 64)
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()  # the body is never asked for
    with closing(connection):
        assert connection.getresponse().status == 501
    for path in ("/api/push", "/api/embed", "/api/embeddings", "/v1/completions", "/v1/messages", "/v1/responses"):
        assert stand.ask(path, {"model": "plain"})[0] == 501
    assert stand.refusal("/api/create", {"model": "x", "files": {}, "system": "Be short.", "stream": False})[0] == 501
    for path, body in (("chat", chat("plain", stream=True)), ("generate", {"model": "plain", "prompt": "x"})):
        assert stand.refusal(f"/api/{path}", body)[0] == 501
    for body in ({"messages": "text"}, {"messages": [1]}, {"messages": [{"content": 1}], "options": "x"}):
        for path in ("/api/chat", "/v1/chat/completions"):
            assert stand.ask(path, {"model": "plain", "max_tokens": 1, "stream": False, **body})[0] in {200, 400}
    assert stand.ask("/api/chat", b"[")[0] == 400
    assert stand.json("/api/version")


def test_its_log_begins_with_its_environment(stand: Stand) -> None:
    first = next(line for line in stand.log.splitlines() if "server config" in line)
    assert 'env="map[' in first
    assert f"OLLAMA_MODELS:{stand.models}" in first


def test_it_needs_a_home_and_a_free_port(stand: Stand, tmp_path: Path) -> None:
    own = {"PATH": os.environ["PATH"], "OLLAMA_MODELS": str(tmp_path), "OLLAMA_HOST": stand.address}
    for environment, said in ((own, b"$HOME is not defined"), (own | {"HOME": str(tmp_path)}, b"in use")):
        done = subprocess.run(
            [*COMMAND, "serve"], env=environment, cwd=ROOT, capture_output=True, timeout=30, check=False
        )
        assert done.returncode == 1
        assert said in done.stderr


def test_a_blob_with_another_content_than_it_says_is_not_kept_as_that(stand: Stand) -> None:
    digest = digest_of(b"one")
    status, said = stand.refusal(f"/api/blobs/{digest}", b"two")
    assert (status, said) == (400, f'digest mismatch, expected "{digest}", got "{digest_of(b"two")}"')
    # What it has is under the digest that it has, and never under the one that was promised.
    for content, there in ((b"one", 404), (b"two", 200)):
        assert stand.ask(f"/api/blobs/{digest_of(content)}", method="HEAD")[0] == there
    assert stand.ask(f"/api/blobs/{digest}", b"one")[0] == 201
    assert stand.ask(f"/api/blobs/{digest}", method="HEAD") == (200, b"")
    assert stand.refusal("/api/blobs/sha256:12", b"one") == (400, "invalid digest format")


def test_create_keeps_a_rewritten_file_beside_the_upload(stand: Stand) -> None:
    upload = stand.models / "blobs" / digest_of(PLAIN).replace(":", "-")
    os.utime(upload, (1, 1))
    stand.make("again", PLAIN)
    assert upload.stat().st_mtime > 1  # touched
    manifest = json.loads((stand.models / "manifests/registry.ollama.ai/library/again/latest").read_bytes())
    kept = manifest["layers"][0]["digest"]
    assert kept != digest_of(PLAIN)
    rewritten = (stand.models / "blobs" / kept.replace(":", "-")).read_bytes()
    assert rewritten.endswith(PLAIN[-32:])
    assert b"general.quantization_version" in rewritten
    again = stand.ask(f"/api/blobs/{kept}", rewritten)[0]
    assert again == 200
    stand.make("third", rewritten)  # what was rewritten once stays as it is
    third = json.loads((stand.models / "manifests/registry.ollama.ai/library/third/latest").read_bytes())
    assert third["layers"][0]["digest"] == kept
    for name in ("again", "third"):
        assert stand.ask("/api/delete", {"model": name}, "DELETE") == (200, b"")


def test_models_outlive_a_restart_and_old_uploads_do_not(tmp_path: Path) -> None:
    with standing(tmp_path) as stand:
        upload = stand.make("kept", PLAIN)
        tags = stand.json("/api/tags")
    for environment, there in (({}, 200), ({"OLLAMA_NOPRUNE": "1"}, 200), ({}, 404)):
        path = tmp_path / "models" / "blobs" / upload.replace(":", "-")
        if environment:
            os.utime(path, (1, 1))
        with standing(tmp_path, **environment) as stand:
            assert stand.ask(f"/api/blobs/{upload}", method="HEAD")[0] == there
            assert stand.json("/api/tags") == tags


def test_names_get_a_tag_and_bad_ones_are_refused(stand: Stand) -> None:
    names = {model["name"] for model in stand.json("/api/tags")["models"]}
    assert names == {"plain:latest", "other:latest"}
    for path in ("show", "chat", "generate", "pull", "create"):
        assert stand.refusal(f"/api/{path}", {"model": "a b"}) == (400, "invalid model name")
    assert stand.refusal("/api/copy", {"source": "plain", "destination": "-x"}) == (400, 'destination "-x" is invalid')
    assert stand.json("/api/show", {"model": "PLAIN"})["capabilities"] == ["completion"]


def test_what_is_no_gguf_is_refused(stand: Stand) -> None:
    content = b"no gguf at all"
    digest = digest_of(content)
    stand.ask(f"/api/blobs/{digest}", content)
    made = {"model": "bad", "stream": False}
    assert stand.refusal("/api/create", made | {"files": {"model": digest}}) == (400, "unknown type")
    named = made | {"files": {"model.gguf": digest}}
    assert stand.refusal("/api/create", named) == (400, "supplied file was not in GGUF format")
    streamed = stand.lines("/api/create", named | {"stream": True})  # an answer of 200 that ends with an error
    assert streamed == [{"status": "parsing GGUF"}, {"error": "supplied file was not in GGUF format"}]
    assert stand.refusal("/api/create", made)[1] == "neither 'from' or 'files' was specified"


def test_create_writes_parameters(stand: Stand) -> None:
    stand.make("tuned", PLAIN, parameters={"num_predict": 3})
    assert "num_predict" in stand.json("/api/show", {"model": "tuned"})["parameters"]
    answer = stand.json("/api/chat", chat("tuned"))
    assert (answer["done_reason"], answer["eval_count"]) == ("length", 3)
    stand.ask("/api/delete", {"model": "tuned"}, "DELETE")


def test_copies_share_blobs_until_the_last_is_deleted(tmp_path: Path) -> None:
    with standing(tmp_path) as stand:
        stand.make("one", PLAIN)
        assert stand.ask("/api/copy", {"source": "one", "destination": "two:v1"}) == (200, b"")
        assert stand.ask("/api/delete", {"model": "one"}, "DELETE") == (200, b"")
        assert stand.json("/api/chat", chat("two:v1"))["done"]
        assert stand.ask("/api/delete", {"model": "two:v1"}, "DELETE") == (200, b"")
        assert stand.refusal("/api/delete", {"model": "two:v1"}, "DELETE") == (404, "model 'two:v1' not found")
        assert [path.name for path in (stand.models / "blobs").iterdir()] == [digest_of(PLAIN).replace(":", "-")]
        assert stand.json("/v1/models") == {"object": "list", "data": None}


def test_unknown_models_are_not_found_in_upstreams_words(stand: Stand) -> None:
    for path in ("chat", "generate"):
        body = chat("none")
        assert stand.refusal(f"/api/{path}", body) == (404, "model 'none' not found")
    assert stand.refusal("/api/show", {"model": "none"}) == (404, "model 'none:latest' not found")
    status, content = stand.ask("/v1/chat/completions", chat("none"))
    assert status == 404
    assert json.loads(content)["error"]["type"] == "not_found_error"


def test_a_model_of_the_cloud_is_refused(stand: Stand) -> None:
    status, said = stand.refusal("/api/chat", chat("gpt-oss:20b-cloud"))
    assert (status, said) == (403, "ollama cloud is disabled: remote model is unavailable")


def test_openai_clients_are_served(stand: Stand) -> None:
    whole = stand.json("/v1/chat/completions", chat("plain", max_tokens=3))
    assert whole["choices"][0]["finish_reason"] == "length"
    assert whole["choices"][0]["message"]["content"] == "plain heard: hello"
    assert whole["usage"] == {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}
    streamed = chat("plain", stream=True, stream_options={"include_usage": True})
    _, content = stand.ask("/v1/chat/completions", streamed)
    events = content.decode().strip().replace("data: ", "").split("\n\n")
    assert events[-1] == "[DONE]"
    assert json.loads(events[-2])["usage"]["prompt_tokens"] == 2
    assert json.loads(events[-3])["choices"][0] == {"index": 0, "delta": {}, "finish_reason": "stop"}
    listed = {model["id"] for model in stand.json("/v1/models")["data"]}
    assert listed == {"plain:latest", "other:latest"}
    assert stand.refusal("/v1/chat/completions", {"model": "plain"})[0] == 400


def test_vectors_are_of_length_one_and_always_the_same(stand: Stand) -> None:
    body = {"model": "other", "input": ["a", "b", "a"]}
    first, second, third = [one["embedding"] for one in stand.json("/v1/embeddings", body)["data"]]
    assert first == third != second
    assert len(first) == 16
    assert sum(number**2 for number in first) == pytest.approx(1)


def test_models_load_at_the_first_request_and_stay_as_asked(tmp_path: Path) -> None:
    with standing(tmp_path, STAND_IN_LOAD_S="0.3", STAND_IN_VRAM_SHARE="0.5", OLLAMA_KEEP_ALIVE="1h") as stand:
        stand.make("plain", PLAIN)
        assert stand.loaded() == []
        durations = [stand.json("/api/chat", chat("plain"))["load_duration"] for _ in range(2)]
        assert durations[0] > 0.3e9 > durations[1]
        (entry,) = stand.loaded()
        assert entry["size_vram"] == entry["size"] // 2
        assert entry["context_length"] == 2048  # no more than the model was trained for
        assert entry["digest"] == stand.json("/api/tags")["models"][0]["digest"]
        first = entry["expires_at"]
        stand.json("/api/generate", {"model": "plain", "keep_alive": -1})
        assert stand.loaded()[0]["expires_at"][:2] == "23" > first[:2]
        unloaded = stand.json("/api/generate", {"model": "plain", "keep_alive": 0})
        assert (unloaded["done_reason"], stand.loaded()) == ("unload", [])
        stand.json("/api/chat", chat("plain", keep_alive="300ms"))
        assert stand.loaded() != []
        wait_until(lambda: stand.loaded() == [])


def test_another_context_loads_the_model_anew(tmp_path: Path) -> None:
    with standing(tmp_path, STAND_IN_LOAD_S="0.2") as stand:
        stand.make("plain", PLAIN)
        for context, loads in ((1024, True), (1024, False), (512, True)):
            answer = stand.json("/api/chat", chat("plain", options={"num_ctx": context}))
            assert (answer["load_duration"] > 0.2e9) == loads
            assert stand.loaded()[0]["context_length"] == context


def test_no_more_models_are_loaded_than_allowed(tmp_path: Path) -> None:
    with standing(tmp_path, OLLAMA_MAX_LOADED_MODELS="1") as stand:
        stand.make("plain", PLAIN)
        stand.make("other", OTHER)
        for name in ("plain", "other", "plain"):
            stand.json("/api/chat", chat(name))
            assert [model["name"] for model in stand.loaded()] == [f"{name}:latest"]


@contextmanager
def asking(stand: Stand, bodies: list[dict[str, Any]]) -> Iterator[list[int]]:
    """Ask all at once; the list gets the statuses as they come."""
    statuses: list[int] = []
    with ExitStack() as stack:
        for body in bodies:
            thread = threading.Thread(
                target=lambda body=body: statuses.append(stand.ask("/api/chat", body)[0]), daemon=True
            )
            thread.start()
            stack.callback(thread.join, PATIENCE_S)
        yield statuses


@pytest.mark.parametrize(("parallel", "rounds"), [("1", 3), ("3", 1)])
def test_so_many_answers_are_computed_at_once(parallel: str, rounds: int, tmp_path: Path) -> None:
    with standing(tmp_path, OLLAMA_NUM_PARALLEL=parallel, STAND_IN_TOKEN_S="0.1", OLLAMA_MAX_QUEUE="1") as stand:
        stand.make("plain", PLAIN)
        stand.json("/api/chat", {"model": "plain", "messages": []})
        started = time.monotonic()
        with asking(stand, [chat("plain", options={"num_predict": 4})] * 3) as statuses:
            pass
        # Whoever waits for a loaded model is not bounded by OLLAMA_MAX_QUEUE: nobody is told 503.
        assert statuses == [200, 200, 200]
        assert rounds * 0.4 <= time.monotonic() - started < rounds * 0.4 + 0.4


def test_who_waits_for_a_model_to_be_loaded_is_bounded(tmp_path: Path) -> None:
    settings = {"OLLAMA_MAX_LOADED_MODELS": "1", "OLLAMA_MAX_QUEUE": "1", "STAND_IN_TOKEN_S": "0.1"}
    with standing(tmp_path, **settings) as stand:
        stand.make("plain", PLAIN)
        stand.make("other", OTHER)
        with asking(stand, [chat("plain", options={"num_predict": 10})]):
            wait_until(lambda: stand.loaded() != [])
            short = chat("other", options={"num_predict": 1})
            with asking(stand, [short] * 2) as waiting:
                time.sleep(0.3)
                busy = "server busy, please try again.  maximum pending requests exceeded"
                assert stand.refusal("/api/chat", short) == (503, busy)
            assert waiting == [200, 200]


def test_a_client_that_leaves_frees_its_turn(tmp_path: Path) -> None:
    with standing(tmp_path, STAND_IN_TOKEN_S="0.2", STAND_IN_WORDS="100") as stand:
        stand.make("plain", PLAIN)
        connection = http.client.HTTPConnection(stand.address.removeprefix("http://"), timeout=5)
        connection.request("POST", "/v1/chat/completions", json.dumps(chat("plain", stream=True)))
        connection.getresponse().readline()
        connection.sock.close()
        connection.close()
        started = time.monotonic()
        stand.json("/api/chat", chat("plain", options={"num_predict": 1}))
        assert time.monotonic() - started < 3


def test_a_signal_cuts_running_answers(tmp_path: Path) -> None:
    with standing(tmp_path, STAND_IN_TOKEN_S="0.05", STAND_IN_WORDS="200") as stand:
        stand.make("plain", PLAIN)
        connection = http.client.HTTPConnection(stand.address.removeprefix("http://"), timeout=5)
        connection.request("POST", "/v1/chat/completions", json.dumps(chat("plain", stream=True)))
        answer = connection.getresponse()
        assert answer.readline()
        stand.process.send_signal(signal.SIGTERM)
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            answer.read()
        connection.close()
        assert stand.process.wait(2) == 0


def test_a_pull_verifies_every_blob(tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    digest = registry_with(registry, PLAIN, "small", "1b")
    with standing(tmp_path, STAND_IN_REGISTRY=str(registry)) as stand:
        events = stand.lines("/api/pull", {"model": "small:1b"})
        assert [event["status"] for event in events][-3:] == ["verifying sha256 digest", "writing manifest", "success"]
        assert stand.json("/api/tags")["models"][0]["digest"] == digest
        assert stand.json("/api/chat", chat("small:1b"))["done"]
        assert stand.json("/api/pull", {"model": "small:1b", "stream": False}) == {"status": "success"}
        unknown = "pull model manifest: file does not exist"
        streamed = stand.lines("/api/pull", {"model": "none"})
        assert streamed == [{"status": "pulling manifest"}, {"error": unknown}]
        assert stand.refusal("/api/pull", {"model": "none", "stream": False}) == (500, unknown)
        registry_with(registry, OTHER, "bad", "latest")
        blob = registry / "v2/library/bad/blobs" / digest_of(OTHER)
        blob.write_bytes(OTHER[:-1] + b"x")
        error = stand.lines("/api/pull", {"model": "bad"})[-1]
        assert error == {"error": "digest mismatch, file must be downloaded again"}
        assert [model["name"] for model in stand.json("/api/tags")["models"]] == ["small:1b"]
        assert stand.ask(f"/api/blobs/{digest_of(OTHER)}", method="HEAD")[0] == 404


def test_a_pull_can_come_from_a_registry_behind_http(tmp_path: Path) -> None:
    with files_served(tmp_path) as address, standing(tmp_path / "own", STAND_IN_REGISTRY=address) as stand:
        registry_with(tmp_path, PLAIN, "small", "latest")
        assert stand.lines("/api/pull", {"model": "small"})[-1] == {"status": "success"}
        assert stand.lines("/api/pull", {"model": "none"})[-1]["error"].endswith("file does not exist")
        other = stand.lines("/api/pull", {"model": "127.0.0.1:1/library/small"})[-1]
        assert other["error"].endswith("no such host")


def test_a_pull_without_a_registry_reaches_nothing(stand: Stand) -> None:
    _, said = stand.refusal("/api/pull", {"model": "small", "stream": False})
    assert said.endswith("no such host")


def test_the_archive_is_always_the_same(tmp_path: Path) -> None:
    archives = [ollama_archive(tmp_path / name) for name in ("a", "b")]
    assert archives[0].read_bytes() == archives[1].read_bytes()
    assert archives[0].name == "ollama-linux-amd64.tar.zst"
    listed = subprocess.check_output(["tar", "--zstd", "-tvf", archives[0]], text=True, timeout=TIMEOUT_S).splitlines()
    assert [line.split()[0] + " " + line.split()[-1] for line in listed] == [
        "-rwxr-xr-x bin/ollama",
        "-rw-r--r-- lib/ollama/README",
    ]
    subprocess.run(["tar", "--zstd", "-xf", archives[0], "-C", tmp_path], check=True, timeout=TIMEOUT_S)
    done = subprocess.run([tmp_path / "bin/ollama", "-v"], capture_output=True, timeout=TIMEOUT_S, check=False)
    assert b'unknown command "-v" for "ollama"' in done.stderr, "it is a program"


def described(document: dict[str, Any], path: str, kind: str) -> jsonschema.Draft202012Validator:
    """A validator of one route's answers; what upstream's document does not name is no error, as it says."""
    method = document["paths"][path]
    operation = method.get("post") or method.get("get")
    schema = operation["responses"]["200"]["content"][kind]["schema"]
    return jsonschema.Draft202012Validator({**schema, "components": document["components"]})


def test_answers_are_as_upstreams_document_describes_them(stand: Stand) -> None:
    if not OPENAPI.exists():
        pytest.skip(f"upstream's docs/openapi.yaml is not at {OPENAPI}")
    assert hashlib.sha256(OPENAPI.read_bytes()).hexdigest() == OPENAPI_SHA256
    document = yaml.safe_load(OPENAPI.read_bytes())
    whole: dict[str, Any] = {
        "/api/generate": {"model": "other"},
        "/api/chat": chat("other"),
        "/api/show": {"model": "other"},
        "/api/create": {"model": "described", "files": {"m.gguf": digest_of(PLAIN)}, "stream": False},
        "/api/tags": None,
        "/api/ps": None,
        "/api/version": None,
    }
    for path, body in whole.items():
        answer = stand.json(path, body)
        described(document, path, "application/json").validate(answer)
        named = _properties(document, path, "application/json")
        assert answer.keys() & named, path
    path = "/api/create"
    for event in stand.lines(path, {**whole[path], "stream": True}):
        described(document, path, "application/x-ndjson").validate(event)
        assert event.keys() & _properties(document, path, "application/x-ndjson"), path
    stand.ask("/api/delete", {"model": "described"}, "DELETE")
    missing = set(document["paths"]) - set(ROUTES)
    assert not missing


def _properties(document: dict[str, Any], path: str, kind: str) -> set[str]:
    method = document["paths"][path]
    operation = method.get("post") or method.get("get")
    reference = operation["responses"]["200"]["content"][kind]["schema"]["$ref"]
    return set(document["components"]["schemas"][reference.rpartition("/")[2]]["properties"])
