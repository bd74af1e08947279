"""How Open WebUI is asked, by its API and by a browser; the scenario has the real ones."""

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
from types import SimpleNamespace
from typing import Any

import pytest

from tests.http_servers import HERE, QuietHandler, served
from tests.scenario_programs import module_at

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


CLIENT = Path(__file__).resolve().parents[3] / "roles/open_webui/programs/client.py"


client = module_at(CLIENT)


class Answers(ThreadingHTTPServer):
    """A stand-in that gives these answers one after the other."""

    answers: list[tuple[int, Any]]


class NextAnswer(QuietHandler):
    """Answers with the next one; the last one stays."""

    def do_POST(self) -> None:
        """Whatever was asked."""
        assert isinstance(self.server, Answers)
        self.content()
        answers = self.server.answers
        status, said = answers.pop(0) if len(answers) > 1 else answers[0]
        self.give(status, json.dumps(said).encode())


@pytest.fixture
def answering() -> Iterator[Answers]:
    with served(Answers(HERE, NextAnswer)) as made:
        yield made


def asks(answering: Answers, *answers: tuple[int, Any], patience_s: float = 20.0) -> Any:
    answering.answers = list(answers)
    return client.Client(f"http://127.0.0.1:{answering.server_port}", 5.0, patience_s)


SIGNED_IN = (200, {"token": "t", "role": "admin"})
TOO_OFTEN = (429, {"detail": "The rate limit is exceeded"})


def test_who_has_signed_in_too_often_comes_again(answering: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "AGAIN_S", 0.01)
    asked = asks(answering, TOO_OFTEN, TOO_OFTEN, SIGNED_IN)
    asked.sign_in("penny@home.example", "secret")
    assert (asked.token, asked.role) == ("t", "admin")


def test_and_so_seldom_that_its_own_tries_are_not_too_many(answering: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    most, within_s, tries = 15, 180, [0.0]
    clock = SimpleNamespace(monotonic=lambda: tries[-1], sleep=lambda seconds: tries.append(tries[-1] + seconds))
    monkeypatch.setattr(client, "time", clock)
    with pytest.raises(client.AnswerError, match="status 429"):
        asks(answering, TOO_OFTEN, patience_s=client.PATIENCE_S).sign_in("penny@home.example", "secret")
    assert len([moment for moment in tries if moment < within_s]) < most
    assert tries[-1] >= within_s + client.AGAIN_S, "one comes when those before it count no more"


def test_and_does_so_no_longer_than_it_has_patience(answering: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "AGAIN_S", 0.01)
    with pytest.raises(client.AnswerError, match="status 429, The rate limit is exceeded"):
        asks(answering, TOO_OFTEN, patience_s=0.05).sign_in("penny@home.example", "secret")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((400, {"detail": "wrong"}), "status 400, wrong"),
        ((200, {"id": "1"}), "signing in gave no token"),
        ((200, ["a"]), "answered with list instead of a mapping"),
    ],
)
def test_a_sign_in_that_gives_no_token_is_told(answering: Answers, answer: tuple[int, Any], words: str) -> None:
    with pytest.raises(client.AnswerError, match=words):
        asks(answering, answer).sign_in("penny@home.example", "secret")


def test_what_others_say_in_several_lines_is_one(answering: Answers) -> None:
    """Of what a program of ours ended with, the last line is told: LiteLLM's words, which have two, hid the rest."""
    with pytest.raises(client.AnswerError) as caught:
        asks(answering, (500, {"detail": "no answer.\nNo fallback\r\n was tried."})).ask("POST", "/x")
    assert str(caught.value) == "POST /x: status 500, no answer. No fallback was tried."


def test_what_the_other_side_repeats_of_secrets_is_masked() -> None:
    assert client.masked("said sk-1 and pw", ["sk-1", "pw", ""]) == "said ******** and ********"
