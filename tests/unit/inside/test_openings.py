"""``openings``: which sockets listen in a container, and what answers strangers there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from provisioner.inside import exposure
from provisioner.inside.exposure import DISGUISED, ELSEWHERE, FOREIGN, PLAIN, WRONG, WRONG_KEY
from tests.http_servers import HERE, QuietHandler, served

PAGE = {
    "/health": {"get": {}},
    "/v1/models": {"get": {}},
    "/invocations": {"post": {"requestBody": {}}},
    "/sleep": {"post": {}},
    "/v1/responses/{response_id}": {"get": {}, "delete": {}},
}
KEY = "Bearer sk-the-real-key"


class Server(QuietHandler):
    """A server with these routes, which asks for a key before all but those in ``open``."""

    asked: ClassVar[list[tuple[str, str, dict[str, str], bytes]]] = []
    statuses: ClassVar[dict[str, int]] = {}
    further: ClassVar[dict[str, str]] = {}
    bodies: ClassVar[dict[str, bytes]] = {}

    def answer(self) -> None:
        """Status as in the table, 404 for what is not there."""
        body = self.content()
        path = self.requestline.split()[1]  # as it was sent: http.server itself reads "//" as "/"
        self.asked.append((self.command, path, dict(self.headers), body))
        content = json.dumps({"paths": PAGE}).encode() if path == "/openapi.json" else b""
        content = self.bodies.get(path, content)
        self.send_response(self.statuses.get(path, 404))
        self.send_header("Content-Length", str(len(content)))
        for name, value in self.further.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = answer  # as http.server calls them


CLOSED = {"/health": 200, "/v1/models": 401, "/invocations": 401, "/sleep": 404, "/openapi.json": 200}


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server all of whose routes but its health page ask for a key."""
    for name, value in (("asked", []), ("statuses", dict(CLOSED)), ("further", {}), ("bodies", {})):
        monkeypatch.setattr(Server, name, value)
    with served(ThreadingHTTPServer(HERE, Server)) as server:
        yield f"http://127.0.0.1:{server.server_port}"


def asked_of(address: str, **door: Any) -> dict[str, Any]:
    """The answer of one door of that address; without more, each way is taken."""
    said = {"name": "it", "url": address, "ways": {PLAIN: None}, "timeout_s": 5, "open": ["GET /health"], **door}
    (answer,) = exposure.look({"doors": [said], "most": 1000, "within_s": 60})["doors"]
    return dict(answer)


def sent() -> list[tuple[str, str]]:
    return [(method, path) for method, path, _, _ in Server.asked if path != "/openapi.json"]


def test_each_route_of_the_document_is_asked_without_a_key_and_what_answers_is_told(address: str) -> None:
    Server.statuses["/invocations"] = 422
    answer = asked_of(address, document=f"{address}/openapi.json")
    assert answer["answered"] == [["POST", "/invocations", 422, PLAIN]]
    assert not any("Authorization" in headers for _, _, headers, _ in Server.asked)


@pytest.mark.parametrize("status", [400, 405, 415, 422, 500, 200, 204, 206, 503])
def test_whatever_answers_before_a_key_is_asked_for_is_open(address: str, status: int) -> None:
    Server.statuses["/v1/models"] = status
    assert asked_of(address, routes=[["GET", "/v1/models"]])["answered"] == [["GET", "/v1/models", status, PLAIN]]


@pytest.mark.parametrize("status", [401, 403, 404, 301, 307])
def test_what_gives_nothing_is_closed(address: str, status: int) -> None:
    Server.statuses["/v1/models"] = status
    answer = asked_of(address, routes=[["GET", "/v1/models"]])
    assert (answer["asked"], answer["answered"]) == (1, [])


def test_what_would_do_something_without_a_body_is_only_looked_at(address: str) -> None:
    answer = asked_of(address, document=f"{address}/openapi.json")
    assert ("POST", "/sleep") not in sent()
    assert ("DELETE", "/v1/responses/x") not in sent()
    assert ("GET", "/sleep") in sent()
    assert answer["answered"] == []
    Server.statuses["/sleep"] = 405  # so a server answers that would take the other method without a key
    document = f"{address}/openapi.json"
    assert asked_of(address, document=document)["answered"] == [["GET", "/sleep", 405, PLAIN]]
    assert asked_of(address, document=document, open=["GET /health", "POST /sleep"])["answered"] == []
    Server.bodies["/sleep"] = b'{"error": {"message": "Use POST."}}'  # the switch itself, which asks for a key
    assert asked_of(address, document=document)["answered"] == []


def test_bodies_are_of_no_use_to_any_server(address: str) -> None:
    asked_of(address, routes=[["POST", "/invocations"], ["PUT", "/x"], ["GET", "/v1/models"], ["DELETE", "/x"]])
    bodies = {method: body for method, _, _, body in Server.asked}
    assert bodies == {"POST": b"0", "PUT": b"0", "GET": b"", "DELETE": b""}


