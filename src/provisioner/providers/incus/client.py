"""The JSON side of one Incus: what it says, over the bare socket; what changes something, through pylxd.

A run that finds nothing to change never imports pylxd, which would take a third of its time.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from contextlib import closing
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from provisioner.providers.incus import wire
from provisioner.providers.incus.wire import UnreachableError, WireError

if TYPE_CHECKING:
    import pylxd

_WAIT_S = 30
"""One request waits so long for an operation; pylxd's sockets give up after 60 s of silence."""


def default_endpoint() -> str:
    """This machine's socket: ``$INCUS_SOCKET``, else ``unix.socket`` in ``$INCUS_DIR``, else in Incus' usual folder."""
    folder = os.environ.get("INCUS_DIR") or "/var/lib/incus"
    return os.environ.get("INCUS_SOCKET") or str(Path(folder) / "unix.socket")


class Client:
    """Requests about instances, images, volumes and profiles; usable from many threads at once."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self._threads = threading.local()

    def get(self, *path: str, **query: str) -> Any:
        """What Incus says of the thing at ``path``."""
        return wire.call(self.endpoint, "GET", wire.path_of(*path, **query))["metadata"]

    def get_tagged(self, *path: str) -> tuple[Any, str]:
        """What Incus says of the thing at ``path``, and the tag of this state of it, for ``change``."""
        with closing(wire.UnixConnection(self.endpoint)) as connection:
            connection.request("GET", wire.path_of(*path))
            response = connection.getresponse()
            return wire.answer_of(response)["metadata"], response.headers.get("ETag", "")

    def find(self, *path: str, **query: str) -> Any | None:
        """What Incus says of the thing at ``path``, or None when there is none: the only place that decides so."""
        try:
            return self.get(*path, **query)
        except WireError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return None

    def write(self, method: str, *path: str, body: Mapping[str, Any] | None = None, tag: str = "") -> None:
        """Post, put or delete what the server does at once, such as a profile; ``tag`` as in ``change``."""
        with closing(wire.UnixConnection(self.endpoint)) as connection:
            text = None if body is None else json.dumps(body)
            connection.request(method.upper(), wire.path_of(*path), text, {"If-Match": tag} if tag else {})
            wire.answer_of(connection.getresponse())

    def change(self, method: str, *path: str, body: Mapping[str, Any] | None = None, tag: str = "") -> None:
        """Post, put, patch or delete, and return when the operation that it started has ended well.

        With ``tag`` only if nobody has changed the thing since: ``WireError`` of status 412, else.
        """
        answer = self._request(method, path, json=body, headers={"If-Match": tag} if tag else None)
        if answer.get("operation"):
            self.wait(answer["operation"])

    def wait(self, operation: str) -> None:
        """Return when the operation (its address) has ended well; ``WireError`` with its words when it has failed."""
        name = operation.partition("?")[0].rpartition("/")[2]
        while (state := self._waited(name)) is not None:
            if state["status"] != "Running":
                return
        # Incus forgets an operation 5 s after its end; every caller reads back what it made.

    def _waited(self, name: str) -> Any | None:
        try:
            return self._request("get", ("operations", name, "wait"), params={"timeout": str(_WAIT_S)})["metadata"]
        except WireError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return None

    def _request(self, method: str, path: tuple[str, ...], **arguments: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self._answer(method, path, **arguments).json()
        return answer

    def _answer(self, method: str, path: tuple[str, ...], **arguments: Any) -> Any:
        from pylxd.exceptions import LXDAPIException

        node = self._pylxd().api
        for segment in path:
            node = node[quote(segment, safe="")]
        try:
            return getattr(node, method)(**arguments)
        except LXDAPIException as error:
            raise WireError(_status(error), str(error)) from error

    def _pylxd(self) -> pylxd.Client:
        import pylxd
        from pylxd.exceptions import ClientConnectionFailed

        if not hasattr(self._threads, "client"):
            try:
                # Without an endpoint pylxd looks for LXD only.
                self._threads.client = pylxd.Client(endpoint=self.endpoint)
            except ClientConnectionFailed as error:
                raise UnreachableError(str(error)) from error
            # Incus closes idle connections after 30 s, pylxd keeps one per address: a second request to the same
            # address about then, such as a stop by force after one that timed out, would meet a reset connection.
            self._threads.client.api.session.headers["Connection"] = "close"
        return self._threads.client


def _status(error: Any) -> int:
    """The answer's HTTP status; a failed operation is an answer with status 200 whose body says what went wrong.

    The code in that body is not looked at: a 404 there is about something that the operation needed, such as a volume,
    and must not be taken for a forgotten operation.
    """
    status: int = error.response.status_code
    return int(HTTPStatus.BAD_REQUEST) if status == HTTPStatus.OK else status
