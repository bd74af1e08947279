"""What ends a request before its answer is whole."""

from __future__ import annotations


class Refused(Exception):  # noqa: N818  # a refusal is an answer
    """A request that is answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class ClientGone(Exception):  # noqa: N818  # an event, not an error
    """The client closed its connection."""
