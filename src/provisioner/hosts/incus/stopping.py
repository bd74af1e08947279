"""Stop a container: cleanly, by force only when its time ran out; one that stops by itself meanwhile has stopped."""

from __future__ import annotations

import time
from http.client import HTTPException

from provisioner.hosts.incus.api import Client, WireError

TIMEOUT_S = 30
POLL_S = 0.1
ASK_AGAIN_S = 1.0
_ENDED = "is not running"
_STILL_THERE = "Failed stopping instance, status is"
_TAKEN = ("Instance is busy running", "Failed shutting down instance")
"""How Incus begins what it says of a question that it did take, although the container runs on."""


def stop_cleanly(client: Client, name: str, timeout_s: float) -> bool:
    """Ask it to stop, again when the daemon did not take the question: whether it stopped; False: its time ran out.

    Raises what the daemon said when it took the question in none of that time: nobody has asked the container then.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        began = time.monotonic()
        try:
            body = {"action": "stop", "timeout": max(1, round(deadline - began))}
            client.change("put", "instances", name, "state", body=body)
        except (WireError, OSError, HTTPException) as error:
            if _has_stopped(client, name):
                return True
            now = time.monotonic()
            if now + ASK_AGAIN_S < deadline:
                time.sleep(ASK_AGAIN_S)
                continue
            was_taken = any(words in str(error) for words in _TAKEN)
            if now - began < min(ASK_AGAIN_S, timeout_s) / 2 and not was_taken:
                raise
            return False
        else:
            return True


def stop_by_force(client: Client, name: str, timeout_s: float = TIMEOUT_S) -> None:
    """Return when the container has stopped; ``WireError`` when it runs on after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    body = {"action": "stop", "force": True, "timeout": TIMEOUT_S}
    while True:
        try:
            client.change("put", "instances", name, "state", body=body)
        except WireError as error:
            # Stopping what has just stopped by itself is an error to Incus, also in the moment between the end of its
            # last process and the note that it has stopped; to us it is what was wanted.
            while _ENDED in str(error) and time.monotonic() < deadline and not _has_stopped(client, name):
                time.sleep(POLL_S)
            if _has_stopped(client, name):
                return
            # One that another stop has just ended and that was started again may be caught by the end of the first.
            if _STILL_THERE not in str(error) or time.monotonic() >= deadline:
                raise
            time.sleep(POLL_S)
        else:
            return


def _has_stopped(client: Client, name: str) -> bool:
    found = client.find("instances", name)
    return found is None or found["status"] == "Stopped"
