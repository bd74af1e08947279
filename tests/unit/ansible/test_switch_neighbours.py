"""How those who share a card ask one another: by real sockets, with what a stranger might say instead."""

from __future__ import annotations

import http.client
import json
import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from socketserver import BaseServer, ThreadingUnixStreamServer
from typing import Any

import pytest

from tests.http_servers import QuietHandler
from tests.unit.ansible.switch_programs import program

NAMES = ["chat/llama_cpp", "code/llama_cpp", "voice/kokoro"]
KEY = "the-key-of-those-who-share"


neighbours, turns = program("neighbours"), program("turns")


class Between:
    """What switches do: it leads ``/1`` to the keeper of the second one. Who is ``away`` is not reached."""

    def __init__(self, path: Path, keepers: list[Path]) -> None:
        self.path, self.keepers = path, keepers
        self.away: set[int] = set()
        self.says: dict[int, tuple[int, bytes, dict[str, str]]] = {}
        """What comes from a place instead of an answer of its keeper."""
        between = self

        class Handler(QuietHandler):
            def do_POST(self) -> None:
                status, body, heads = between.answer(int(self.path.lstrip("/")), self)
                self.give(status, body, *heads.items())

        self.server = ThreadingUnixStreamServer(str(path), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def answer(self, place: int, asked: QuietHandler) -> tuple[int, bytes, dict[str, str]]:
        """What the keeper at that place says."""
        content = asked.content()
        if place in self.away:
            return 503, b"{}", {}
        if place in self.says:
            return self.says[place]
        return raw(self.keepers[place], neighbours.RELEASE, content, asked.headers["Authorization"])


def raw(path: Path, route: str, content: bytes, authorization: str | None) -> tuple[int, bytes, dict[str, str]]:
    """What is answered at a socket, as it is."""
    connection = http.client.HTTPConnection("localhost", timeout=5)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(path))
    connection.request("POST", route, content, {"Authorization": authorization} if authorization else {})
    answer = connection.getresponse()
    return answer.status, answer.read(), {}


class House:
    """Three keepers that share a card."""

    def __init__(self, folder: Path) -> None:
        self.sockets = [folder / f"{place}.sock" for place in range(len(NAMES))]
        self.said: list[str] = []
        self.switch = Between(folder / "switch.sock", self.sockets)
        self.keepers = [self._keeper(place) for place in range(len(NAMES))]
        servers = [keeper.listen(path) for keeper, path in zip(self.keepers, self.sockets, strict=True)]
        self.servers = [self.switch.server, *servers]

    def _keeper(self, place: int) -> Any:
        turn = turns.Turn(place, len(NAMES), holds=False)
        return neighbours.Neighbours(NAMES, turn, KEY, self.switch.path, self.said.append)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    for server in made.servers:  # not waited for: the program's own look up twice a second
        threading.Thread(target=_end, args=(server,), daemon=True).start()


def _end(server: BaseServer) -> None:
    server.shutdown()
    server.server_close()


def test_who_asks_first_has_the_card_and_hears_who_waits(house: House) -> None:
    chat, code, _ = house.keepers
    assert chat.seek()
    assert not code.seek()
    assert chat.called.is_set()
    assert chat.waiting() == ["code/llama_cpp"]
    chat.let_go()
    assert code.seek()
    assert not house.said


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((503, b"{}", {}), "its switch cannot be reached (HTTP 503)"),
        # it serves as it did before turns were asked for, and is told of them after this one
        ((404, b'{"granted": true}', {}), "its switch knows of no turns (HTTP 404)"),
    ],
)
def test_one_that_is_not_there_is_waited_for_and_then_done_without(
    house: House, monkeypatch: pytest.MonkeyPatch, answer: tuple[int, bytes, dict[str, str]], why: str
) -> None:
    chat = house.keepers[0]
    house.switch.says[1] = answer
    assert not chat.seek()
    assert not house.said
    monkeypatch.setattr(neighbours, "ABSENT_S", 0.0)
    assert chat.seek()
    assert house.said == [f"code/llama_cpp takes no part: {why}."]


