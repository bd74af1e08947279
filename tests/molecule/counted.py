"""What becomes of requests while something happens to who answers them: for scenarios of engines and of the switch."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testinfra.host import Host

LOAD = Path(__file__).resolve().parents[2] / "molecule" / "shared" / "load.py"
CLIENTS = 8
CALM_S = 2
"""So long the load goes on before and after what happens: some answers are whole in any case."""
MOST_S = 200
"""So long the last answers may take."""


def counted(host: Host, happening: Callable[[], object], port: int, *words: str) -> dict[str, Any]:
    """How many answers were ``whole``, ``cut`` or ``lost``, and statuses of refusals; ``slowest`` in seconds.

    ``words``: those of ``molecule/shared/load.py`` behind its file.
    """
    content = base64.b64encode(LOAD.read_bytes()).decode()
    host.check_output(f"rm -f /run/load.stop /run/load.told && echo {content} | base64 --decode > /run/load.py")
    unit = "systemd-run --quiet --unit load --collect --property=StandardOutput=file:/run/load.told"
    host.check_output(f"{unit} python3 /run/load.py {port} {CLIENTS} /run/load.stop {' '.join(words)}")
    host.check_output(f"sleep {CALM_S}")
    happening()
    host.check_output(f"sleep {CALM_S}; touch /run/load.stop")
    host.check_output(f"timeout {MOST_S} sh -c 'while systemctl is-active --quiet load; do sleep 0.1; done'")
    return dict(json.loads(host.check_output("cat /run/load.told")))
