"""The layer in front of an application: what it passes on, what it refuses, and what the application hears of that."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from provisioner.inside import request_limits
from provisioner.inside.request_limits import (
    DISCARDED_BYTES,
    KEY_HEADERS,
    Doors,
    Guard,
    Limits,
    is_worth_a_line,
    watched,
)
from provisioner.values import paths
from tests.case_files import read_cases

CASES = read_cases("guard")

KEY = "sk-right"
DOORS = Doors(KEY, frozenset({"/v1/models", "/v1/models/*", "/v1/chat/completions"}), frozenset({"/health/readiness"}))
LIMITS = Limits(body=10, body_s=0.5, pause_s=0.2, headers=300, headers_s=0.2)
LENGTH, CHUNKED = b"content-length", (b"transfer-encoding", b"chunked")
BEARER = (b"authorization", b"Bearer sk-right")
END: dict[str, Any] = {"type": "http.disconnect"}


@pytest.fixture(autouse=True)
def short_farewells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody here writes on for seconds after a refusal."""
    monkeypatch.setattr(request_limits, "DISCARD_S", 0.2)


@dataclass
class Exchange:
    """One request to a guarded application: what the application got, and what the client did."""

    got: list[dict[str, Any]] = field(default_factory=list)
    sent: list[dict[str, Any]] = field(default_factory=list)
    left: list[bytes] = field(default_factory=list)
    """Parts of the body that nobody has read."""

    @property
    def status(self) -> int:
        """The answer's status."""
        starts = [message["status"] for message in self.sent if message["type"] == "http.response.start"]
        assert len(starts) == 1, starts
        return int(starts[0])

    @property
    def error(self) -> dict[str, str]:
        """What a refusal says."""
        whole = b"".join(message.get("body", b"") for message in self.sent)
        error: dict[str, str] = json.loads(whole)["error"]
        return error

    @property
    def headers(self) -> dict[bytes, bytes]:
        """The answer's headers."""
        return dict(self.sent[0]["headers"])


async def reads_all(exchange: Exchange, receive: Any, send: Any) -> None:
    """An application that reads the whole body and answers, whatever it got."""
    while True:
        message = await receive()
        exchange.got.append(message)
        if message["type"] == "http.disconnect" or not message["more_body"]:
            break
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"answer"})


def ask(
    path: str = "/v1/chat/completions",
    *,
    headers: Sequence[tuple[bytes, bytes]] = (BEARER,),
    body: Sequence[bytes] = (),
    ends: bool = True,
    method: str = "POST",
    doors: Doors | None = DOORS,
    application: Callable[[Exchange, Any, Any], Any] = reads_all,
) -> Exchange:
    """Send a request, its body in parts; with ``ends`` false the last part never comes."""
    exchange = Exchange(left=list(body))

    async def receive() -> dict[str, Any]:
        if exchange.left:
            part = exchange.left.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(exchange.left) or not ends}
        if not ends or body:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        exchange.sent.append(message)

    async def guarded(_scope: Any, receive: Any, send: Any) -> None:
        await application(exchange, receive, send)

    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "headers": list(headers)}
    asyncio.run(asyncio.wait_for(Guard(guarded, LIMITS, doors)(scope, receive, send), 20))
    return exchange


def is_over(exchange: Exchange) -> bool:
    """Whether the answer is complete for the server."""
    return exchange.sent[-1]["type"] == "http.response.body" and not exchange.sent[-1].get("more_body")


def test_what_is_within_the_limits_goes_through_as_it_is() -> None:
    exchange = ask(headers=[BEARER, (LENGTH, b"10")], body=[b"01234", b"56789"])
    assert b"".join(part["body"] for part in exchange.got) == b"0123456789"
    assert (exchange.status, exchange.sent[-1]["body"]) == (200, b"answer")


def test_a_body_that_is_announced_as_too_large_is_refused_before_it_is_read() -> None:
    exchange = ask(headers=[BEARER, (LENGTH, b"11")], body=[b"0123456789a"])
    assert (exchange.status, exchange.got) == (413, [])
    assert exchange.headers[b"connection"] == b"close"
    assert exchange.error["message"] == "A request's body may have 10 bytes. Send less at once."
    assert is_over(exchange)


