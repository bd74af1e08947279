"""Asks an RDP server how it would talk (X.224 negotiation, no login), and which certificate it shows."""

from __future__ import annotations

import hashlib
import socket
import ssl
import struct
from pathlib import Path

RDP, TLS = 0, 1
SELECTED = 2
TIMEOUT_S = 10.0
COOKIE = b"Cookie: mstshash=proof\r\n"


class Refused(Exception):  # noqa: N818  # an answer, not a defect
    """The server does not talk as it was asked to; the words are its own."""


def negotiated(host: str, port: int, asked: int) -> tuple[socket.socket, int]:
    """A connection and the security that the server chose for it. Raises ``Refused``, and ``OSError``."""
    connection = socket.create_connection((host, port), TIMEOUT_S)
    body = b"\xe0\0\0\0\0\0" + COOKIE + struct.pack("<BBHI", 1, 0, 8, asked)
    try:
        connection.sendall(struct.pack(">BBHB", 3, 0, 5 + len(body), len(body)) + body)
        answer = connection.recv(1024)
    except OSError as error:
        connection.close()
        raise Refused(f"it ended the connection ({error})") from error
    if len(answer) < 19:
        connection.close()
        raise Refused("it ended the connection" if not answer else "it chose no security at all")
    word, _, _, value = struct.unpack("<BBHI", answer[11:19])
    if word != SELECTED:
        connection.close()
        raise Refused(f"it answered with failure {value}")
    return connection, value


def is_open(host: str, port: int) -> bool:
    """Whether something listens."""
    try:
        socket.create_connection((host, port), TIMEOUT_S).close()
    except OSError:
        return False
    return True


def offers_rdp_security(host: str, port: int) -> bool:
    """Whether the server would talk without TLS."""
    try:
        connection, chosen = negotiated(host, port, RDP)
    except Refused:
        return False
    connection.close()
    return chosen == RDP


def fingerprint(host: str, port: int, versions: tuple[ssl.TLSVersion, ssl.TLSVersion]) -> str:
    """The sha256 of the certificate that it shows with these versions of TLS. Raises ``Refused``, and ``OSError``."""
    connection, chosen = negotiated(host, port, TLS)
    if chosen != TLS:
        connection.close()
        raise Refused("it fell back to RDP's own security")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the caller compares the whole certificate
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version, context.maximum_version = versions
    try:
        with context.wrap_socket(connection) as secured:
            return hashlib.sha256(secured.getpeercert(binary_form=True) or b"").hexdigest()
    except ssl.SSLError as error:
        raise Refused(f"TLS failed ({error.reason})") from error
    finally:
        connection.close()


def fingerprint_of(file: Path) -> str:
    """That of a certificate in a file (the first one)."""
    text = file.read_text(encoding="ascii")
    end = "-----END CERTIFICATE-----"
    return hashlib.sha256(
        ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN") : text.index(end) + len(end)])
    ).hexdigest()
