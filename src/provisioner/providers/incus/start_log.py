"""Why a container did not start: Incus says only that it did not, and LXC has written the reason into its log."""

from __future__ import annotations

from http.client import HTTPException

from provisioner.providers.incus import files
from provisioner.providers.incus.endpoint import Endpoint
from provisioner.providers.incus.wire import WireError

STARTER = "forkstart"
"""The program of Incus that starts a container; its words are its arguments and an exit status."""
LOG = "lxc.log"
MARK = " ERROR "
MOST_LINES = 5


def explained(endpoint: Endpoint, name: str, error: WireError) -> WireError:
    """The error of a start with the errors that LXC wrote first; as it is where Incus says why, or the log does not."""
    if STARTER not in str(error):
        return error
    try:
        text = files.read_log(endpoint, name, LOG).decode(errors="replace")
    except (WireError, OSError, HTTPException):
        return error  # that it did not start is what counts
    lines = [line.partition(MARK)[2].strip() for line in text.splitlines() if MARK in line]
    return WireError(error.status, "\n".join([str(error), *lines[:MOST_LINES]]))