def test_a_body_that_hides_its_length_is_refused_where_it_is_too_large_and_the_application_hears_the_end() -> None:
    exchange = ask(headers=[BEARER, CHUNKED], body=[b"0123456789", b"a", b"b"])
    assert exchange.status == 413
    assert [message["type"] for message in exchange.got] == ["http.request", "http.disconnect"]
    assert b"answer" not in [message.get("body") for message in exchange.sent]
    assert is_over(exchange)


def test_who_still_writes_sees_the_refusal_before_the_connection_ends() -> None:
    parts = [b"x" * 9] * 5
    exchange = ask(headers=[BEARER, (LENGTH, b"45")], body=parts)
    assert exchange.left == []
    assert [message.get("more_body") for message in exchange.sent] == [None, True, False]


def test_no_more_is_read_of_a_refused_body_than_is_said() -> None:
    part = b"x" * 2**20
    exchange = ask(headers=[BEARER, CHUNKED], body=[part] * 100, ends=False)
    assert exchange.status == 413
    assert len(exchange.left) == 100 - 1 - DISCARDED_BYTES // len(part)


def test_an_application_that_fails_when_its_request_is_taken_away_is_not_heard() -> None:
    async def fails(exchange: Exchange, receive: Any, _send: Any) -> None:
        while True:
            exchange.got.append(await receive())
            if exchange.got[-1] == END:
                raise RuntimeError("ClientDisconnect")

    assert ask(headers=[BEARER, CHUNKED], body=[b"x" * 11], application=fails).status == 413


def test_an_application_that_fails_by_itself_is_heard() -> None:
    async def fails(_exchange: Exchange, _receive: Any, _send: Any) -> None:
        raise RuntimeError("its own")

    with pytest.raises(RuntimeError, match="its own"):
        ask(application=fails)


def test_an_answer_that_has_begun_is_cut_off_where_the_body_gets_too_large() -> None:
    async def answers_first(exchange: Exchange, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        exchange.got += [await receive(), await receive()]
        await send({"type": "http.response.body", "body": b"rest"})

    exchange = ask(headers=[BEARER, CHUNKED], body=[b"x" * 11, b"y"], application=answers_first)
    assert exchange.got == [END, END]
    assert [message["type"] for message in exchange.sent] == ["http.response.start"]


@pytest.mark.parametrize("parts", [[], [b"0"]])
def test_a_body_that_does_not_go_on_is_refused(parts: list[bytes]) -> None:
    exchange = ask(headers=[BEARER, (LENGTH, b"10")], body=parts, ends=False)
    assert (exchange.status, exchange.got[-1]) == (408, END)


async def answered(receive: Callable[[], Any], meanwhile: Callable[[], Any]) -> int:
    """The status of the answer to a request whose parts come as ``receive`` gives them."""
    exchange = Exchange()

    async def application(_scope: Any, receive: Any, send: Any) -> None:
        await reads_all(exchange, receive, send)

    async def send(message: Any) -> None:
        exchange.sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/models", "headers": [BEARER, CHUNKED]}
    answering = asyncio.ensure_future(Guard(application, LIMITS, DOORS)(scope, receive, send))
    await asyncio.sleep(0)
    meanwhile()
    await asyncio.wait_for(answering, 20)
    return exchange.status


def test_a_body_that_goes_on_too_slowly_is_refused() -> None:
    async def receive() -> dict[str, Any]:
        await asyncio.sleep(LIMITS.pause_s / 2)
        return {"type": "http.request", "body": b"", "more_body": True}

    assert asyncio.run(answered(receive, lambda: None)) == 408


def test_what_came_while_the_loop_was_busy_is_not_late() -> None:
    """An engine that computes in the server's loop keeps it from reading for longer than any limit."""
    arrived = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await arrived.wait()
        return {"type": "http.request", "body": b"{}", "more_body": False}

    def compute() -> None:
        asyncio.get_running_loop().call_later(LIMITS.pause_s + 0.1, arrived.set)
        time.sleep(LIMITS.pause_s + 0.3)  # the loop reads nothing meanwhile, which is what is tried

    assert asyncio.run(answered(receive, compute)) == 200


def test_an_application_may_take_its_time_and_wait_for_its_client() -> None:
    """Streams wait for a disconnect when the whole request is there."""

    async def streams(exchange: Exchange, receive: Any, send: Any) -> None:
        exchange.got.append(await receive())
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(receive(), LIMITS.body_s + 0.2)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"late"})

    exchange = ask(headers=[BEARER, (LENGTH, b"2")], body=[b"{}"], application=streams)
    assert exchange.sent[-1]["body"] == b"late"


