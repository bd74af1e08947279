"""How a call, or a task, fails: a status, a text that becomes the reason phrase, and texts for single parameters."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus


class ApiError(Exception):
    """An answer other than 200; in a task, its text is the exit status.

    ``message`` ends as PVE's own do: with a line feed, but for 501.
    """

    def __init__(self, status: int, message: str, errors: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.errors = dict(errors or {})


class RefusedError(ApiError):
    """A 401 that has no body at all."""

    def __init__(self, reason: str) -> None:
        super().__init__(HTTPStatus.UNAUTHORIZED, f"{reason}\n")


class UnreachableError(ApiError):
    """What a node says about another one, or a process of its own, that it gets no answer from, without a body.

    The statuses are AnyEvent's own: 595 where no connection came up, 596 where no answer came within 30 s.
    """

    def __init__(self, status: int = 595, reason: str = "Connection refused") -> None:
        super().__init__(status, reason)


class DroppedError(Exception):
    """The connection ends without an answer."""


def died(text: str) -> ApiError:
    """What Perl's ``die`` gives: nearly everything in PVE is a 500."""
    return ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, f"{text}\n")


def bad_parameters(errors: Mapping[str, str]) -> ApiError:
    """400, with a text for each parameter."""
    return ApiError(HTTPStatus.BAD_REQUEST, "Parameter verification failed.\n", errors)


def forbidden(what: str = "") -> ApiError:
    """403, with what was missing in brackets, or nothing where PVE says nothing."""
    detail = f" ({what})" if what else ""
    return ApiError(HTTPStatus.FORBIDDEN, f"Permission check failed{detail}\n")
