"""How long the double's connections last: as long as PVE's."""

from __future__ import annotations

import http.client
import socket
import ssl
from contextlib import closing

import pytest

from tests.doubles.proxmox import Double, server
from tests.doubles.proxmox.client import root


def opened(pve: Double) -> http.client.HTTPSConnection:
    """A connection to the first node."""
    host, _, port = pve.address.partition(":")
    context = ssl.create_default_context(cafile=str(pve.ca))
    return http.client.HTTPSConnection(host, int(port), context=context, timeout=10)


def asked(pve: Double, connection: http.client.HTTPConnection, path: str = "/version") -> http.client.HTTPResponse:
    """One answer over it."""
    connection.request("GET", f"/api2/json{path}", headers=dict(root(pve).headers))
    answer = connection.getresponse()
    answer.read()
    return answer


def test_one_that_is_silent_is_closed(pve: Double, monkeypatch: pytest.MonkeyPatch) -> None:
    """PVE does so after five seconds (``AnyEvent.pm``)."""
    assert server.Handler.timeout == 5
    monkeypatch.setattr(server.Handler, "timeout", 0.2)
    context = ssl.create_default_context(cafile=str(pve.ca))
    host, _, port = pve.address.partition(":")
    with (
        socket.create_connection((host, int(port)), 60) as raw,
        context.wrap_socket(raw, server_hostname=host) as secure,
    ):
        secure.settimeout(5)
        assert secure.recv(1) == b""


def test_what_goes_down_ends_them(pve: Double) -> None:
    with closing(opened(pve)) as connection:
        asked(pve, connection)
        kept = connection.sock
        assert kept is not None
        pve.take_down("pve1")
        assert kept.recv(1) == b""
