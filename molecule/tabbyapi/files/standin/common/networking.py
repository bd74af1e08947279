"""Whether a port is taken (upstream's common/networking.py: a connection that succeeds)."""

from __future__ import annotations

import socket


def is_port_in_use(port: int) -> bool:
    """Whether something answers on the port of this machine."""
    with socket.socket() as tried:
        tried.settimeout(1)
        return tried.connect_ex(("localhost", port)) == 0
