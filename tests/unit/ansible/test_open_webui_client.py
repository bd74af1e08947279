"""How Open WebUI is asked: what it says too often, wrongly or without an end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.http_servers import HERE, QuietHandler, served
from tests.scenario_programs import module_at

PROGRAM = Path(__file__).resolve().parents[3] / "roles/open_webui/programs/client.py"


client = module_at(PROGRAM)


class Server(ThreadingHTTPServer):
    """A stand-in that gives these answers one after the other."""

    answers: list[tuple[int, Any]]


class Handler(QuietHandler):
    """Answers with the next one; the last one stays."""

    def do_POST(self) -> None:
        """Whatever was asked."""
        assert isinstance(self.server, Server)
        self.content()
        answers = self.server.answers
        status, said = answers.pop(0) if len(answers) > 1 else answers[0]
        self.give(status, json.dumps(said).encode())


@pytest.fixture
def server() -> Iterator[Server]:
    with served(Server(HERE, Handler)) as made:
        yield made


def asks(server: Server, *answers: tuple[int, Any], patience_s: float = 20.0) -> Any:
    server.answers = list(answers)
    return client.Client(f"http://127.0.0.1:{server.server_port}", 5.0, patience_s)


SIGNED_IN = (200, {"token": "t", "role": "admin"})
TOO_OFTEN = (429, {"detail": "The rate limit is exceeded"})


def test_who_has_signed_in_too_often_comes_again(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "AGAIN_S", 0.01)
    asked = asks(server, TOO_OFTEN, TOO_OFTEN, SIGNED_IN)
    asked.sign_in("penny@home.example", "secret")
    assert (asked.token, asked.role) == ("t", "admin")


def test_and_so_seldom_that_its_own_tries_are_not_too_many(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    most, within_s, tries = 15, 180, [0.0]
    clock = SimpleNamespace(monotonic=lambda: tries[-1], sleep=lambda seconds: tries.append(tries[-1] + seconds))
    monkeypatch.setattr(client, "time", clock)
    with pytest.raises(client.AnswerError, match="status 429"):
        asks(server, TOO_OFTEN, patience_s=client.PATIENCE_S).sign_in("penny@home.example", "secret")
    assert len([moment for moment in tries if moment < within_s]) < most
    assert tries[-1] >= within_s + client.AGAIN_S, "one comes when those before it count no more"


def test_and_does_so_no_longer_than_it_has_patience(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "AGAIN_S", 0.01)
    with pytest.raises(client.AnswerError, match="status 429, The rate limit is exceeded"):
        asks(server, TOO_OFTEN, patience_s=0.05).sign_in("penny@home.example", "secret")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((400, {"detail": "wrong"}), "status 400, wrong"),
        ((200, {"id": "1"}), "signing in gave no token"),
        ((200, ["a"]), "answered with list instead of a mapping"),
    ],
)
def test_a_sign_in_that_gives_no_token_is_told(server: Server, answer: tuple[int, Any], words: str) -> None:
    with pytest.raises(client.AnswerError, match=words):
        asks(server, answer).sign_in("penny@home.example", "secret")


def test_what_others_say_in_several_lines_is_one(server: Server) -> None:
    """Of what a program of ours ended with, the last line is told: LiteLLM's words, which have two, hid the rest."""
    with pytest.raises(client.AnswerError) as caught:
        asks(server, (500, {"detail": "no answer.\nNo fallback\r\n was tried."})).ask("POST", "/x")
    assert str(caught.value) == "POST /x: status 500, no answer. No fallback was tried."


def test_what_the_other_side_repeats_of_secrets_is_masked() -> None:
    assert client.masked("said sk-1 and pw", ["sk-1", "pw", ""]) == "said ******** and ********"
