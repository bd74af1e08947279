"""Asks a model for an answer and prints as JSON after how many seconds its ``first`` token came, and how it ``ended``.

``first_token.py PORT MODEL``, with the key on standard input, which may be empty.
"""

from __future__ import annotations

import http.client
import json
import sys
import time

PORT, MODEL = int(sys.argv[1]), sys.argv[2]
ASKED = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Say hello."}],
    "max_tokens": 8,
    "ignore_eos": True,
    "stream": True,
}
server = http.client.HTTPConnection("127.0.0.1", PORT, timeout=120)
headers = {"Authorization": f"Bearer {sys.stdin.read().strip()}", "Content-Type": "application/json"}
first, ended = None, None
began = time.monotonic()
server.request("POST", "/v1/chat/completions", json.dumps(ASKED), headers)
for line in server.getresponse():
    if not line.startswith(b"data: {"):
        continue
    for choice in json.loads(line[6:])["choices"]:
        if first is None and choice["delta"].get("content"):
            first = time.monotonic() - began
        ended = choice.get("finish_reason") or ended
json.dump({"first": first, "ended": ended}, sys.stdout)