def test_what_the_switch_says_of_a_method_is_closed_and_what_the_server_says_is_not(address: str) -> None:
    Server.statuses["/v1/models"] = 405
    Server.bodies["/v1/models"] = b'{"error": {"message": "Use POST.", "type": "invalid_request_error", "code": 405}}'
    assert asked_of(address, routes=[["GET", "/v1/models"]])["answered"] == []
    Server.bodies["/v1/models"] = b'{"detail":"Method Not Allowed"}'
    assert asked_of(address, routes=[["GET", "/v1/models"]])["answered"] != []


def test_strangers_come_with_a_wrong_key_from_a_foreign_page_and_in_disguise(address: str) -> None:
    asked_of(address, routes=[["GET", "/v1/models"]], ways={WRONG: None, ELSEWHERE: None, DISGUISED: None})
    wrong, foreign, *disguised = Server.asked
    assert (wrong[2]["Authorization"], wrong[2]["X-Api-Key"]) == (WRONG_KEY, WRONG_KEY.removeprefix("Bearer "))
    assert (foreign[2]["Origin"], foreign[2]["Host"]) == (f"https://{FOREIGN}", FOREIGN)
    paths = [path for _, path, _, _ in disguised]
    assert paths == [
        "//v1/models",
        "/./v1/models",
        "/v1/models/",
        "/v1/models;x",
        "/x/../v1/models",
        "/%761/models",
        "/V1/MODELS",
    ]


@pytest.mark.parametrize(
    ("way", "path"), [(WRONG, "/v1/models"), (ELSEWHERE, "/v1/models"), (DISGUISED, "//v1/models")]
)
def test_each_way_in_is_told_by_its_name(address: str, way: str, path: str) -> None:
    Server.statuses[path] = 200
    answer = asked_of(address, routes=[["GET", "/v1/models"]], ways={way: None})
    assert answer["answered"] == [["GET", path, 200, way]]


def test_a_way_is_taken_for_as_many_routes_as_are_asked_for(address: str) -> None:
    routes = [["GET", f"/{number}"] for number in range(9)]
    assert asked_of(address, routes=routes, ways={PLAIN: 4, WRONG: 2})["asked"] == 6


def test_who_knows_no_key_is_asked_for_what_is_not_passed_alone(address: str) -> None:
    Server.statuses |= {"/v1/models": 200, "/web/a/b": 200, "/v1/audio": 200, "/debug": 200}
    routes = [["GET", path] for path in ("/v1/models", "/web/a/b", "/v1/audio", "/v1/audio/x", "/debug")]
    answer = asked_of(address, routes=routes, passed=["GET /v1/models", "GET /web/**", "GET /v1/audio/*"])
    assert [path for _, path, _, _ in answer["answered"]] == ["/v1/audio", "/debug"]
    assert answer["asked"] == 2


def test_of_what_is_asleep_nothing_is_asked_that_could_wake_it(address: str) -> None:
    asked_of(address, document=f"{address}/openapi.json", looks_only=True, routes=[["POST", "/v1/chat/completions"]])
    assert {method for method, _ in sent()} == {"GET"}
    assert ("GET", "/sleep") not in sent()


def test_the_front_page_in_the_place_of_what_is_not_there_is_closed(address: str) -> None:
    Server.statuses |= {"/": 200, "/unknown": 200, "/v1/models": 200}
    Server.bodies |= {"/": b"<html>sign in", "/unknown": b"<html>sign in", "/v1/models": b'{"data": []}'}
    answer = asked_of(address, front=True, routes=[["GET", "/unknown"], ["GET", "/v1/models"], ["GET", "/"]])
    assert [path for _, path, _, _ in answer["answered"]] == ["/v1/models"]
    Server.statuses |= {exposure.NOWHERE: 405, "/elsewhere": 405, "/there": 405}
    Server.bodies |= {exposure.NOWHERE: b"not here", "/elsewhere": b"not here", "/there": b"another method, please"}
    answer = asked_of(address, front=True, routes=[["POST", "/elsewhere"], ["POST", "/there"]])
    assert [path for _, path, _, _ in answer["answered"]] == ["/there"]
    assert "/unknown" in [path for _, path, _, _ in asked_of(address, routes=[["GET", "/unknown"]])["answered"]]


CONFIG = {"features": {"signup": False}}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (CONFIG, []),
        ({"features": {"signup": True}}, [["GET", "/config", 200, "with features.signup: true"]]),
        ({"features": []}, [["GET", "/config", 200, "with features.signup: null"]]),
        ([], [["GET", "/config", 200, "with features.signup: null"]]),
    ],
)
def test_what_an_open_page_has_to_say_is_read(address: str, content: Any, told: list[list[Any]]) -> None:
    Server.statuses["/config"] = 200
    Server.bodies["/config"] = json.dumps(content).encode()
    tells = [["/config", ["features", "signup"], False]]
    assert asked_of(address, open=["GET /config"], tells=tells)["answered"] == told


