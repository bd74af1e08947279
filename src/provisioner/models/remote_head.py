"""The head of a model's file at an address, read over the network as far as its keys go."""

from __future__ import annotations

import http.client
import urllib.request

from provisioner.models.gguf import read_head
from provisioner.models.header import Header
from provisioner.models.hub import HubError, Redirects
from provisioner.values.time_limits import within

LIMIT = 24 << 20
"""The vocabularies of today's models take 5 to 10 MB of a head; what is longer is not read."""
TIMEOUT_S, DEADLINE_S = 4.0, 20.0


class NoHeadError(Exception):
    """The head cannot be had now; another time it may."""


def read_remote_head(url: str, token: str | None, deadline_s: float = DEADLINE_S) -> Header:
    """The head of the file at ``url``; the token goes to that server alone.

    ``NoHeadError``: it does not come; ``GgufError``: what comes is no GGUF, or its head is too long.
    """
    headers = {"Accept-Encoding": "identity", "Range": f"bytes=0-{LIMIT - 1}"}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310  # http or https: the sources say so
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        return within(deadline_s, lambda: _read(request))
    except HubError as error:
        raise NoHeadError(error.message) from error
    except (OSError, EOFError, http.client.HTTPException) as error:
        raise NoHeadError(str(getattr(error, "reason", None) or error) or type(error).__name__) from error


def _read(request: urllib.request.Request) -> Header:
    with urllib.request.build_opener(Redirects).open(request, timeout=TIMEOUT_S) as answer:
        return read_head(answer.read1, LIMIT)
