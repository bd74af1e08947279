"""Copy one file into or out of a container, streamed: a file of any size costs the memory of one block."""

from __future__ import annotations

import http.client
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import IO

from provisioner.hosts.incus import api
from provisioner.hosts.incus.api import Endpoint
from provisioner.values import limits

LOOKS = 3
"""Incus' helper for files ends when it is idle; who asks at that moment gets a bare 500, which a second look mends."""
LOOK_PAUSE_S = 0.2


def push(
    endpoint: Endpoint, name: str, source: Path | bytes, path: str, *, mode: int = 0o600, uid: int = 0, gid: int = 0
) -> None:
    """Write ``path`` in ``name`` anew with this mode and owner; ``WireError`` when it did not arrive whole."""
    there = api.path_of("instances", name, "files", path=path)
    _make_room(endpoint, there)
    headers = {"X-Incus-mode": f"{mode:04o}", "X-Incus-uid": str(uid), "X-Incus-gid": str(gid), "X-Incus-type": "file"}
    with ExitStack() as stack:
        body: IO[bytes] | bytes = source if isinstance(source, bytes) else stack.enter_context(source.open("rb"))
        size = len(source) if isinstance(source, bytes) else source.stat().st_size
        with _answer(endpoint, "POST", there, body, {**headers, "Content-Length": str(size)}) as response:
            api.whole(response)
    arrived = _look(endpoint, there)
    if arrived.get("Content-Length") != str(size):
        raise api.WireError(0, f"{size} bytes were sent, {arrived.get('Content-Length')} are there")


def pull(endpoint: Endpoint, name: str, path: str, target: Path) -> None:
    """Copy ``path`` in ``name`` to ``target``, which appears when it is whole; ``WireError`` when it cannot be read."""
    with _answer(endpoint, "GET", api.path_of("instances", name, "files", path=path)) as response:
        if response.headers["X-Incus-type"] != "file":
            raise api.WireError(400, f"it is a {response.headers['X-Incus-type']}, not a file")
        save(response, target)


def read(endpoint: Endpoint, name: str, path: str) -> bytes:
    """What stands in the small file ``path`` of ``name``, running or not; ``WireError`` when it cannot be read."""
    with _answer(endpoint, "GET", api.path_of("instances", name, "files", path=path)) as response:
        return api.whole(response)


def read_log(endpoint: Endpoint, name: str, log: str) -> bytes:
    """What stands in one of the logs that Incus keeps of ``name``; ``WireError`` when it cannot be read."""
    with _answer(endpoint, "GET", api.path_of("instances", name, "logs", log)) as response:
        return api.whole(response)


def save(response: http.client.HTTPResponse, target: Path) -> None:
    """Stream a response's body into ``target`` under a temporary name, and give it its name once it is whole."""
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
        partial = Path(file.name)
        try:
            _copy(response, file)
            _require_size(file.tell(), response.headers["Content-Length"])
        except BaseException:
            partial.unlink()
            raise
    partial.replace(target)


def _copy(response: http.client.HTTPResponse, file: IO[bytes]) -> None:
    while block := response.read(api.BLOCK_BYTES):
        file.write(block)
        if file.tell() > limits.FILE_BYTES:
            raise api.WireError(0, f"it has more than {limits.FILE_BYTES} bytes, which is all that is taken")


def _require_size(arrived: int, announced: str | None) -> None:
    # http.client's reads by block end silently where the other side stopped.
    if announced is not None and arrived != int(announced):
        raise api.WireError(0, f"{announced} bytes were announced, {arrived} arrived")


def _make_room(endpoint: Endpoint, there: str) -> None:
    """Remove a file that is there: Incus would keep its mode and owner, so a secret could land in a readable file."""
    try:
        found = _look(endpoint, there)
    except api.WireError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return
    if found.get("X-Incus-type") == "directory":
        raise api.WireError(400, "it is a directory")
    api.call(endpoint, "DELETE", there)


def _look(endpoint: Endpoint, there: str) -> http.client.HTTPMessage:
    attempt = 1
    while True:
        try:
            with _answer(endpoint, "HEAD", there) as response:
                return response.headers
        except api.WireError as error:
            if error.status != HTTPStatus.INTERNAL_SERVER_ERROR or attempt == LOOKS:
                raise
        attempt += 1
        time.sleep(LOOK_PAUSE_S)


@contextmanager
def _answer(
    endpoint: Endpoint,
    method: str,
    path: str,
    body: IO[bytes] | bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Iterator[http.client.HTTPResponse]:
    with closing(api.connection_to(endpoint, limits.SILENCE_S)) as connection:
        # Without room Incus answers and closes before it has read all: its answer is the reason, not the break.
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.request(method, path, body, dict(headers or {}))
        yield api.checked(connection.getresponse())
