"""Has a service say a word through a gateway.

Reads JSON: ``url``, ``key``, ``model``, ``voice``, ``timeout_s``; the key is no argument, which all processes can read.
Answers as JSON: ``status`` (0: nobody answered), ``bytes`` of audio, and what was ``said`` instead of it.
"""

from __future__ import annotations

import http.client
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

WORD = "Hello."
LONGEST = 300
"""Characters of an error that are passed on."""


def main() -> None:
    """Ask and tell."""
    sys.stdout.write(json.dumps(told(json.load(sys.stdin))))


def told(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What came back."""
    fields = {"model": asked["model"], "input": WORD, "voice": asked["voice"], "response_format": "mp3"}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {asked['key']}"}
    request = urllib.request.Request(f"{asked['url']}/v1/audio/speech", json.dumps(fields).encode(), headers)  # noqa: S310  # this machine's
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(request, timeout=asked["timeout_s"]) as answer:
            return {"status": answer.status, "bytes": len(answer.read()), "said": ""}
    except urllib.error.HTTPError as error:
        return {"status": error.code, "bytes": 0, "said": error.read().decode(errors="replace")[:LONGEST]}
    except (OSError, http.client.HTTPException) as error:
        return {"status": 0, "bytes": 0, "said": str(error)[:LONGEST]}


if __name__ == "__main__":
    main()
