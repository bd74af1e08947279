"""HTTP with Incus, over its unix socket or TLS, from the standard library alone: the way for commands and files.

pylxd is right over the socket, but importing it costs 0.15 CPU-seconds, which Ansible would pay once per task, and its
files API holds whole files in memory. Over TLS it loses output of commands, and takes orders from CURL_CA_BUNDLE.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from contextlib import closing
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

from provisioner.providers.incus.endpoint import Endpoint
from provisioner.values import limits
from provisioner.values.plain_data import MOST_OF_AN_OUTPUT, Foreign, json_value

CONNECT_TIMEOUT_S = 60.0
BLOCK_BYTES = 1 << 18


class WireError(Exception):
    """What Incus answered instead of what was asked: the HTTP status (0: it broke off) and its own words."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(Foreign(text, MOST_OF_AN_OUTPUT))
        self.status = status


class UnreachableError(ConnectionError):
    """Nobody answers there, it is somebody else, or we may not use it; ``resolution`` where that is known here."""

    def __init__(self, text: str, resolution: str = "") -> None:
        super().__init__(text)
        self.resolution = resolution


def connection_to(endpoint: Endpoint, timeout_s: float | None = CONNECT_TIMEOUT_S) -> http.client.HTTPConnection:
    """One HTTP connection to the daemon, to be used in ``contextlib.closing``; it connects with the first request."""
    if endpoint.is_remote:
        from provisioner.providers.incus.tls import TlsConnection  # nothing that a socket needs

        return TlsConnection(endpoint, timeout_s)
    return _UnixConnection(endpoint.address, timeout_s)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float | None) -> None:
        super().__init__("localhost", blocksize=BLOCK_BYTES)
        self._path = path
        self._timeout_s = timeout_s

    def connect(self) -> None:
        """Connect to the socket; ``UnreachableError`` when that is not possible."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self._timeout_s)
        try:
            self.sock.connect(self._path)
        except OSError as error:
            self.close()
            raise UnreachableError(str(error)) from error


def path_of(*segments: str, **query: str) -> str:
    """The API path of ``segments``, each quoted whole (an alias may hold a slash), with ``query``."""
    path = "/".join(["/1.0", *(quote(segment, safe="") for segment in segments)])
    return f"{path}?{urlencode(query)}" if query else path


def whole(response: http.client.HTTPResponse) -> bytes:
    """The body of a response; ``WireError`` for one that is larger than anything that we ask for."""
    body = response.read(limits.OUTPUT_BYTES + 1)
    if len(body) > limits.OUTPUT_BYTES:
        raise WireError(0, f"the answer has more than {limits.OUTPUT_BYTES / 2**20:g} MiB, which is all that is read")
    if response.length:
        raise http.client.IncompleteRead(body, response.length)
    return body


def checked(response: http.client.HTTPResponse) -> http.client.HTTPResponse:
    """The response when it is a success, unread; ``WireError`` with the server's words, else."""
    if response.status < HTTPStatus.MULTIPLE_CHOICES:
        return response
    raw = whole(response)
    try:
        text = str(json_value(raw)["error"])
    except (ValueError, KeyError, TypeError):
        text = raw.decode(errors="replace").strip() or f"HTTP status {response.status}"
    raise WireError(response.status, text)


def answer_of(response: http.client.HTTPResponse) -> dict[str, Any]:
    """The JSON of a successful response; ``WireError`` when it is none."""
    body = whole(checked(response))
    try:
        answer: Any = json_value(body)
    except ValueError as error:
        raise WireError(0, f"the answer is no JSON: {error}") from error
    if not isinstance(answer, dict):
        raise WireError(0, f"the answer is no JSON object: {body[:100].decode(errors='replace')}")
    # A failed operation is waited for with HTTP status 200; only the body says that it is an error.
    if answer.get("type") == "error":
        raise WireError(int(answer["error_code"]), str(answer["error"]))
    return answer


def call(endpoint: Endpoint, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The JSON answer to one request; ``WireError`` when it was refused."""
    with closing(connection_to(endpoint)) as connection:
        connection.request(method, path, None if body is None else json.dumps(body))
        return answer_of(connection.getresponse())