def test_headers_that_are_too_large_are_refused() -> None:
    assert ask(headers=[BEARER, (b"x-more", b"y" * 300)]).status == 431


@pytest.mark.parametrize("path", CASES["what is not on the list as it was written does not exist"])
def test_what_is_not_on_the_list_as_it_was_written_does_not_exist(path: str) -> None:
    exchange = ask(path)
    assert (exchange.status, exchange.got) == (404, [])
    assert "connection" not in {name.decode() for name in exchange.headers}, "the next request may use it"


def test_a_path_that_the_server_reads_otherwise_does_not_exist() -> None:
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/ui/", "raw_path": b"/v1/models", "headers": [BEARER]}
    asyncio.run(Guard(unreachable, LIMITS, DOORS)(scope, unreachable, send))
    assert sent[0]["status"] == 404


async def unreachable(*_words: Any) -> Any:
    raise AssertionError("nobody is to be asked")


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/qwen-3.5_a~b"])
def test_what_is_on_the_list_is_passed_on_with_the_key(path: str) -> None:
    assert ask(path, method="GET").status == 200


@pytest.mark.parametrize(
    "header",
    [
        (b"authorization", b"Bearer sk-right"),
        (b"authorization", b"bearer sk-right"),
        (b"authorization", b"sk-right"),
        (b"x-api-key", b"sk-right"),
        (b"api-key", b"sk-right"),
        (b"x-litellm-api-key", b"Bearer sk-right"),
    ],
)
def test_a_key_stands_where_clients_write_it(header: tuple[bytes, bytes]) -> None:
    assert ask(headers=[header]).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"authorization", b"Bearer sk-wrong")],
        [(b"authorization", b"Bearer ")],
        [(b"authorization", b"Bearer sk-right-not")],
        [(b"authorization", b"Bearer \xff")],
        [(b"x-api-key", b"sk-righ")],
        [(b"x-litellm-api-key", b"sk-wrong"), BEARER],
        [(b"authorization", b"Bearer sk-wrong"), BEARER],
        [(b"cookie", b"token=sk-right")],
    ],
)
def test_without_the_key_nothing_of_the_body_is_given_to_the_application(headers: list[tuple[bytes, bytes]]) -> None:
    exchange = ask(headers=[*headers, CHUNKED], body=[b"{}"])
    assert (exchange.status, exchange.got) == (401, [])
    assert exchange.headers[b"www-authenticate"] == b"Bearer"
    assert exchange.error["code"] == "401"


def test_an_open_path_wants_no_key() -> None:
    assert ask("/health/readiness", method="GET", headers=[]).status == 200


def test_a_browser_may_ask_whether_it_may_ask() -> None:
    questions = [(b"origin", b"http://page"), (b"access-control-request-method", b"POST")]
    assert ask(method="OPTIONS", headers=questions).status == 200
    assert ask(method="OPTIONS", headers=questions[:1]).status == 401
    assert ask("/ui/", method="OPTIONS", headers=questions).status == 404


def test_without_doors_every_path_is_passed_on_within_the_limits() -> None:
    assert ask("//any/%2e", headers=[], doors=None).status == 200
    assert ask("/any", headers=[(LENGTH, b"11")], doors=None).status == 413


def test_start_and_stop_go_through_and_websockets_do_not() -> None:
    seen, sent = [], []

    async def application(scope: Any, _receive: Any, _send: Any) -> None:
        seen.append(scope["type"])

    async def send(message: Any) -> None:
        sent.append(message)

    request_limits = Guard(application, LIMITS, DOORS)
    asyncio.run(request_limits({"type": "lifespan"}, unreachable, send))
    asyncio.run(request_limits({"type": "websocket", "path": "/v1/models", "headers": []}, unreachable, send))
    assert seen == ["lifespan"]
    assert sent == [{"type": "websocket.close", "code": 1008}]


class Cycle:
    """A request that uvicorn is answering."""

    response_complete = False


class Transport:
    """The connection's other side."""

    def __init__(self) -> None:
        self.written, self.closed = b"", False
        self.protocol: Any = None

    def write(self, data: bytes) -> None:
        """Keep it."""
        self.written += data

    def close(self) -> None:
        """Remember it."""
        self.closed = True

    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self.closed

    def get_protocol(self) -> Any:
        """Whose connection it is."""
        return self.protocol


