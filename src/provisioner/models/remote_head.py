"""What a model at an address says of itself: the head of its file as far as its keys go, or its config.json."""

from __future__ import annotations

import hashlib
import http.client
import urllib.request
from collections.abc import Callable
from typing import TypeVar

from provisioner.models.folders import SMALL_BYTES, header_of
from provisioner.models.gguf import read_head
from provisioner.models.header import Header
from provisioner.models.hub import HubError, Redirects
from provisioner.values.limits import within

LIMIT = 24 << 20
"""The vocabularies of today's models take 5 to 10 MB of a head; what is longer is not read."""
TIMEOUT_S, DEADLINE_S = 4.0, 20.0
_T = TypeVar("_T")


class NoHeadError(Exception):
    """The head cannot be had now; another time it may."""


def read_remote_head(
    url: str, token: str | None, deadline_s: float = DEADLINE_S, keep: Callable[[bytes], None] = lambda _head: None
) -> Header:
    """The head of the file at ``url``; the token goes to that server alone. ``keep`` is given its bytes.

    ``NoHeadError``: it does not come; ``GgufError``: what comes is no GGUF, or its head is too long.
    """
    return _asked(
        url, token, {"Range": f"bytes=0-{LIMIT - 1}"}, deadline_s, lambda answer: read_head(answer.read1, LIMIT, keep)
    )


def read_remote_config(url: str, token: str | None, sha256: str, deadline_s: float = DEADLINE_S) -> Header:
    """What the config.json at ``url`` says; the token goes to that server alone.

    ``NoHeadError``: it does not come, or is not the file of that ``sha256``; ``FolderError``: it is no model's.
    """
    content = _asked(url, token, {}, deadline_s, lambda answer: answer.read(SMALL_BYTES))
    if hashlib.sha256(content).hexdigest() != sha256:
        raise NoHeadError("what comes is another file than the one that was found there before")
    return header_of(content)


def reach(url: str, token: str | None, headers: dict[str, str], deadline_s: float) -> None:
    """Return when a server has what is at ``url``, of which nothing is read; the token goes to that server alone.

    ``NoHeadError``: it has not, by its cause, an ``HTTPError``, or it gives no answer.
    """
    _asked(url, token, {"Range": "bytes=0-0", **headers}, deadline_s, lambda _answer: None)


def _asked(
    url: str,
    token: str | None,
    headers: dict[str, str],
    deadline_s: float,
    read: Callable[[http.client.HTTPResponse], _T],
) -> _T:
    """What ``read`` makes of the answer; raises ``NoHeadError`` where none comes in time."""
    request = urllib.request.Request(url, headers={"Accept-Encoding": "identity", **headers})  # noqa: S310  # http or https: the sources say so
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")

    def answered() -> _T:
        with urllib.request.build_opener(Redirects).open(request, timeout=TIMEOUT_S) as answer:
            return read(answer)

    try:
        return within(deadline_s, answered)
    except HubError as error:
        raise NoHeadError(error.message) from error
    except (OSError, EOFError, UnicodeError, http.client.HTTPException) as error:  # UnicodeError: no name of a host
        raise NoHeadError(str(getattr(error, "reason", None) or error) or type(error).__name__) from error
