"""How much later the first part of an answer comes through the switch, and what it computes, as JSON.

``cost.py PAIRS DIRECT_PORT PORT``: each question is asked of the engine itself and through the switch, in turns.
``added_ms`` is the median of the differences, ``bound_ms`` the upper end of a 95 % interval of their mean.
"""

from __future__ import annotations

import http.client
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

PAIRS, DIRECT, SWITCH = (int(word) for word in sys.argv[1:])
PARTS = 20
QUESTION = json.dumps({"parts": PARTS, "pause": 0.002})


def first_part_s(port: int) -> float:
    """Seconds until the first part of an answer was there; the answer is read to its end."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    began = time.perf_counter()
    connection.request("POST", "/v1/chat/completions", QUESTION)
    answer = connection.getresponse()
    answer.readline()
    took = time.perf_counter() - began
    answer.read()
    connection.close()
    return took


def computed_s() -> float:
    """The CPU seconds of all processes of the switch."""
    pids = subprocess.run(
        ["pgrep", "-x", "haproxy"], capture_output=True, text=True, check=True, timeout=60
    ).stdout.split()
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Ask, and say what it took."""
    differences = []
    before = computed_s()
    for pair in range(PAIRS):
        order = (DIRECT, SWITCH) if pair % 2 else (SWITCH, DIRECT)
        took = {port: first_part_s(port) for port in order}
        differences.append((took[SWITCH] - took[DIRECT]) * 1000)
    error = statistics.stdev(differences) / PAIRS**0.5
    told = {
        "added_ms": round(statistics.median(differences), 2),
        "bound_ms": round(statistics.mean(differences) + 1.96 * error, 2),
        "cpu_s_per_1000_parts": round((computed_s() - before) * 1000 / (PAIRS * PARTS), 4),
    }
    json.dump(told, sys.stdout)


main()