@pytest.mark.parametrize(("headers", "silent"), [({"Retry-After": "10"}, 1), ({}, 0)])
def test_who_is_told_to_come_again_has_had_no_answer(address: str, headers: dict[str, str], silent: int) -> None:
    Server.statuses["/v1/models"] = 503
    Server.further |= headers
    answer = asked_of(address, routes=[["GET", "/v1/models"]])
    assert (answer["silent"], len(answer["answered"])) == (silent, 1 - silent)


def test_a_door_behind_which_nobody_is_answers_nothing(address: str) -> None:
    answer = asked_of("http://127.0.0.1:9", document=f"{address}/openapi.json")
    assert (answer["asked"], answer["silent"], answer["answered"]) == (4, 4, [])


def test_a_server_that_tells_no_routes_is_said(address: str) -> None:
    answer = asked_of(address, document=f"{address}/gone", routes=[["GET", "/v1/models"]])
    assert answer["problem"] == f"{address}/gone: HTTP 404"
    assert answer["asked"] == 1


def test_after_so_many_requests_and_so_long_nothing_more_is_asked(address: str) -> None:
    door = {"name": "it", "url": address, "ways": {PLAIN: None}, "routes": [["GET", f"/{n}"] for n in range(9)]}
    (answer,) = exposure.look({"doors": [door], "most": 4, "within_s": 60})["doors"]
    assert (answer["asked"], answer["left"], len(Server.asked)) == (4, 5, 4)
    (answer,) = exposure.look({"doors": [door], "most": 4, "within_s": -1})["doors"]
    assert (answer["asked"], answer["left"]) == (0, 9)


class Dripping(QuietHandler):
    """A server whose answer never ends."""

    def do_GET(self) -> None:  # as http.server calls it
        """A piece, and then one more each moment."""
        self.send_response(200)
        self.end_headers()
        end = time.monotonic() + 30
        while time.monotonic() < end:
            try:
                self.wfile.write(os.urandom(1))
            except OSError:
                return
            time.sleep(0.02)  # it is the server that is slow: nobody waits for anything here


@pytest.mark.parametrize("front", [False, True])
def test_an_answer_without_an_end_is_not_waited_for(front: bool) -> None:
    begun = time.monotonic()
    with served(ThreadingHTTPServer(HERE, Dripping)) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        answer = asked_of(url, routes=[["GET", "/metrics"]], timeout_s=0.5, front=front)
    assert time.monotonic() - begun < 5
    assert [path for _, path, _, _ in answer["answered"]] == ["/metrics"]


SS = """\
udp UNCONN 0      0         127.0.0.53%lo:53        0.0.0.0:* users:(("systemd-resolve",pid={pid},fd=18))
udp UNCONN 0      0      10.89.77.71%eth0:68        0.0.0.0:*
tcp LISTEN 0      4096         10.89.77.7:8080      0.0.0.0:* users:(("haproxy",pid=0,fd=5),("haproxy",pid=0,fd=5))
tcp LISTEN 0      4096 [fe80::1]%eth0:546           [::]:* users:(("python3",pid={pid},fd=14))
tcp LISTEN 0      4096                 *:9000             *:* users:(("python3",pid={pid},fd=14))
"""


def test_sockets_are_read_as_ss_tells_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposure, "_unit_of", lambda process: f"unit-{process}.service")
    assert exposure.sockets_in(SS.format(pid=7)) == [
        ["udp", "127.0.0.53", 53, "unit-7.service"],
        ["udp", "10.89.77.71", 68, ""],
        ["tcp", "10.89.77.7", 8080, "unit-0.service"],
        ["tcp", "fe80::1", 546, "unit-7.service"],
        ["tcp", "::", 9000, "unit-7.service"],
    ]


def test_a_process_that_has_gone_has_no_unit_any_more() -> None:
    assert exposure.sockets_in(SS.format(pid=2**30))[0] == ["udp", "127.0.0.53", 53, ""]


def test_it_runs_alone_as_containers_run_it(address: str) -> None:
    """With nothing but Python's own library, from its text."""
    text = Path(exposure.__file__).read_text(encoding="utf-8")
    door = {"name": "it", "url": address, "ways": {PLAIN: None}, "routes": [["GET", "/health"]], "timeout_s": 5}
    question = json.dumps({"sockets": False, "doors": [door], "most": 5, "within_s": 5})
    command = [sys.executable, "-BEsSc", text]
    done = subprocess.run(command, input=question, capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout) == {
        "sockets": [],
        "problem": "",
        "doors": [
            {
                "name": "it",
                "url": address,
                "answered": [["GET", "/health", 200, PLAIN]],
                "problem": "",
                "asked": 1,
                "silent": 0,
                "left": 0,
            }
        ],
    }
