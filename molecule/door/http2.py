"""Sends a body by HTTP/2 and prints the status of the answer: ``http2.py NAME LENGTH IS_TOLD``."""

from __future__ import annotations

import socket
import ssl
import sys

PATIENCE_S = 30
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0, 1, 4
END_STREAM, END_HEADERS = 1, 4
STATUS_200 = 0x88
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


def main() -> None:
    """Ask and tell."""
    name, length, is_told = sys.argv[1:]
    fields = {":method": "POST", ":scheme": "https", ":authority": name, ":path": "/said"}
    if is_told == "True":
        fields["content-length"] = length
    context = ssl.create_default_context(cafile="/run/root.pem")
    context.set_alpn_protocols(["h2"])
    raw = socket.create_connection(("127.0.0.1", 443), PATIENCE_S)
    connection = context.wrap_socket(raw, server_hostname=name)
    block = b"".join(literal(key, value) for key, value in fields.items())
    body = b"a" * int(length)
    question = frame(SETTINGS, 0, 0, b"") + frame(HEADERS, END_HEADERS, 1, block) + frame(DATA, END_STREAM, 1, body)
    connection.sendall(PREFACE + question)
    with connection.makefile("rb") as answer:
        while head := answer.read(9):
            content = answer.read(int.from_bytes(head[:3], "big"))
            if head[3] == HEADERS:
                sys.stdout.write(status(content))
                return


main()
