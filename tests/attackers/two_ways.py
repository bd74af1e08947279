"""Asks what two programs could read in two ways, again and again, and prints what was answered, as JSON.

``two_ways.py PORT SECONDS``: each of ``REQUESTS`` and ``PATHS`` on a connection of its own to 127.0.0.1, one after the
other, until the seconds are over. Of each name the statuses that it got, ``+`` for a second answer on the connection,
``none`` for a connection that was closed without one, and ``!`` behind a status that the engine itself has answered
(it says ``"engine"``).
"""

from __future__ import annotations

import collections
import json
import socket
import sys
import time
from collections.abc import Mapping

LONGEST_S = 5
PAUSE_S = 0.02
POST = "POST /v1/chat/completions HTTP/1.1\r\nHost: engine\r\nConnection: close\r\n"
LOOK = "GET /v1/models HTTP/1.1\r\nHost: engine\r\nConnection: close\r\n"
BODY = '{"parts": 1, "pause": 0}'
INNER = "GET /slots HTTP/1.1\r\nHost: engine\r\n\r\n"
CHUNKED = f"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{INNER}"
TOO_LONG = ("1000001", "0001000001", str(2**31), str(2**32 + 3), str(2**63 - 1), str(2**64 + 3))
"""HAProxy itself takes 2^64 + 3 for 3 and hands it on as it is written; ``hdr_val`` has 32 bits."""
HTTP2 = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""With which a client begins that knows the server to speak HTTP/2."""

REQUESTS: Mapping[str, tuple[str, str]] = {
    "two lengths": (f"{POST}Content-Length: 2\r\nContent-Length: 7\r\n\r\n{{}}", "400"),
    "two lengths in one": (f"{POST}Content-Length: 2, 7\r\n\r\n{{}}", "400"),
    "a length below zero": (f"{POST}Content-Length: -2\r\n\r\n{{}}", "400"),
    "a length with a sign": (f"{POST}Content-Length: +2\r\n\r\n{{}}", "400"),
    "a length in hexadecimal digits": (f"{POST}Content-Length: 0x2\r\n\r\n{{}}", "400"),
    "a length of 2^63": (f"{POST}Content-Length: {2**63}\r\n\r\n{{}}", "400"),
    **{f"a length of {length}": (f"{POST}Content-Length: {length}\r\n\r\n{{}}", "413") for length in TOO_LONG},
    "no length": (f"{POST}\r\n{{}}", "411"),
    "a length and chunks": (f"{POST}Content-Length: 2\r\n{CHUNKED}", "411"),
    "chunks and a body that has none": (f"{POST}Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{{}}", "400"),
    "chunks": (f"{POST}{CHUNKED}", "411"),
    "chunks with an extension": (f"{POST}Transfer-Encoding: chunked\r\n\r\n0;a=b\r\n\r\n{INNER}", "411"),
    "xchunked": (f"{POST}Content-Length: 2\r\nTransfer-Encoding: xchunked\r\n\r\n{{}}", "400"),
    "chunked twice": (f"{POST}Transfer-Encoding: chunked\r\n{CHUNKED}", "400"),
    "chunked, then identity": (f"{POST}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", "400"),
    "chunked behind a tab": (f"{POST}Transfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n", "411"),
    "a blank before the colon": (f"{POST}Content-Length : 2\r\n\r\n{{}}", "400"),
    "a blank in a name": (LOOK.replace("Host", "Ho st") + "\r\n", "400"),
    "a line that is folded": (f"{POST}X: a\r\n Content-Length: 2\r\nContent-Length: {len(BODY)}\r\n\r\n{BODY}", "200!"),
    "a CR alone": (f"{POST}X-Alone: a\rContent-Length: 7\r\nContent-Length: 2\r\n\r\n{{}}", "400"),
    "a NUL": (f"{POST}X: a\0b\r\nContent-Length: {len(BODY)}\r\n\r\n{BODY}", "400 200!"),
    "LF alone": (f"{LOOK}\r\n".replace("\r\n", "\n"), "200!"),
    "a look with a body": (f"{LOOK}Content-Length: {len(INNER)}\r\n\r\n{INNER}", "400"),
    "a look with chunks": (f"{LOOK}{CHUNKED}", "411"),
    "a look behind a look": (f"{LOOK}\r\n{INNER}", "200!"),
    "HTTP/2": (f"{HTTP2}{LOOK}\r\n", "400"),
    "HTTP/0.9": (LOOK.replace("HTTP/1.1", "HTTP/0.9") + "\r\n", "400"),
    "another method": (LOOK.replace("GET", "DELETE") + "\r\n", "405"),
    "a look by POST": (LOOK.replace("GET", "POST") + "\r\n", "405"),
}
"""Each with what it has to be answered, or one of two: HAProxy 3.0 refuses a NUL, and 2.6 hands it on as it is.

What is folded is unfolded, and a line that ends with LF alone gets its CR, before the engine sees it.
"""

PATHS: Mapping[str, str] = {
    **dict.fromkeys(("/v1/models", "/v1/models?a=/slots", "/v1/models/qwen:Q4_K_M", "/health"), "200!"),
    **dict.fromkeys(("/", "/slots", "//v1/models", "/v1//models", "/v1/../v1/models", "/v1/models/.."), "404"),
    **dict.fromkeys(("/v1/%6dodels", "/v1/models/%2e%2e", "/V1/models", "/v1/models/", "/v1/models/a/b"), "404"),
    **dict.fromkeys(("/v1/models;a", "/v1/models/..;/slots", "/health/", "/v1/models\\..\\slots"), "404"),
    **dict.fromkeys(("http://other/v1/models", "/v1/models#a", "/v1/ models", "slots"), "400"),
    **dict.fromkeys(("/web/", "/web/a", "/web/a/b.css", "/web/a/b/c?d=/slots"), "200!"),
    **dict.fromkeys(("/web", "/webs/a", "/web//a", "/web/a//b", "/web/../slots", "/web/a/..", "/web/a/./b"), "404"),
    **dict.fromkeys(("/web/%2e%2e/slots", "/web/a;/slots", "/web\\a", "/WEB/a", "/a/web/b"), "404"),
    "/v1/chat/completions": "405",
}
"""Each with what a look at it has to be answered."""


def answered(port: int, request: str) -> str:
    """Return what became of one request, in the words of this program."""
    answer = b""
    try:
        with socket.create_connection(("127.0.0.1", port), LONGEST_S) as connection:
            connection.sendall(request.encode())
            while part := connection.recv(65536):
                answer += part
    except OSError:
        pass  # closed hard where the request was not read to its end, or silent
    statuses = "+".join(head[:3].decode(errors="replace") for head in answer.split(b"HTTP/1.1 ")[1:])
    return (statuses or "none") + ("!" if b'"engine"' in answer else "")


def main() -> None:
    """Ask until the time is over."""
    port, until = int(sys.argv[1]), time.monotonic() + float(sys.argv[2])
    asked = {name: request for name, (request, _) in REQUESTS.items()}
    asked |= {path: LOOK.replace("/v1/models", path, 1) + "\r\n" for path in PATHS}
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    while time.monotonic() < until:
        for name, request in asked.items():
            counts[name][answered(port, request)] += 1
            time.sleep(PAUSE_S)  # the pace of the attack
    json.dump(counts, sys.stdout)


if __name__ == "__main__":
    main()
