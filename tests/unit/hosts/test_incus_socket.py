"""The client's side of HTTP and websockets, against a daemon that answers what a broken or slow one would."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from provisioner.hosts.incus import IncusProvider, api, files
from provisioner.hosts.incus.api import Endpoint
from provisioner.hosts.incus.execute import END_OF_INPUT, WebSocket, encoded
from provisioner.values.errors import ProviderError, UnavailableError
from tests.waiting import PATIENCE_S

Serve = Callable[..., Path]
STAYS_S, ENDS_WITHIN_S = 2.0, 30.0
"""How long the daemon waits for a client that stays, and a test for the end of the daemon."""


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start a daemon that gives each connection one of its answers, the last one to all further, and then closes it."""
    opened: list[tuple[socket.socket, threading.Thread]] = []

    def start(*answers: bytes) -> Path:
        left = list(answers)
        path = tmp_path / "unix.socket"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen()

        def loop() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, suppress(OSError):  # a client may go away at any time, or stay
                    connection.settimeout(STAYS_S)
                    connection.recv(1 << 16)
                    connection.sendall(left.pop(0) if len(left) > 1 else left[0])
                    connection.shutdown(socket.SHUT_WR)
                    connection.recv(1 << 16)

        thread = threading.Thread(target=loop, daemon=True)
        thread.start()
        opened.append((listener, thread))
        return path

    yield start
    for listener, thread in opened:
        # Closing alone wakes nobody: the thread would go on with whatever gets the same number next.
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(ENDS_WITHIN_S)
        assert not thread.is_alive()
        listener.close()


def http(body: bytes, status: str = "200 OK", *, size: int | None = None) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body) if size is None else size}\r\nX-Incus-type: file\r\n\r\n"
    return head.encode() + body


def frame(payload: bytes, opcode: int = 2) -> bytes:
    """A frame from a server: like a client's, without the mask."""
    whole = encoded(payload, opcode=opcode)
    head = len(whole) - len(payload) - 4
    return bytes([whole[0], whole[1] & 0x7F]) + whole[2:head] + payload


def read_all(sockets: WebSocket) -> bytes:
    sockets._connection.sock.setblocking(True)
    output = sockets.parse()
    while not sockets.ended:
        output += sockets.receive()
    return output


UPGRADE = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"
END = frame(b"", opcode=1)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 300_000])
def test_frames_of_every_size(serve: Serve, size: int) -> None:
    path = serve(UPGRADE + frame(b"x" * size) + frame(b"y") + END)
    opened = WebSocket(Endpoint(str(path)), "/1.0")
    assert read_all(opened) == b"x" * size + b"y"
    opened.close()


def test_pings_closes_and_split_messages_are_no_output(serve: Serve) -> None:
    split = bytes([0x02, 3]) + b"abc" + bytes([0x80, 3]) + b"def"
    path = serve(UPGRADE + frame(b"keepalive", opcode=9) + split + frame(b"", opcode=8) + frame(b"after"))
    opened = WebSocket(Endpoint(str(path)), "/1.0")
    assert read_all(opened) == b"abcdef"
    opened.close()


@pytest.mark.parametrize("answers", [False, True])
def test_pings_are_answered_only_where_incus_reads(tmp_path: Path, answers: bool) -> None:
    """What it has not read when it closes has TCP throw away output: that of 6 commands of 500, else of none of 700."""
    path = tmp_path / "unix.socket"
    heard: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve_one() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(UPGRADE + frame(b"keepalive", opcode=9) + frame(b"abc") + END)
                heard.append(connection.recv(1 << 16))

        server = threading.Thread(target=serve_one, daemon=True)
        server.start()
        opened = WebSocket(Endpoint(str(path)), "/1.0", answers_pings=answers)
        assert read_all(opened) == b"abc"
        opened.close()
        server.join(PATIENCE_S)
    assert heard == [encoded(b"keepalive", opcode=10) if answers else b""]


def test_output_that_breaks_off_is_no_output(serve: Serve) -> None:
    opened = WebSocket(Endpoint(str(serve(UPGRADE + frame(b"abc") + b"\x82\x05de"))), "/1.0")
    with pytest.raises(api.WireError, match="in the middle of the output"):
        read_all(opened)
    opened.close()


def test_a_refused_websocket_says_its_status(serve: Serve) -> None:
    with pytest.raises(api.WireError) as caught:
        WebSocket(Endpoint(str(serve(http(b"", "404 Not Found")))), "/1.0/operations/x/websocket?secret=s3cret")
    assert caught.value.status == 404
    assert "s3cret" not in str(caught.value)


def test_a_client_s_frames_are_masked() -> None:
    assert END_OF_INPUT == b"\x81\x80\x00\x00\x00\x00"
    assert encoded(b"ab")[1] & 0x80


def test_a_failed_operation_is_an_error_though_its_http_status_is_200(serve: Serve) -> None:
    path = serve(http(b'{"type":"error","error_code":400,"error":"Command not found","metadata":null}'))
    with pytest.raises(api.WireError, match="Command not found"):
        api.call(Endpoint(str(path)), "GET", "/1.0/operations/x/wait")


def test_an_answer_that_is_no_json_is_shown(serve: Serve) -> None:
    with pytest.raises(api.WireError, match="bad gateway"):
        api.call(Endpoint(str(serve(http(b"bad gateway", "502 Bad Gateway")))), "GET", "/1.0")


def test_a_file_that_does_not_arrive_whole_is_not_kept(serve: Serve, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"before")
    with pytest.raises(api.WireError, match="10 bytes were announced, 3 arrived"):
        files.pull(Endpoint(str(serve(http(b"abc", size=10)))), "one", "/file", target)
    assert target.read_bytes() == b"before"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["target", "unix.socket"]


def test_a_missing_socket_names_the_command_that_makes_one(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError) as caught:
        IncusProvider("box", endpoint=Endpoint(str(tmp_path / "unix.socket"))).check_available()
    assert "sudo provision host prepare" in caught.value.resolution


def test_a_dead_daemon_is_told_from_a_missing_one(tmp_path: Path) -> None:
    path = tmp_path / "unix.socket"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with pytest.raises(UnavailableError) as caught:
        IncusProvider("box", endpoint=Endpoint(str(path))).check_available()
    assert "incusd" in caught.value.resolution
    with pytest.raises(ProviderError) as failed:
        IncusProvider("box", endpoint=Endpoint(str(path))).execute("one", ["true"])
    assert "Unable to run true in container one" in failed.value.message
    assert str(path) in failed.value.details


NO_HELPER = http(b"", "500 Internal Server Error")


def test_a_file_is_looked_at_again_when_incus_has_just_ended_its_helper(serve: Serve) -> None:
    """HEAD, POST, HEAD: the first look fails twice, the one after the write once."""
    there = http(b"", size=5)
    socket_path = serve(NO_HELPER, NO_HELPER, http(b"", "404 Not Found"), http(b"{}"), NO_HELPER, there)
    files.push(Endpoint(str(socket_path)), "box", b"words", "/etc/motd")


def test_a_file_that_cannot_be_looked_at_is_an_error_in_the_end(serve: Serve) -> None:
    with pytest.raises(api.WireError) as caught:
        files.push(Endpoint(str(serve(NO_HELPER))), "box", b"words", "/etc/motd")
    assert caught.value.status == 500
