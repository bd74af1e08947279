"""Sends a body by HTTP/2 and prints the status of the answer: ``http2.py NAME LENGTH IS_TOLD``.

With ``http2.py NAME socket`` it opens a websocket as browsers do there (RFC 8441), and prints what comes back.
"""

from __future__ import annotations

import socket
import ssl
import sys

PATIENCE_S = 30
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0, 1, 4
END_STREAM, END_HEADERS = 1, 4
STATUS_200 = 0x88
WORD = b"\x81\x84" + bytes(4) + b"word"
"""A frame of a websocket, masked with nothing."""
STATUS_BY_NAME = (0x08, 0x48)
"""How RFC 7541 begins a status that its table lacks: not kept, or kept, under the name at place 8."""


def literal(name: str, value: str) -> bytes:
    """A header as RFC 7541 has it where nothing is compressed."""
    return b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    """One frame."""
    return len(content).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + content


def status(block: bytes) -> str:
    """The status that a block of headers begins with."""
    if block[0] == STATUS_200:
        return "200"
    if block[0] in STATUS_BY_NAME:
        return block[2:5].decode("ascii")
    return block[:8].hex()


def connected(name: str) -> ssl.SSLSocket:
    """A connection to the door that speaks HTTP/2, with the client's first words said."""
    context = ssl.create_default_context(cafile="/run/root.pem")
    context.set_alpn_protocols(["h2"])
    raw = socket.create_connection(("127.0.0.1", 443), PATIENCE_S)
    connection = context.wrap_socket(raw, server_hostname=name)
    connection.sendall(PREFACE + frame(SETTINGS, 0, 0, b""))
    return connection


def first(connection: ssl.SSLSocket, kind: int) -> bytes:
    """What the next frame of that kind holds; ``EOFError`` where the connection ends before."""
    while True:
        head = exactly(connection, 9)
        content = exactly(connection, int.from_bytes(head[:3], "big"))
        if head[3] == kind:
            return content


def exactly(connection: ssl.SSLSocket, count: int) -> bytes:
    """So many bytes of the connection."""
    content = b""
    while len(content) < count:
        part = connection.recv(count - len(content))
        if not part:
            raise EOFError
        content += part
    return content


def answer_to_body(name: str, length: int, *, is_told: bool) -> str:
    """The status of the answer to a body."""
    fields = {":method": "POST", ":scheme": "https", ":authority": name, ":path": "/said"}
    if is_told:
        fields["content-length"] = str(length)
    block = b"".join(literal(key, value) for key, value in fields.items())
    connection = connected(name)
    connection.sendall(frame(HEADERS, END_HEADERS, 1, block) + frame(DATA, END_STREAM, 1, b"a" * length))
    return status(first(connection, HEADERS))


def answer_to_word(name: str) -> str:
    """What the service sends back by a websocket."""
    fields = {":method": "CONNECT", ":protocol": "websocket", ":scheme": "https", ":authority": name}
    fields |= {":path": "/socket", "sec-websocket-version": "13"}
    connection = connected(name)
    connection.sendall(frame(HEADERS, END_HEADERS, 1, b"".join(literal(key, value) for key, value in fields.items())))
    said = status(first(connection, HEADERS))
    connection.sendall(frame(DATA, 0, 1, WORD))
    return f"{said} {first(connection, DATA)[2:].decode()}"


def main() -> None:
    """Ask and tell."""
    name, length, *is_told = sys.argv[1:]
    sys.stdout.write(
        answer_to_body(name, int(length), is_told=is_told == ["True"]) if is_told else answer_to_word(name)
    )


main()
