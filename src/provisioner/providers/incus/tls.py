"""HTTPS to an Incus elsewhere: we show our client certificate, and it must be the server that was meant.

No variable of the environment says whom to trust: neither those of requests and curl, nor OpenSSL's own.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from provisioner.providers.incus.endpoint import PORT, Endpoint
from provisioner.providers.incus.wire import BLOCK_BYTES, UnreachableError

CONNECT_S = 10.0
_SILENCE_S, _PROBE_S, _PROBES = 15, 5, 3
"""A server that went away without a word is noticed after half a minute of silence."""
_READABLE_BY_OTHERS = 0o077
_HOW_TO_ENROL = (
    "Make one and have it trusted: there, `incus config trust add NAME` prints a token; here, run: "
    "provision host prepare --trust -"
)


class WrongServerError(UnreachableError):
    """The certificate of the server has another fingerprint than was expected."""


class TlsConnection(http.client.HTTPConnection):
    """One HTTPS connection, to be used in ``contextlib.closing``; nothing is sent before the server is known."""

    def __init__(self, endpoint: Endpoint, timeout_s: float | None) -> None:
        host, port = endpoint.place
        super().__init__(host, port, timeout=CONNECT_S, blocksize=BLOCK_BYTES)
        self._endpoint = endpoint
        self._timeout_s = timeout_s

    def connect(self) -> None:
        """Connect and see whose certificate it is; ``UnreachableError`` says what was wrong."""
        context = _context(self._endpoint)
        try:
            super().connect()
            _keep_alive(self.sock)
            secured = context.wrap_socket(self.sock, server_hostname=self.host)
        except OSError as error:
            self.close()
            raise _unconnected(self._endpoint, error) from error
        self.sock = secured
        self._require(secured.getpeercert(binary_form=True) or b"")
        self.sock.settimeout(self._timeout_s)

    def send(self, data: object) -> None:
        """Send; a server that has closed is a broken pipe here, too."""
        try:
            super().send(data)  # type: ignore[arg-type]  # whatever http.client sends
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
            raise BrokenPipeError(str(error)) from error

    def _require(self, certificate: bytes) -> None:
        wanted, shown = self._endpoint.fingerprint, sha256(certificate).hexdigest()
        if wanted and shown != wanted:
            self.close()
            raise WrongServerError(
                f"Its certificate has the fingerprint {shown}, and {wanted} was expected.",
                "Somebody else may be answering. On that machine, `incus info` shows the right one as "
                "certificate_fingerprint: write it into the file only if it is the same there.",
            )


def _context(endpoint: Endpoint) -> ssl.SSLContext:
    """What connections to one server share, as long as our files are the same."""
    pair = [Path(path) for path in (endpoint.cert, endpoint.key) if path]
    return _made_context(endpoint, *(file.stat().st_ctime_ns for file in pair if file.is_file()))


@lru_cache
def _made_context(endpoint: Endpoint, *_changed: int) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if endpoint.fingerprint:
        # The fingerprint says more than any authority could: it is compared before the first byte is sent.
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    else:
        # By their paths: `load_default_certs` would ask SSL_CERT_FILE and SSL_CERT_DIR.
        places = ssl.get_default_verify_paths()
        file, folder = Path(places.openssl_cafile), Path(places.openssl_capath)
        context.load_verify_locations(file if file.is_file() else None, folder)
    _show(context, endpoint)
    return context


def _show(context: ssl.SSLContext, endpoint: Endpoint) -> None:
    """Have our certificate shown; one that cannot be, or whose key others can read, is refused."""
    if not endpoint.cert:
        return
    for file in (endpoint.cert, endpoint.key):
        if not Path(file).is_file():
            raise UnreachableError(f"There is no client certificate: {file} is missing.", _HOW_TO_ENROL)
    if Path(endpoint.key).stat().st_mode & _READABLE_BY_OTHERS:
        raise UnreachableError(f"Others can read the key {endpoint.key}.", f"Run: chmod 600 {endpoint.key}")
    try:
        context.load_cert_chain(endpoint.cert, endpoint.key, password="")
    except (OSError, ValueError) as error:
        raise UnreachableError(
            f"{endpoint.cert} and {endpoint.key} are no certificate with its key: {_reason(error)}",
            "A key with a password cannot be used. " + _HOW_TO_ENROL,
        ) from error


def _keep_alive(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", _SILENCE_S), ("TCP_KEEPINTVL", _PROBE_S), ("TCP_KEEPCNT", _PROBES)):
        if hasattr(socket, option):  # Linux has them
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _unconnected(endpoint: Endpoint, error: OSError) -> UnreachableError:
    host, port = endpoint.place
    where = f"{host}:{port}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return UnreachableError(
            f"{where} shows a certificate that no authority of this machine has signed: {error.verify_message}",
            "Incus signs its own. Write it as `fingerprint:`, as `incus info` on that machine shows it "
            "(certificate_fingerprint).",
        )
    if isinstance(error, ssl.SSLError):
        is_it = f"Is `incus:` the address of Incus' own API, such as {_example(host)}?"
        return UnreachableError(f"{where} does not speak TLS 1.3 with us: {_reason(error)}", is_it)
    if isinstance(error, socket.gaierror):
        hint = "Write its address, or a name that this machine can look up."
        return UnreachableError(f"The name {host} is not known: {error.strerror}", hint)
    words = f"none within {CONNECT_S:.0f} s" if isinstance(error, TimeoutError) else error.strerror or str(error)
    return UnreachableError(
        f"There is no connection to {where}: {words}",
        "Is that machine on, does no firewall stand between, and does its Incus listen there? On it: "
        f"incus config set core.https_address :{port}",
    )


def _example(host: str) -> str:
    return f"https://[{host}]:{PORT}" if ":" in host else f"https://{host}:{PORT}"


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", "") or getattr(error, "strerror", "") or error)
