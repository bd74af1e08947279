"""The JSON side of one Incus: what it says, over the bare connection; what changes something here, through pylxd.

A run that finds nothing to change never imports pylxd, which would take a third of its time. An Incus elsewhere is
changed over the bare connection, too: so one place alone decides which server is trusted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import closing
from http import HTTPStatus
from json import dumps
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from provisioner.providers.incus import wire
from provisioner.providers.incus.endpoint import Endpoint
from provisioner.providers.incus.wire import UnreachableError, WireError
from provisioner.values import limits

if TYPE_CHECKING:
    import pylxd

_WAIT_S = 30
"""One request waits so long for an operation; pylxd's sockets give up after 60 s of silence."""


_WELL = ("Running", "Success")
"""States of an operation that has not failed."""


class Client:
    """Requests about instances, images, volumes and profiles; usable from many threads at once."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._threads = threading.local()

    def get(self, *path: str, **query: str) -> Any:
        """What Incus says of the thing at ``path``."""
        return wire.call(self.endpoint, "GET", wire.path_of(*path, **query))["metadata"]

    def get_tagged(self, *path: str) -> tuple[Any, str]:
        """What Incus says of the thing at ``path``, and the tag of this state of it, for ``change``."""
        with closing(wire.connection_to(self.endpoint)) as connection:
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
        with closing(wire.connection_to(self.endpoint)) as connection:
            text = None if body is None else dumps(body)
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
        deadline = time.monotonic() + limits.LONGEST_S
        while (state := self._waited(name)) is not None:
            if state["status"] != "Running":
                return
            if time.monotonic() >= deadline:
                raise WireError(0, f"it goes on after {limits.LONGEST_S / 3600:.0f} hours (incus operation list)")
        # Incus forgets an operation 5 s after its end; every caller reads back what it made.

    def _waited(self, name: str) -> Any | None:
        try:
            return self._request("get", ("operations", name, "wait"), params={"timeout": str(_WAIT_S)})["metadata"]
        except WireError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            # Incus 6.0 calls it an error ("context deadline exceeded") when the time of the request is over first.
            state = self.find("operations", name)
            if state is None or state["status"] not in _WELL:
                raise
            return state

    def _request(self, method: str, path: tuple[str, ...], **arguments: Any) -> dict[str, Any]:
        if self.endpoint.is_remote:
            return self._bare_request(method, path, **arguments)
        answer: dict[str, Any] = self._answer(method, path, **arguments).json()
        return answer

    def _bare_request(
        self,
        method: str,
        path: tuple[str, ...],
        *,
        json: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        with closing(wire.connection_to(self.endpoint)) as connection:
            text = None if json is None else dumps(json)
            connection.request(method.upper(), wire.path_of(*path, **(params or {})), text, dict(headers or {}))
            response = connection.getresponse()
            try:
                return wire.answer_of(response)
            except WireError as error:
                if response.status == HTTPStatus.OK:
                    raise WireError(HTTPStatus.BAD_REQUEST, str(error)) from error
                raise

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
                self._threads.client = pylxd.Client(endpoint=self.endpoint.address)
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
