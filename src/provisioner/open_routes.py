"""Asks every route of a server without its key, and tells which of them answer all the same.

Reads JSON: ``document`` (the address of the server's OpenAPI document), or ``routes`` (pairs of method and path) of one
that has none; ``door`` (where clients reach it), ``open`` (paths that may answer without a key), ``timeout_s`` for
each. Answers as JSON: ``asked`` (how many), ``answered``,
lists of method, path and status, and ``silent`` (how many did not answer in time, or only to come again: a busy server
is no open one). Bodies are empty, so that nothing is computed. Python's own library is enough.
"""

from __future__ import annotations

import http.client
import json
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

CLOSED = (401, 403, 404)
METHODS = ("get", "head", "post", "put", "patch", "delete")
LONGEST_DOCUMENT = 16 * 2**20
BUSY = 503
SILENT = 0
"""The status of a route behind which nobody answers, or only that one may come again."""

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def routes_in(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each method and path of an OpenAPI document, with a word for what varies in the path."""
    for path, page in sorted(document.get("paths", {}).items()):
        for method in METHODS:
            if method in page:
                yield method.upper(), re.sub(r"\{[^}]*\}", "x", path)


def routes_of(address: str, timeout_s: float) -> list[tuple[str, str]]:
    """The routes of the OpenAPI document at an address."""
    with _DIRECT.open(address, timeout=timeout_s) as answer:
        return list(routes_in(json.loads(answer.read(LONGEST_DOCUMENT))))


def status_of(door: str, method: str, path: str, timeout_s: float) -> int:
    """What is answered to a request without a key and without a body."""
    body = b"" if method in ("POST", "PUT", "PATCH") else None
    request = urllib.request.Request(door + path, body, {"Content-Type": "application/json"}, method=method)  # noqa: S310  # http alone
    try:
        with _DIRECT.open(request, timeout=timeout_s) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        may_come_again = error.code == BUSY and error.headers.get("Retry-After")
        return SILENT if may_come_again else error.code
    except (OSError, http.client.HTTPException):
        return SILENT


def told(asked: Mapping[str, Any]) -> dict[str, Any]:
    """How many routes there are, and which of them answer without a key."""
    routes = asked["routes"] if "routes" in asked else routes_of(asked["document"], asked["timeout_s"])
    answered, silent = [], 0
    for method, path in routes:
        status = status_of(asked["door"], method, path, asked["timeout_s"])
        if status == SILENT:
            silent += 1
        elif status not in CLOSED and path not in asked["open"]:
            answered.append([method, path, status])
    return {"asked": len(routes), "answered": answered, "silent": silent}


if __name__ == "__main__":
    json.dump(told(json.load(sys.stdin)), sys.stdout)
