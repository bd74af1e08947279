"""How a program in Go reads durations, and writes times, numbers, JSON and its log."""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime, timedelta
from typing import Any, TextIO

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_QUANTITY = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)")


def duration(text: str) -> float | None:
    """The seconds of a duration as Go writes it, or None if it is none."""
    sign = -1 if text.startswith("-") else 1
    rest = text.lstrip("+-")
    if rest == "0":
        return 0.0
    parts = _QUANTITY.findall(rest)
    if not parts or "".join(number + unit for number, unit in parts) != rest:
        return None
    return sign * sum(float(number) * _UNITS[unit] for number, unit in parts)


def log(source: str, message: str, level: str = "INFO", **fields: Any) -> None:
    """Write a line to the journal as Go's slog does."""
    rest = "".join(f" {name}={json.dumps(str(value), ensure_ascii=False)}" for name, value in fields.items())
    text = json.dumps(message, ensure_ascii=False)
    console(f"time={now_text()} level={level} source={source} msg={text}{rest}", sys.stderr)


def console(line: str, stream: TextIO | None = None) -> None:
    """Write a line at once, so that a journal has it whatever ends the program."""
    print(line, file=stream, flush=True)


def now_text(seconds_from_now: float = 0.0) -> str:
    """A time as Go writes it into JSON."""
    return moment_text(datetime.now(UTC) + timedelta(seconds=seconds_from_now))


def moment_text(moment: datetime) -> str:
    """A moment as Go writes it into JSON."""
    return moment.isoformat().replace("+00:00", "Z")


def json_line(value: Any) -> bytes:
    """One value in one line, as Go's encoder ends it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
