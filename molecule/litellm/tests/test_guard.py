"""What stands in front of the gateway: requests that would end it, paths that nobody should reach."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection
from itertools import repeat
from pathlib import Path

import pytest
from testinfra.host import Host

from tests.case_files import read_case

SCENARIO = Path(__file__).resolve().parents[1]
BEHIND, PORT = 14000, 24000
"""Where the gateway listens on 127.0.0.1, behind the switch; and a relay to it, so that the guard itself is asked."""
MIB = 2**20
LARGER_THAN_ITS_MEMORY = 2200 * MIB
LARGEST_BODY = 32 * MIB  # the role's default
READ_ON = 200 * MIB
"""More than a refused body may cost: what is read on of it, and what lies in the buffers of two kernels and a relay."""
GROWTH = 150 * MIB
"""By how much the gateway's memory may grow while it refuses: a body of the largest size, some times over."""
LATER_S = 5.0
ATTEMPTS = 3

VARS = read_case(SCENARIO / "vars.yml")
BEARER = f"authorization: Bearer {VARS['litellm_master_key']}\r\n"
HEADERS_S: int = VARS["litellm_headers_timeout"]
BODY_S: int = VARS["litellm_body_timeout"]
ASKS = "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\n"
CHUNKED = "transfer-encoding: chunked\r\n"


@dataclass(frozen=True)
class Gateway:
    """The gateway and its process."""

    address: str
    host: Host

    def connect(self) -> socket.socket:
        """A connection to it."""
        return socket.create_connection((self.address, PORT), timeout=60)

    def send(self, head: str, parts: Iterable[bytes] = (), pause_s: float = 0.0) -> tuple[str, int, float]:
        """The head of the answer, how much of the body went out until it came, and the seconds that it all took.

        The relay loses an answer when the gateway ends the connection in the middle of what it has not read: then it is
        asked again.
        """
        all_parts = list(parts)
        for _ in range(ATTEMPTS - 1):
            answer, sent, took_s = self._send(head, all_parts, pause_s)
            if answer:
                return answer, sent, took_s
        return self._send(head, all_parts, pause_s)

    def _send(self, head: str, parts: Sequence[bytes], pause_s: float) -> tuple[str, int, float]:
        began, sent = time.monotonic(), 0
        with self.connect() as connection:
            # The gateway may end the connection while this side still writes.
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(head.encode())
                for part in parts:
                    connection.sendall(part)
                    sent += len(part)
                    time.sleep(pause_s)
            answer = b""
            with suppress(ConnectionResetError):
                while b"\r\n\r\n" not in answer and (more := connection.recv(65536)):
                    answer += more
        return answer.decode("latin-1"), sent, time.monotonic() - began

    def status(self, head: str, *parts: bytes) -> int:
        """The answer's status."""
        answer, _, _ = self.send(head, parts)
        return int(answer.split(" ")[1])

    def get(self, path: str, *headers: str) -> int:
        """The status of a path, asked for as it is written."""
        return self.status(f"GET {path} HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\n{''.join(headers)}\r\n")

    def process(self) -> str:
        """The gateway's main process."""
        return str(self.host.check_output("systemctl show --property MainPID --value litellm.service"))

    def memory(self) -> int:
        """The most that the process ever took."""
        status = self.host.check_output(f"cat /proc/{self.process()}/status")
        return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))


@pytest.fixture(scope="module")
def gateway(host: Host) -> Iterator[Gateway]:
    """The gateway, whose process outlives all of these tests without having grown."""
    relay = f"/lib/systemd/systemd-socket-proxyd 127.0.0.1:{BEHIND}"
    host.check_output(f"systemd-run --quiet --unit=relay --socket-property=ListenStream={PORT} {relay}")
    gateway = Gateway(host.check_output("hostname -I").split()[0], host)
    assert gateway.get("/v1/models", BEARER) == 200, "it is warm"
    before, memory = gateway.process(), gateway.memory()
    yield gateway
    assert gateway.process() == before
    assert gateway.memory() - memory < GROWTH
    assert gateway.get("/v1/models", BEARER) == 200
    host.check_output("systemctl stop relay.socket relay.service")


