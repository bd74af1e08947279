"""Stop a container by force, and take it well when it has stopped by itself meanwhile."""

from __future__ import annotations

import time

from provisioner.providers.incus.client import Client
from provisioner.providers.incus.wire import WireError

TIMEOUT_S = 30
POLL_S = 0.1
_ENDED = "is not running"


def by_force(client: Client, name: str, timeout_s: float = TIMEOUT_S) -> None:
    """Return when the container has stopped; ``WireError`` when it runs on after ``timeout_s``."""
    try:
        body = {"action": "stop", "force": True, "timeout": TIMEOUT_S}
        client.change("put", "instances", name, "state", body=body)
    except WireError as error:
        # Stopping what has just stopped by itself is an error to Incus, also in the moment between the end of its
        # last process and the note that it has stopped; to us it is what was wanted.
        deadline = time.monotonic() + timeout_s
        while not _has_stopped(client, name):
            if _ENDED not in str(error) or time.monotonic() >= deadline:
                raise
            time.sleep(POLL_S)


def _has_stopped(client: Client, name: str) -> bool:
    found = client.find("instances", name)
    return found is None or found["status"] == "Stopped"