def test_one_that_comes_back_is_asked_again_for_as_long(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    chat, code, _ = house.keepers
    house.switch.away.add(1)
    assert not chat.seek()
    house.switch.away.clear()
    assert chat.seek()
    chat.let_go()
    assert code.seek()
    house.switch.away.add(1)
    assert not chat.seek()  # the silence counts from now
    monkeypatch.setattr(neighbours, "ABSENT_S", 0.0)
    assert chat.seek()


@pytest.mark.parametrize(
    ("status", "body", "heads"),
    [
        (503, b"{}", {"X-Switch": "1"}),
        (502, b"{}", {}),
        (504, b"{}", {}),  # connected to, and silent: it may be frozen, with its engine on the card
        (403, b"{}", {}),
        (200, b"OK", {}),
        (200, b"[" * 1000, {}),
        (200, b"[true]", {}),
        (200, b"{}", {}),
        (200, b'{"granted": "yes", "holds": false, "count": 1}', {}),
        (200, b'{"granted": true, "holds": false, "count": -1}', {}),
        (200, b'{"granted": true, "holds": false, "count": true}', {}),
        (200, b'{"granted": true, "holds": false, "count": 1e400}', {}),
        (200, b'{"granted": true, "holds": false, "count": 99999999999999999999}', {}),
        (200, b'{"granted": true, "holds": false, "count": 1, "padding": "' + b"x" * 2000 + b'"}', {}),
    ],
)
def test_nothing_else_than_an_answer_gives_the_card(
    house: House, monkeypatch: pytest.MonkeyPatch, status: int, body: bytes, heads: dict[str, str]
) -> None:
    monkeypatch.setattr(neighbours, "ABSENT_S", 0.0)
    chat = house.keepers[0]
    house.switch.says[1] = (status, body, heads)
    assert not chat.seek()
    assert not chat.seek()
    assert len(house.said) == 1
    assert "code/llama_cpp was asked for the card" in house.said[0]
    del house.switch.says[1]
    assert chat.seek()


def test_a_switch_that_refuses_before_it_has_read_all_reaches_nobody(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HAProxy answers 503 as soon as it has read the head, and closes."""
    path = tmp_path / "hasty.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def refuse() -> None:
            for _ in range(2):
                connection = listener.accept()[0]
                connection.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
                connection.shutdown(socket.SHUT_RDWR)
                connection.close()

        threading.Thread(target=refuse, daemon=True).start()
        monkeypatch.setattr(neighbours, "ABSENT_S", 0.0)
        chat = house.keepers[0]
        chat.through = path
        assert chat.seek()
    assert [words.partition(" takes no part")[0] for words in house.said] == NAMES[1:]


def test_without_its_own_switch_it_takes_nobody_for_stopped(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "ABSENT_S", 0.0)
    chat = house.keepers[0]
    chat.through = chat.through.with_name("gone.sock")
    assert not chat.seek()
    assert not chat.seek()


def asked(**other: Any) -> bytes:
    """A question of the second one, with something else in it."""
    return json.dumps({"from": NAMES[1], "count": 1, "holds": False, **other}).encode()


def test_a_question_with_the_key_is_answered(house: House) -> None:
    status, body, _ = raw(house.sockets[0], neighbours.RELEASE, asked(), f"Bearer {KEY}")
    assert (status, json.loads(body)) == (200, {"granted": True, "holds": False, "count": 1})


@pytest.mark.parametrize("authorization", [None, "", "Bearer ", f"Bearer {KEY}x", KEY, "Bearer \xe4", f"bearer {KEY}"])
def test_without_the_key_nobody_gets_the_card(house: House, authorization: str | None) -> None:
    house.keepers[0].seek()
    status, body, _ = raw(house.sockets[0], neighbours.RELEASE, asked(), authorization)
    assert (status, body) == (403, b"{}")
    assert house.keepers[0].waiting() == []


def test_a_keeper_without_a_key_answers_nobody(house: House) -> None:
    house.keepers[0].key = ""
    assert raw(house.sockets[0], neighbours.RELEASE, asked(), "Bearer ")[0] == 403


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"no",
        b"[" * 1000,
        b"\xff",
        asked(count=-1),
        asked(count=2**53),
        asked(count=1.5),
        asked(count="1"),
        asked(count=True),
        asked(holds=0),
        asked(holds=None),
        asked(**{"from": "stranger/llama_cpp"}),
        asked(**{"from": NAMES[0]}),
        asked(**{"from": [NAMES[1]]}),
    ],
)
def test_what_is_no_question_of_another_one_is_refused(house: House, content: bytes) -> None:
    chat = house.keepers[0]
    chat.seek()
    assert raw(house.sockets[0], neighbours.RELEASE, content, f"Bearer {KEY}")[0] == 400
    assert chat.waiting() == []
    assert chat.turn.holds


@pytest.mark.parametrize("length", ["", "-1", "2000", "1e2", "9" * 5000])
def test_a_question_of_another_length_is_not_read(house: House, length: str) -> None:
    head = f"POST {neighbours.RELEASE} HTTP/1.1\r\nAuthorization: Bearer {KEY}\r\nContent-Length: {length}\r\n\r\n"
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(5)
        asking.connect(str(house.sockets[0]))
        asking.sendall(head.encode())
        assert asking.recv(1000).split()[1] == b"400"


def test_there_is_one_route_for_others(house: House) -> None:
    assert raw(house.sockets[0], "/state", asked(), f"Bearer {KEY}")[0] == 404


@pytest.mark.skipif(os.getuid() != 0, reason="a start of an engine is a process of root")
def test_a_start_of_the_engine_asks_for_the_turn(house: House) -> None:
    chat = house.keepers[0]
    said = neighbours.posted(house.sockets[0], neighbours.CLAIM, {"wants": False})
    assert (said, chat.is_claimed()) == ({"granted": False}, False)
    said = neighbours.posted(house.sockets[0], neighbours.CLAIM, {"wants": True})
    assert (said, chat.is_claimed(), chat.called.is_set()) == ({"granted": False}, True, True)
    assert chat.seek()
    assert neighbours.posted(house.sockets[0], neighbours.CLAIM, {"wants": True}) == {"granted": True}
    chat.let_go()
    assert not chat.is_claimed(), "that start has had its turn, and nobody asks any more"


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """One that everybody may enter, unlike those of tests."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_nobody_but_root_starts_the_engine(open_folder: Path) -> None:
    house = House(open_folder)
    house.sockets[0].chmod(0o666)
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        status = raw(house.sockets[0], neighbours.CLAIM, b'{"wants": true}', None)[0]
        os._exit(0 if status == 404 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert not house.keepers[0].is_claimed()
    house.switch.server.shutdown()
    house.switch.server.server_close()


def test_one_that_says_nothing_is_cut_off(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours._Handler, "timeout", 0.2)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(house.sockets[0]))
        silent.settimeout(5)
        assert raw(house.sockets[0], neighbours.RELEASE, asked(), f"Bearer {KEY}")[0] == 200
        assert silent.recv(1) == b""


def test_where_nobody_listens_nobody_is_there(tmp_path: Path) -> None:
    with pytest.raises(neighbours.NotThereError):
        neighbours.posted(tmp_path / "none.sock", neighbours.CLAIM, {})
