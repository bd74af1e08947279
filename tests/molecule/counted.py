"""What becomes of requests while something happens to who answers them: for scenarios of engines and of the switch."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testinfra.host import Host

SHARED = Path(__file__).resolve().parents[2] / "molecule" / "shared"
CLIENTS = 8
KEPT = 6
CALM_S = 2
"""So long the load goes on before and after what happens: some answers are whole in any case."""
MOST_S = 200
"""So long the last answers may take."""


def counted(host: Host, happening: Callable[[], object], port: int, *words: str) -> dict[str, Any]:
    """How many answers were ``whole``, ``cut`` or ``lost``, and statuses of refusals; ``slowest`` in seconds.

    ``words``: those of ``molecule/shared/load.py`` behind its file.
    """
    return _told_by(host, "load.py", f"{port} {CLIENTS} /run/load.stop {' '.join(words)}", happening)


def kept(host: Host, happening: Callable[[], object], port: int, path: str, *words: str) -> dict[str, int]:
    """How many requests on connections that are kept were ``answered`` and ``lost``, and statuses of refusals.

    ``words``: those of ``molecule/shared/kept.py`` behind its path.
    """
    return _told_by(host, "kept.py", f"{port} {KEPT} /run/load.stop {path} {' '.join(words)}", happening)


def _told_by(host: Host, program: str, words: str, happening: Callable[[], object]) -> dict[str, Any]:
    """What a program of ``molecule/shared`` tells that asks in the container while something happens."""
    content = base64.b64encode((SHARED / program).read_bytes()).decode()
    host.check_output(f"rm -f /run/load.* && echo {content} | base64 --decode > /run/{program}")
    streams = "--property=StandardOutput=file:/run/load.told --property=StandardError=file:/run/load.said"
    host.check_output(f"systemd-run --quiet --unit load --collect {streams} python3 /run/{program} {words}")
    host.check_output(f"sleep {CALM_S}")
    happening()
    host.check_output(f"sleep {CALM_S}; touch /run/load.stop")
    host.check_output(f"timeout {MOST_S} sh -c 'while systemctl is-active --quiet load; do sleep 0.1; done'")
    sys.stderr.write(host.check_output("cat /run/load.said"))  # shown where the test fails
    return dict(json.loads(host.check_output("cat /run/load.told")))