class Connection:
    """What uvicorn's two protocols have in common: a head that is whole begins a cycle."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.cycle: Any = None
        self.transport: Any = None
        self.data = b""

    def connection_made(self, transport: Any) -> None:
        """Begin."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Begin a cycle where the head is whole."""
        self.data += data
        if self.data.endswith(b"\r\n\r\n"):
            self.cycle, self.data = Cycle(), b""

    def connection_lost(self, error: Any) -> None:
        """Nothing is left to be done."""


def connected(steps: Callable[[Any, Transport], Any]) -> Transport:
    """The connection's other side after ``steps``."""

    async def connect() -> Transport:
        transport, connection = Transport(), watched(Connection, LIMITS)()
        transport.protocol = connection
        connection.connection_made(transport)
        await steps(connection, transport)
        connection.connection_lost(None)
        return transport

    return asyncio.run(connect())


async def longer_than_the_limit() -> None:
    await asyncio.sleep(LIMITS.headers_s + request_limits.GRACE_S + 0.1)


def test_a_connection_on_which_no_request_begins_is_ended() -> None:
    async def silent(_connection: Any, _transport: Any) -> None:
        await longer_than_the_limit()

    transport = connected(silent)
    assert transport.written.startswith(b"HTTP/1.1 408 ")
    assert transport.closed


def test_bytes_that_trickle_in_buy_no_time() -> None:
    async def trickle(connection: Any, transport: Transport) -> None:
        async with asyncio.timeout(10):
            while not transport.closed:
                connection.data_received(b"x")
                await asyncio.sleep(LIMITS.headers_s / 10)

    assert connected(trickle).written.startswith(b"HTTP/1.1 408 ")


def test_a_head_without_an_end_is_cut_at_its_size() -> None:
    async def endless(connection: Any, _transport: Any) -> None:
        for _ in range(4):
            connection.data_received(b"x" * 100)

    assert connected(endless).written.startswith(b"HTTP/1.1 431 ")


def test_a_request_that_has_begun_has_time() -> None:
    async def asks(connection: Any, _transport: Any) -> None:
        connection.data_received(b"GET / HTTP/1.1\r\n\r\n")
        connection.data_received(b"x" * 1000)  # its body
        await longer_than_the_limit()

    assert connected(asks).written == b""


def test_the_next_request_of_a_connection_is_waited_for_from_its_first_byte_on() -> None:
    async def asks_again(connection: Any, transport: Transport) -> None:
        connection.data_received(b"GET / HTTP/1.1\r\n\r\n")
        connection.cycle.response_complete = True
        await longer_than_the_limit()
        assert not transport.closed, "an idle connection is the server's own matter"
        connection.data_received(b"GET")
        await longer_than_the_limit()

    assert connected(asks_again).written.startswith(b"HTTP/1.1 408 ")


def test_a_connection_that_ended_is_not_written_to() -> None:
    async def ends(connection: Any, _transport: Any) -> None:
        connection.connection_lost(None)
        await longer_than_the_limit()

    assert connected(ends).written == b""


def test_a_connection_that_became_another_protocols_is_left_alone() -> None:
    async def upgrades(connection: Any, transport: Transport) -> None:
        transport.protocol = object()
        connection.data_received(b"GET")
        await longer_than_the_limit()

    assert connected(upgrades).written == b""


@pytest.mark.parametrize(
    ("method", "path", "is_told"),
    [("GET", "/health", False), ("GET", "/healthy", True), ("POST", "/health", True), ("GET", "/v1/models", True)],
)
def test_the_journal_tells_of_all_but_looks_at_the_health_page(method: str, path: str, is_told: bool) -> None:
    words = ("127.0.0.1:9", method, path, "1.1", 200)
    record = logging.LogRecord("uvicorn.access", logging.INFO, "", 0, '%s - "%s %s HTTP/%s" %d', words, None)
    assert is_worth_a_line(record) is is_told


def test_the_switch_knows_each_place_in_which_it_looks_for_a_key() -> None:
    """Else clients that the program would take are refused before it."""
    known = (paths.roles() / "switch/vars/main.yml").read_text(encoding="utf-8")
    assert [name for name in KEY_HEADERS if f"'{name.decode()}'" not in known] == []
