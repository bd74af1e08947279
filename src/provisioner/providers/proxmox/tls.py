"""Check who the server is: signed by a certificate authority, or the one whose certificate has that fingerprint."""

from __future__ import annotations

import ssl
import time
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPSConnection
from urllib3.connectionpool import HTTPSConnectionPool
from urllib3.util.ssl_ import ALPN_PROTOCOLS

from provisioner.providers.proxmox.access import Access
from provisioner.providers.proxmox.failures import UnreachableError

CONNECTIONS = 32
"""Kept open at most; more can be in use at once."""
SILENCE_S = 4.0
"""pveproxy closes a connection after 5 s of silence: one that is nearly so old might go just as it is used again, and
then nobody could tell whether a change was made."""


class _Connection(HTTPSConnection):
    _answered = 0.0

    def getresponse(self) -> Any:
        response = super().getresponse()
        self._answered = time.monotonic()
        return response

    @property
    def is_connected(self) -> bool:
        """Whether it can be used again; the pool asks."""
        return super().is_connected and time.monotonic() - self._answered < SILENCE_S


class _Pool(HTTPSConnectionPool):
    ConnectionCls = _Connection


class Adapter(HTTPAdapter):
    """Connections to one host, kept open and shared by all threads and identities."""

    def __init__(self, access: Access) -> None:
        self._tls: dict[str, Any] = {}
        if access.fingerprint:
            self._tls["assert_fingerprint"] = access.fingerprint
        if access.ca:
            self._tls["ssl_context"] = _context(access)
        super().__init__(pool_connections=1, pool_maxsize=CONNECTIONS)

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **options: Any) -> None:
        """With what we ask of the server."""
        super().init_poolmanager(connections, maxsize, block, **options, **self._tls)
        self.poolmanager.pool_classes_by_scheme = {"https": _Pool}

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        """The same through a proxy."""
        return super().proxy_manager_for(proxy, **options, **self._tls)


class _Settled(ssl.SSLContext):
    """What all threads share and nobody changes any more.

    urllib3 sets protocols and authorities again, the same ones, for each connection. OpenSSL frees the old list then,
    and another thread that is just greeting the server sends what lies there instead: "tlsv1 alert decode error".
    """

    is_settled = False

    def settle(self) -> ssl.SSLContext:
        """Take no more of them."""
        self.is_settled = True
        return self

    def set_alpn_protocols(self, alpn_protocols: Any) -> None:
        """Once."""
        if not self.is_settled:
            super().set_alpn_protocols(alpn_protocols)

    def load_verify_locations(self, *args: Any, **options: Any) -> None:
        """Once."""
        if not self.is_settled:
            super().load_verify_locations(*args, **options)


def _context(access: Access) -> ssl.SSLContext:
    # It verifies, and compares the host's name. Not strictly, as Python's default is since 3.13: Proxmox's
    # authorities from before 2025 do not say what their key is used for.
    context = _Settled(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(str(access.ca))
    except OSError as error:
        message = f"The certificate authority's file {access.ca} cannot be used: {error.strerror or error}"
        raise UnreachableError(message, resolution="Copy /etc/pve/pve-root-ca.pem from the node again") from error
    context.set_alpn_protocols(ALPN_PROTOCOLS)
    return context.settle()


def verification(access: Access) -> bool | str:
    """What requests has to verify: nothing only where the adapter compares the fingerprint instead."""
    if access.ca:
        return str(access.ca)
    return not access.fingerprint


def seen_fingerprint(url: str, timeout_s: float = 5.0) -> str:
    """The sha256 of the certificate that the server shows, whoever it is; ``OSError`` when it shows none."""
    address = urlsplit(url)
    where = (address.hostname or "", address.port or 443)
    shown = ssl.get_server_certificate(where, timeout=timeout_s)
    return sha256(ssl.PEM_cert_to_DER_cert(shown)).hexdigest()
