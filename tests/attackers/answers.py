"""Answers in the place of a container's python3: what that one would, but for a lie, or without an end.

It is installed under that name before the true one. ``/run/answers`` holds ``MODE SECONDS``: ``fails``, ``steering``,
one of ``LIES`` or of ``GOING_ON``, and how long the latter may last.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

MODE = Path("/run/answers")
TRUE = "/usr/bin/python3"
HELD = "\x1b]0;mine\x07\x1b[2J\x9b31m\x00\u202e"
"""What steers a terminal, or turns the text behind it around."""
MARKUP = "</td></code>`` ` @octocat &#64;octocat www.hostile.example [x](https://hostile.example) <img src=x> **b**"
"""What a page of HTML or a comment in Markdown would render."""
WORDS = f"{HELD}{MARKUP}{'x' * 2000}"
DEPTH = 100_000
STEPS = 200
"""More than an answer has levels, and fewer than a parser refuses."""
PAUSE_S = 1.0

Lie = Callable[[bytes], bytes]


def changed(true: bytes, change: Callable[[Any], Any]) -> bytes:
    """Return the answer with another value at the place of each text; lists of what was changed are long."""

    def other(value: Any, key: str = "") -> Any:
        if key == "changed":
            return [["paths", f"{number} {change('')}", change("")] for number in range(300)]
        if isinstance(value, dict):
            return {name: other(inner, name) for name, inner in value.items()}
        if isinstance(value, list):
            return [other(inner) for inner in value]
        return change(value) if isinstance(value, str) else value

    return json.dumps(other(json.loads(true))).encode()


def with_values(true: bytes, text: str) -> bytes:
    """Return an object of the same keys, each with this value."""
    return f"{{{', '.join(f'{json.dumps(key)}: {text}' for key in json.loads(true))}}}".encode()


LIES: Mapping[str, Lie] = {
    "nothing": lambda _true: b"",
    "half": lambda true: true[: len(true) // 2],
    "twice": lambda true: true + true,
    "a key twice": lambda true: b'{"stamps": {}, ' + true.strip()[1:],
    "no UTF-8": lambda true: true.strip()[:-1] + b', "\xff": 1}',
    "deep": lambda _true: b"[" * DEPTH,
    "deep within": lambda true: with_values(true, "[" * STEPS + "]" * STEPS),
    "numbers": lambda true: with_values(true, "7"),
    "texts": lambda true: with_values(true, json.dumps(WORDS)),
    "a huge number": lambda true: with_values(true, "9" * 5000),
    "infinite": lambda true: with_values(true, "1e999"),
    "no number": lambda true: with_values(true, "NaN"),
    "another version": lambda true: json.dumps({"version": 2, **json.loads(true)}).encode(),
    "what nobody asked": lambda true: json.dumps({**json.loads(true), "unit": {f"other/{WORDS}": "active"}}).encode(),
    "a text without an end": lambda true: changed(true, lambda _text: "x" * 10_000),
    "a page": lambda _true: f"<!doctype html><h1>{WORDS}</h1>".encode(),
}
"""Answers that no agent gives: each is refused as a whole."""


def steering(true: bytes) -> bytes:
    """Return an answer as it should be, of texts that would steer whoever shows them."""
    return changed(true, lambda _text: WORDS)


def endless(begin: bytes, part: bytes, pause_s: float = 0) -> Callable[[BinaryIO, bytes, float], None]:
    """Return what writes the beginning and then the part again and again, until a time is over."""

    def write(output: BinaryIO, _true: bytes, until: float) -> None:
        output.write(begin)
        while time.monotonic() < until:
            output.write(part)
            output.flush()
            time.sleep(pause_s)

    return write


def falls_silent(output: BinaryIO, true: bytes, until: float) -> None:
    """Write half of the answer and nothing more."""
    output.write(true[: len(true) // 2])
    output.flush()
    time.sleep(max(until - time.monotonic(), 0))


GOING_ON: Mapping[str, Callable[[BinaryIO, bytes, float], None]] = {
    "one line": endless(b'{"stamps": "', b"x" * 65536),
    "lines": endless(b"", b'{"stamps": {}}\n' * 4096),
    "drips": endless(b"", b" ", PAUSE_S),
    "falls silent": falls_silent,
}
"""Answers that have no end."""


def main() -> int:
    """Answer by the mode; the exit code."""
    mode, _, seconds = MODE.read_text(encoding="utf-8").strip().rpartition(" ")
    until = time.monotonic() + float(seconds)
    if mode == "fails":
        sys.stderr.write(WORDS)
        return 1
    true = subprocess.run([TRUE, *sys.argv[1:]], input=sys.stdin.buffer.read(), capture_output=True, timeout=60)  # noqa: PLW1510
    if mode in GOING_ON:
        GOING_ON[mode](sys.stdout.buffer, true.stdout, until)
    else:
        sys.stdout.buffer.write({**LIES, "steering": steering}[mode](true.stdout))
    return true.returncode


if __name__ == "__main__":
    sys.exit(main())
