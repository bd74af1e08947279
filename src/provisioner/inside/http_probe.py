"""Asks a service for what it has to refuse, and tells with which status it did; roles install or pipe this one file.

Reads JSON: ``port``, ``timeout_s`` and ``asked``, a list with ``name``, ``method``, ``path`` and ``headers`` of each
request; keys are no arguments, which all processes can read. No request has a body: one that is too large is only
announced. Writes each status by its request's name as JSON; 0 where nobody answered.
"""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import Mapping
from typing import Any


def main() -> None:
    """Ask and tell."""
    sys.stdout.write(json.dumps(statuses(json.load(sys.stdin))))


def statuses(wanted: Mapping[str, Any]) -> dict[str, int]:
    """The status of each answer."""
    return {one["name"]: status(wanted["port"], one, wanted["timeout_s"]) for one in wanted["asked"]}


def status(port: int, request: Mapping[str, Any], timeout_s: float) -> int:
    """The status of one answer of this machine's ``port``; 0 where there is none in time."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        connection.putrequest(request["method"], request["path"])
        for name, value in request["headers"].items():
            connection.putheader(name, value)
        connection.endheaders()
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


if __name__ == "__main__":
    main()
