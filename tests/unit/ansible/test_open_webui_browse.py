"""What leads a browser into the switch by its socket, and how a browser is driven; the scenario has the real ones."""

from __future__ import annotations

import importlib
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.http_servers import HERE, QuietHandler, served

PROGRAMS = Path(__file__).resolve().parents[3] / "roles/open_webui/programs"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"


@pytest.fixture
def browse(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The program as a module: it finds others beside it, as in a container."""
    monkeypatch.syspath_prepend(PROGRAMS)
    yield importlib.import_module("browse")
    for name in ("browse", "client", "webdriver"):
        sys.modules.pop(name, None)


@pytest.fixture
def inside(browse: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[bytes]]:
    """A server at the socket; what it was asked."""
    asked: list[bytes] = []
    path = str(tmp_path / "inside.sock")
    monkeypatch.setattr(browse, "INSIDE", path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()

        def serve() -> None:
            while True:
                try:
                    link, _ = server.accept()
                except OSError:
                    return
                with link:
                    asked.append(link.recv(65536))
                    link.sendall(ANSWER)

        threading.Thread(target=serve, daemon=True).start()
        yield asked
        server.shutdown(socket.SHUT_RDWR)


def test_a_port_of_this_machine_leads_inside_and_back_as_long_as_it_is_asked_for(
    browse: Any, inside: list[bytes]
) -> None:
    with browse.led_inside() as address:
        host, port = address.removeprefix("http://").split(":")
        assert host == "127.0.0.1"
        for _ in range(3):
            with socket.create_connection((host, int(port)), 10) as link:
                link.sendall(b"GET / HTTP/1.1\r\n\r\n")
                assert link.makefile("rb").read() == ANSWER
    assert inside == [b"GET / HTTP/1.1\r\n\r\n"] * 3
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((host, int(port)), 10)


def test_where_nobody_is_inside_the_connection_ends(
    browse: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(browse, "INSIDE", str(tmp_path / "nobody.sock"))
    with browse.led_inside() as address:
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), 10) as link:
            assert link.recv(10) == b""


class Driver(ThreadingHTTPServer):
    """A stand-in for the browser's driver, with WebDriver's forms; ``says`` answers what is not a session."""

    says: Callable[[str, str], tuple[int, Any]]


class Handler(QuietHandler):
    """Answers JSON."""

    def do_POST(self) -> None:
        """Whatever was asked."""
        self._answer("POST")

    def do_GET(self) -> None:
        """Whatever was asked."""
        self._answer("GET")

    def _answer(self, method: str) -> None:
        assert isinstance(self.server, Driver)
        self.content()
        path = self.path.removeprefix("/session").removeprefix("/7")
        status, value = (200, {"sessionId": "7"}) if self.path == "/session" else self.server.says(method, path)
        body = json.dumps({"value": value}).encode()
        self.give(status, body)


@pytest.fixture
def driven(browse: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """A browser whose driver answers by a function."""
    webdriver = sys.modules["webdriver"]
    for name, value in (("POLL_S", 0.01), ("PATIENCE_S", 0.2)):
        monkeypatch.setattr(webdriver, name, value)
    with served(Driver(HERE, Handler)) as server:

        def begun(says: Callable[[str, str], tuple[int, Any]]) -> Any:
            server.says = says
            return browse.Browser(f"http://127.0.0.1:{server.server_port}")

        yield begun


def test_an_element_is_waited_for_and_written_into_once_nothing_is_in_front_of_it(driven: Callable[..., Any]) -> None:
    refusals = [(404, {"error": "no such element"}), (400, {"error": "element not interactable"})]
    cleared: list[str] = []

    def says(_method: str, path: str) -> tuple[int, Any]:
        if path == "/execute/sync":
            cleared.append(path)
            return 200, None
        if refusals and path.endswith("/value") == ("interactable" in refusals[0][1]["error"]):
            return refusals.pop(0)
        return 200, {"element-6066-11e4-a52e-4f735466cecf": "1"}

    driven(says).write("#chat-input", "hello", clears="close()")
    assert not refusals
    assert len(cleared) == 2, "before each try"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((404, {"error": "no such element"}), "its page has no #chat-input: what is seen"),
        ((400, {"error": "element not interactable"}), "something is in front of #chat-input: what is seen"),
        ((400, {"error": "invalid session id"}), "its driver refuses /element/1/value: .*invalid session id"),
    ],
)
def test_what_does_not_come_is_told_with_what_is_seen(
    browse: Any, driven: Callable[..., Any], answer: tuple[int, Any], words: str
) -> None:
    def says(_method: str, path: str) -> tuple[int, Any]:
        if path == "/execute/sync":
            return 200, "what\n is seen"
        if path == "/element" and answer[0] != 404:
            return 200, {"element-6066-11e4-a52e-4f735466cecf": "1"}
        return answer

    with pytest.raises(browse.BrowserError, match=words):
        driven(says).write("#chat-input", "hello")


def test_a_driver_that_does_not_start_is_told_in_the_words_of_systemd(
    browse: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        ran.append(" ".join(command[:2]))
        code = int(command[0] == "systemd-run")
        return subprocess.CompletedProcess(command, code, "", "Failed to find executable /usr/bin/chromedriver\n")

    monkeypatch.setattr(browse, "_run", run)
    with pytest.raises(browse.BrowserError, match="its driver does not start: Failed to find"), browse.driver():
        pytest.fail("there is no driver")
    assert ran == ["systemctl stop", "systemd-run --quiet"], "one that a killed proof has left is ended first"


@pytest.mark.parametrize("said", [b"<html>", b"[]", b"{}", b'"value"'])
def test_what_is_no_webdriver_is_told(
    browse: Any, driven: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    browser = driven(lambda _method, _path: (200, None))
    monkeypatch.setattr(sys.modules["webdriver"].json, "loads", lambda _text: json.JSONDecoder().decode(said.decode()))
    with pytest.raises(browse.BrowserError, match="with what WebDriver does not say"):
        browser.text()
