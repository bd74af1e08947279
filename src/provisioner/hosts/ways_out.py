"""What is public, and where names lead: what the rules of all kinds of host say of ways out of a container."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from ipaddress import ip_address, ip_network

PRIVATE = (
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
    *("192.0.0.0/24", "192.0.2.0/24", "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/3"),
)
"""What is nobody's on the internet, as role ``egress`` has it; a test holds both."""
PRIVATE_6 = ("::/3", "4000::/2", "8000::/1")
"""All of IPv6 that is nobody's on the internet."""


def public_ranges(near: Iterable[str]) -> Iterator[str]:
    """All ranges that are public ("FIRST-LAST"), without the networks that a container is in itself."""
    taken = [ip_network(one) for one in (*PRIVATE, *PRIVATE_6, *near)]
    taken.sort(key=lambda one: (one.version, int(one.network_address)))
    free = {4: 0, 6: 0}
    for one in taken:
        first, last = int(one.network_address), int(one.broadcast_address)
        address, begin = type(one.network_address), free[one.version]
        if begin < first:
            yield f"{address(begin)}-{address(first - 1)}"
        free[one.version] = max(begin, last + 1)


def addresses_of(host: str, *, asks: bool) -> list[str]:
    """Return the addresses of a host: itself, or those that a name has for this machine, where it is ``asks``-ed."""
    with suppress(ValueError):
        return [str(ip_address(host))]
    if asks:
        with suppress(OSError):
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            return sorted({str(one[4][0]) for one in found})
    return []
