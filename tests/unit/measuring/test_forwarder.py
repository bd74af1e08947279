"""The forwarder: it adds the key, passes on what benchmarks ask alone, streams, and is gone with its block."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from provisioner.measuring import endpoints
from provisioner.measuring.endpoints import Forwarder, Target, forwarding
from provisioner.values.state import Secret
from tests.http_servers import HERE, QuietHandler, served

KEY = "canary-of-the-engine-0123456789"
CHAT = "/v1/chat/completions"


class Engine(QuietHandler):
    """What it was asked is kept; it answers in three pieces, the next one when it is told to."""

    protocol_version = "HTTP/1.1"
    asked: list[tuple[str, str, str | None, bytes]]
    go_on: threading.Event

    def do_GET(self) -> None:
        """As it answers everything."""
        self.do_POST()

    def do_POST(self) -> None:
        """In pieces."""
        body = self.content()
        self.asked.append((self.command, self.path, self.headers.get("Authorization"), body))
        if body == b"short":
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"half")
            self.close_connection = True
            return
        self.send_response(429 if body == b"busy" else 200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in (b"one", b"two"):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
            self.go_on.wait(20)
        self.wfile.write(b"0\r\n\r\n")
        self.close_connection = body == b"the last one"


@pytest.fixture
def engine() -> Iterator[ThreadingHTTPServer]:
    """An engine that serves."""
    Engine.asked, Engine.go_on = [], threading.Event()
    Engine.go_on.set()
    with served(ThreadingHTTPServer(HERE, Engine)) as server:
        yield server


@contextmanager
def connected(target: Target) -> Iterator[tuple[http.client.HTTPConnection, str, Forwarder]]:
    """A connection to a forwarder that leads there, its path, and the forwarder."""
    with forwarding(target) as endpoints:
        parts = urlsplit(endpoints.url)
        assert parts.hostname == "127.0.0.1"
        connection = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=30)
        yield connection, parts.path, endpoints
        connection.close()


@contextmanager
def forwarded(
    engine: ThreadingHTTPServer, key: Secret | None = None
) -> Iterator[tuple[http.client.HTTPConnection, str]]:
    """A connection to a forwarder before the engine, and its path."""
    with connected(Target(f"http://127.0.0.1:{engine.server_port}/base/v1/", key)) as (connection, path, _):
        yield connection, path


def test_it_adds_the_key_and_passes_on_what_was_asked(engine: ThreadingHTTPServer) -> None:
    with forwarded(engine, Secret("engine", KEY)) as (there, path):
        assert KEY not in path
        for _ in range(2):  # over one connection
            there.request("POST", path + CHAT, b"hello", {"Authorization": "Bearer of-a-client"})
            answer = there.getresponse()
            assert (answer.status, answer.read()) == (200, b"onetwo")
            assert answer.headers["Content-Type"] == "text/event-stream"
        there.request("GET", f"{path}/v1/models")
        assert there.getresponse().read() == b"onetwo"
    assert Engine.asked == [
        ("POST", f"/base{CHAT}", f"Bearer {KEY}", b"hello"),
        ("POST", f"/base{CHAT}", f"Bearer {KEY}", b"hello"),
        ("GET", "/base/v1/models", f"Bearer {KEY}", b""),
    ]


def test_prompts_are_counted_and_nothing_else(engine: ThreadingHTTPServer) -> None:
    with connected(Target(f"http://127.0.0.1:{engine.server_port}/v1")) as (there, prefix, here):
        for method, path in (("POST", CHAT), ("GET", "/v1/models"), ("POST", CHAT), ("POST", "/v1/models")):
            there.request(method, prefix + path, b"{}" if method == "POST" else None)
            there.getresponse().read()
        assert here.prompts == 2


def test_what_only_some_services_know_is_left_out(engine: ThreadingHTTPServer) -> None:
    target = Target(f"http://127.0.0.1:{engine.server_port}/v1", without=frozenset({"cache_prompt"}))
    with connected(target) as (there, path, _):
        there.request("POST", path + CHAT, b'{"cache_prompt": false, "stream": true}')
        assert there.getresponse().read() == b"onetwo"
        there.request("POST", path + CHAT, b"[1]")
        assert there.getresponse().status == 400
    assert [body for *_, body in Engine.asked] == [b'{"stream": true}']


def test_a_connection_that_the_engine_has_ended_is_made_anew(engine: ThreadingHTTPServer) -> None:
    with forwarded(engine) as (there, path):
        for _ in range(3):
            there.request("POST", path + CHAT, b"the last one")
            assert there.getresponse().read() == b"onetwo"
    assert len(Engine.asked) == 3


def test_without_a_key_none_is_sent(engine: ThreadingHTTPServer) -> None:
    with forwarded(engine) as (there, path):
        there.request("POST", path + CHAT, b"x", {"Authorization": "Bearer of-a-client"})
        there.getresponse().read()
    assert Engine.asked[0][2] is None


def test_an_answer_comes_as_it_is_written(engine: ThreadingHTTPServer) -> None:
    Engine.go_on.clear()
    with forwarded(engine) as (there, path):
        there.request("POST", path + CHAT, b"x")
        answer = there.getresponse()
        assert answer.read1(100) == b"one", "before the engine has written the rest"
        Engine.go_on.set()
        assert answer.read() == b"two"


def test_a_refusal_is_passed_on(engine: ThreadingHTTPServer) -> None:
    with forwarded(engine) as (there, path):
        there.request("POST", path + CHAT, b"busy")
        assert there.getresponse().status == 429


def test_an_answer_that_breaks_off_breaks_off(engine: ThreadingHTTPServer) -> None:
    with forwarded(engine) as (there, path):
        there.request("POST", path + CHAT, b"short")
        with pytest.raises(http.client.IncompleteRead):
            there.getresponse().read()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "{path}/v1/models"),
        ("GET", "{path}/metrics"),
        ("POST", "{path}/v1/chat/completions/../models"),
        ("GET", "{path}/v1/models?x=1"),
        ("POST", "/v1/chat/completions"),
        ("POST", "/guess/v1/chat/completions"),
        ("GET", "/"),
    ],
)
def test_nothing_else_is_passed_on(engine: ThreadingHTTPServer, method: str, path: str) -> None:
    with forwarded(engine, Secret("engine", KEY)) as (there, prefix):
        there.request(method, path.format(path=prefix))
        assert there.getresponse().status == 404
    assert Engine.asked == []


def test_what_is_too_long_is_refused(engine: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "LONGEST_REQUEST", 4)
    with forwarded(engine) as (there, path):
        there.request("POST", path + CHAT, b"12345")
        assert there.getresponse().status == 413
    assert Engine.asked == []


def test_an_engine_that_is_away_is_said() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        target = Target(f"http://127.0.0.1:{free.getsockname()[1]}")
    with connected(target) as (there, path, _):
        there.request("POST", path + CHAT, b"x")
        assert there.getresponse().status == 502


def test_each_has_another_path_and_is_gone_with_its_block(engine: ThreadingHTTPServer) -> None:
    with forwarded(engine) as (_, one), forwarded(engine) as (there, two):
        assert one != two
        port = there.port
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