def stream() -> Iterable[bytes]:
    """A body that is larger than the memory of the gateway's container, in chunks."""
    return repeat(f"{MIB:x}\r\n".encode() + b"x" * MIB + b"\r\n", LARGER_THAN_ITS_MEMORY // MIB)


def test_a_body_larger_than_its_memory_is_cut_where_it_is_too_large(gateway: Gateway) -> None:
    answer, sent, _ = gateway.send(f"{ASKS}{BEARER}{CHUNKED}\r\n", stream())
    assert answer.startswith("HTTP/1.1 413 "), answer
    assert sent < LARGEST_BODY + READ_ON


def test_a_body_of_somebody_without_the_key_is_not_read(gateway: Gateway) -> None:
    answer, sent, _ = gateway.send(f"{ASKS}{CHUNKED}\r\n", stream())
    assert answer.startswith("HTTP/1.1 401 "), answer
    assert sent < READ_ON


def test_a_body_that_is_announced_as_too_large_is_refused_at_once(gateway: Gateway) -> None:
    answer, _, took_s = gateway.send(f"{ASKS}{BEARER}content-length: {LARGEST_BODY + 1}\r\n\r\n")
    assert answer.startswith("HTTP/1.1 413 ")
    assert took_s < LATER_S


def test_who_writes_first_and_reads_then_is_told(gateway: Gateway) -> None:
    body = b"x" * (LARGEST_BODY + 8 * MIB)
    answer, sent, _ = gateway.send(f"{ASKS}{BEARER}content-length: {len(body)}\r\n\r\n", [body])
    assert answer.startswith("HTTP/1.1 413 ")
    assert sent == len(body)


def test_a_body_of_the_largest_size_is_read(gateway: Gateway) -> None:
    question = json.dumps({"model": "nobody", "messages": [{"role": "user", "content": ""}]}).encode()
    body = question.replace(b'""', b'"' + b"x" * (LARGEST_BODY - len(question)) + b'"')
    assert len(body) == LARGEST_BODY
    assert gateway.status(f"{ASKS}{BEARER}content-length: {len(body)}\r\n\r\n", body) == 400, "there is no such model"


def test_a_body_without_an_end_is_not_waited_for(gateway: Gateway) -> None:
    answer, _, took_s = gateway.send(f"{ASKS}{BEARER}content-length: 100\r\n\r\n", [b"{"])
    assert answer.startswith("HTTP/1.1 408 ")
    assert BODY_S <= took_s < BODY_S + LATER_S


@pytest.mark.parametrize("begun", ["", "GET /v1/models HTTP/1.1\r\n"], ids=["silent", "begun"])
def test_headers_without_an_end_are_not_waited_for(gateway: Gateway, begun: str) -> None:
    trickle = repeat(b"x-more: y\r\n", 20 * HEADERS_S) if begun else ()
    answer, _, took_s = gateway.send(begun, trickle, pause_s=0.1)
    assert answer.startswith("HTTP/1.1 408 ")
    assert HEADERS_S - 0.5 <= took_s < HEADERS_S + LATER_S


def test_headers_that_are_too_large_are_not_read(gateway: Gateway) -> None:
    endless = f"GET /v1/models HTTP/1.1\r\nhost: gateway\r\n{BEARER}x-more: "
    answer, sent, _ = gateway.send(endless, repeat(b"y" * 65536, 1000))
    assert answer.startswith(("HTTP/1.1 431 ", "HTTP/1.1 400 "))
    assert sent < READ_ON
    assert gateway.status(f"{endless}{'y' * 70000}\r\n\r\n") in (400, 431)


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/ui/", "/ui", "/fallback/login", "/routes", "/public/litellm_model_cost_map", "/docs", "/openapi.json"),
        *("/health", "/key/generate", "/config/yaml", "/model/info", "/metrics", "/sso/key/generate", "/.well-known/x"),
        *(
            "//ui/",
            "/v1/../ui/",
            "/v1/%2e%2e/ui/",
            "/%75i/",
            "/v1//models",
            "/v1/models/",
            "/V1/Models",
            "/v1/models;a",
        ),
        *("/v1/models/..", "/v1/models%00", "http://gateway/ui/", "http://gateway/v1/models", "/v1/models/a/b"),
    ],
)
def test_what_is_not_on_the_list_does_not_exist_with_and_without_the_key(gateway: Gateway, path: str) -> None:
    assert [gateway.get(path, BEARER), gateway.get(path)] == [404, 404]


def test_a_websocket_is_no_way_around(gateway: Gateway) -> None:
    upgrade = "upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    head = "GET {} HTTP/1.1\r\nhost: gateway\r\nconnection: upgrade\r\n" + upgrade
    assert gateway.status(head.format("/v1/realtime?model=first") + BEARER + "\r\n") == 404
    assert gateway.status(head.format("/v1/models") + "\r\n") == 401


@pytest.mark.parametrize("path", ["/v1/models", "/models", "/v1/chat/completions", "/v1/messages", "/v1/audio/speech"])
@pytest.mark.parametrize("key", ["", "authorization: Bearer sk-wrong\r\n", "x-api-key: sk-wrong\r\n"])
def test_no_key_and_a_wrong_one_are_the_same(gateway: Gateway, path: str, key: str) -> None:
    assert gateway.get(path, key) == 401


def test_the_key_may_stand_where_other_clients_write_it(gateway: Gateway) -> None:
    assert gateway.get("/v1/models", f"x-api-key: {VARS['litellm_master_key']}\r\n") == 200
    assert gateway.get("/v1/models/first?x=y", BEARER) == 200


@pytest.mark.parametrize("path", ["/health/readiness", "/health/liveliness", "/health/liveness"])
def test_what_says_that_it_runs_wants_no_key(gateway: Gateway, path: str) -> None:
    assert gateway.get(path) == 200


def test_a_page_of_a_browser_may_ask_whether_it_may_ask(gateway: Gateway) -> None:
    question = "origin: http://page\r\naccess-control-request-method: POST\r\nconnection: close\r\n\r\n"
    assert gateway.status(f"OPTIONS /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\n{question}") == 200


def test_a_connection_is_used_again_after_a_refusal_without_a_body(gateway: Gateway) -> None:
    connection = HTTPConnection(gateway.address, PORT, timeout=60)
    connection.connect()
    used = connection.sock
    for path, status in (("/ui/", 404), ("/v1/models", 401), ("/health/liveliness", 200)):
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        assert (answer.status, connection.sock) == (status, used)
    connection.close()


def test_nobody_but_root_writes_what_the_gateway_is_guarded_by(host: Host) -> None:
    folder = host.file("/usr/local/lib/litellm")
    assert (folder.user, folder.mode) == ("root", 0o755)
    for name in ("guard.py", "launch.py"):
        file = host.file(f"/usr/local/lib/litellm/{name}")
        assert (file.user, file.group, file.mode) == ("root", "root", 0o644)
    page = host.file("/etc/litellm/guard.json")
    assert (page.user, page.group, page.mode) == ("root", "litellm", 0o640)
