"""The API of an Incus: HTTP over its unix socket or TLS, its answers and failures; changes go through pylxd.

pylxd is right over the socket, but importing it costs 0.15 CPU-seconds, which Ansible would pay once per task, and its
files API holds whole files in memory. Over TLS it loses output of commands, and takes orders from CURL_CA_BUNDLE.
"""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from http import HTTPStatus
from http.client import HTTPException
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from provisioner.values import limits
from provisioner.values.errors import ProviderError, UnavailableError
from provisioner.values.plain_data import MOST_OF_AN_OUTPUT, Foreign, json_value
from provisioner.values.regular_files import content_of

if TYPE_CHECKING:
    import pylxd


# The address of an Incus, and the certificates by which it and provision know each other.

PORT = 8443
"""The port on which Incus listens by default."""
_HTTPS = "https://"
_VARIABLE = "provision_"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A unix socket's path, or the https address of an Incus elsewhere and what both sides show each other there.

    ``cert`` and ``key`` are files of ours. ``fingerprint`` is the sha256 of its certificate; without one, an authority
    of this machine must have signed that.
    """

    address: str
    cert: str = ""
    key: str = ""
    fingerprint: str = ""

    def __str__(self) -> str:
        return self.address

    @property
    def is_remote(self) -> bool:
        """Whether it is on another machine, as far as we know."""
        return self.address.startswith(_HTTPS)

    @property
    def place(self) -> tuple[str, int]:
        """Name or address, and port, of an Incus elsewhere."""
        parts = urlsplit(self.address)
        return parts.hostname or "", parts.port or PORT

    @property
    def variables(self) -> dict[str, str]:
        """The variables by which our connection plugin finds it; files are named, never what is in them."""
        given = {"endpoint": self.address, "cert": self.cert, "key": self.key, "fingerprint": self.fingerprint}
        return {f"{_VARIABLE}{name}": value for name, value in given.items() if value}

    def prepare(self, options: str = "") -> str:
        """The command that prepares the machine of this Incus, said to somebody who sits here."""
        command = f"sudo provision host prepare{options}"
        return f"On the machine of that Incus, run: {command}" if self.is_remote else f"Run: {command}"


def local_endpoint() -> Endpoint:
    """This machine's socket: ``$INCUS_SOCKET``, else ``unix.socket`` in ``$INCUS_DIR``, else in Incus' usual folder."""
    folder = os.environ.get("INCUS_DIR") or "/var/lib/incus"
    return Endpoint(os.environ.get("INCUS_SOCKET") or str(Path(folder) / "unix.socket"))


def endpoint_in(variables: Mapping[str, str | None]) -> Endpoint:
    """The endpoint of such ``variables``, by the names of its fields; this machine's where they hold none."""
    address = variables.get("endpoint")
    if not address:
        return local_endpoint()
    return Endpoint(
        address,
        cert=variables.get("cert") or "",
        key=variables.get("key") or "",
        fingerprint=variables.get("fingerprint") or "",
    )


# HTTP with one Incus, from the standard library alone: a connection, a request, and what its answer says.

CONNECT_TIMEOUT_S = 60.0
"""The longest silence of the other side, where who asks names no other; connecting to a unix socket has as long."""
BLOCK_BYTES = 1 << 18


class WireError(Exception):
    """What Incus answered instead of what was asked: the HTTP status (0: it broke off) and its own words."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(Foreign(text, MOST_OF_AN_OUTPUT))
        self.status = status


class UnreachableError(ConnectionError):
    """Nobody answers there, it is somebody else, or we may not use it; ``resolution`` where that is known here."""

    def __init__(self, text: str, resolution: str = "") -> None:
        super().__init__(text)
        self.resolution = resolution


def connection_to(endpoint: Endpoint, timeout_s: float | None = CONNECT_TIMEOUT_S) -> http.client.HTTPConnection:
    """One HTTP connection to the daemon, to be used in ``contextlib.closing``; it connects with the first request."""
    if endpoint.is_remote:
        return TlsConnection(endpoint, timeout_s)
    return _UnixConnection(endpoint.address, timeout_s)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float | None) -> None:
        super().__init__("localhost", blocksize=BLOCK_BYTES)
        self._path = path
        self._timeout_s = timeout_s

    def connect(self) -> None:
        """Connect to the socket; ``UnreachableError`` when that is not possible."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self._timeout_s)
        try:
            self.sock.connect(self._path)
        except OSError as error:
            self.close()
            raise UnreachableError(str(error)) from error


def path_of(*segments: str, **query: str) -> str:
    """The API path of ``segments``, each quoted whole (an alias may hold a slash), with ``query``."""
    path = "/".join(["/1.0", *(quote(segment, safe="") for segment in segments)])
    return f"{path}?{urlencode(query)}" if query else path


def whole(response: http.client.HTTPResponse) -> bytes:
    """The body of a response; ``WireError`` for one that is larger than anything that we ask for."""
    body = response.read(limits.OUTPUT_BYTES + 1)
    if len(body) > limits.OUTPUT_BYTES:
        raise WireError(0, f"the answer has more than {limits.OUTPUT_BYTES / 2**20:g} MiB, which is all that is read")
    if response.length:
        raise http.client.IncompleteRead(body, response.length)
    return body


def checked(response: http.client.HTTPResponse) -> http.client.HTTPResponse:
    """The response when it is a success, unread; ``WireError`` with the server's words, else."""
    if response.status < HTTPStatus.MULTIPLE_CHOICES:
        return response
    raw = whole(response)
    try:
        text = str(json_value(raw)["error"])
    except (ValueError, KeyError, TypeError):
        text = raw.decode(errors="replace").strip() or f"HTTP status {response.status}"
    raise WireError(response.status, text)


def answer_of(response: http.client.HTTPResponse) -> dict[str, Any]:
    """The JSON of a successful response; ``WireError`` when it is none."""
    body = whole(checked(response))
    try:
        answer: Any = json_value(body)
    except ValueError as error:
        raise WireError(0, f"the answer is no JSON: {error}") from error
    if not isinstance(answer, dict):
        raise WireError(0, f"the answer is no JSON object: {body[:100].decode(errors='replace')}")
    # A failed operation is waited for with HTTP status 200; only the body says that it is an error.
    if answer.get("type") == "error":
        raise WireError(int(answer["error_code"]), str(answer["error"]))
    return answer


def call(endpoint: Endpoint, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The JSON answer to one request; ``WireError`` when it was refused."""
    with closing(connection_to(endpoint)) as connection:
        connection.request(method, path, None if body is None else dumps(body))
        return answer_of(connection.getresponse())


# HTTPS to an Incus elsewhere: we show our client certificate, and it must be the server that was meant. No variable of
# the environment says whom to trust: neither those of requests and curl, nor OpenSSL's own.

CONNECT_S = 10.0
"""So long may it take until there is a connection, before the server's certificate is looked at."""
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


# The JSON side of one Incus: what it says, over the bare connection; what changes something here, through pylxd. A run
# that finds nothing to change never imports pylxd, which would take a third of its time. An Incus elsewhere is changed
# over the bare connection, too: so one place alone decides which server is trusted.

_WAIT_S = 30
"""One request waits so long for an operation; pylxd's sockets give up after 60 s of silence."""
_WELL = ("Running", "Success")
"""States of an operation that has not failed."""


class Client:
    """Requests about instances, images, volumes and profiles; usable from many threads at once."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._threads = threading.local()

    def get(self, *path: str, **query: str) -> Any:
        """What Incus says of the thing at ``path``."""
        return call(self.endpoint, "GET", path_of(*path, **query))["metadata"]

    def get_tagged(self, *path: str) -> tuple[Any, str]:
        """What Incus says of the thing at ``path``, and the tag of this state of it, for ``change``."""
        with closing(connection_to(self.endpoint)) as connection:
            connection.request("GET", path_of(*path))
            response = connection.getresponse()
            return answer_of(response)["metadata"], response.headers.get("ETag", "")

    def find(self, *path: str, **query: str) -> Any | None:
        """What Incus says of the thing at ``path``, or None when there is none: the only place that decides so."""
        try:
            return self.get(*path, **query)
        except WireError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return None

    def write(self, method: str, *path: str, body: Mapping[str, Any] | None = None, tag: str = "") -> None:
        """Post, put or delete what the server does at once, such as a profile; ``tag`` as in ``change``."""
        with closing(connection_to(self.endpoint)) as connection:
            text = None if body is None else dumps(body)
            connection.request(method.upper(), path_of(*path), text, {"If-Match": tag} if tag else {})
            answer_of(connection.getresponse())

    def change(self, method: str, *path: str, body: Mapping[str, Any] | None = None, tag: str = "") -> None:
        """Post, put, patch or delete, and return when the operation that it started has ended well.

        With ``tag`` only if nobody has changed the thing since: ``WireError`` of status 412, else.
        """
        answer = self._request(method, path, json=body, headers={"If-Match": tag} if tag else None)
        if answer.get("operation"):
            self.wait(answer["operation"])

    def wait(self, operation: str) -> None:
        """Return when the operation (its address) has ended well; ``WireError`` with its words when it has failed."""
        name = operation.partition("?")[0].rpartition("/")[2]
        deadline = time.monotonic() + limits.LONGEST_S
        while (state := self._waited(name)) is not None:
            if state["status"] != "Running":
                return
            if time.monotonic() >= deadline:
                raise WireError(0, f"it goes on after {limits.LONGEST_S / 3600:.0f} hours (incus operation list)")
        # Incus forgets an operation 5 s after its end; every caller reads back what it made.

    def _waited(self, name: str) -> Any | None:
        try:
            return self._request("get", ("operations", name, "wait"), params={"timeout": str(_WAIT_S)})["metadata"]
        except WireError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            # Incus 6.0 calls it an error ("context deadline exceeded") when the time of the request is over first.
            state = self.find("operations", name)
            if state is None or state["status"] not in _WELL:
                raise
            return state

    def _request(self, method: str, path: tuple[str, ...], **arguments: Any) -> dict[str, Any]:
        if self.endpoint.is_remote:
            return self._bare_request(method, path, **arguments)
        answer: dict[str, Any] = self._answer(method, path, **arguments).json()
        return answer

    def _bare_request(
        self,
        method: str,
        path: tuple[str, ...],
        *,
        json: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        with closing(connection_to(self.endpoint)) as connection:
            text = None if json is None else dumps(json)
            connection.request(method.upper(), path_of(*path, **(params or {})), text, dict(headers or {}))
            response = connection.getresponse()
            try:
                return answer_of(response)
            except WireError as error:
                if response.status == HTTPStatus.OK:
                    raise WireError(HTTPStatus.BAD_REQUEST, str(error)) from error
                raise

    def _answer(self, method: str, path: tuple[str, ...], **arguments: Any) -> Any:
        from pylxd.exceptions import LXDAPIException

        node = self._pylxd().api
        for segment in path:
            node = node[quote(segment, safe="")]
        try:
            return getattr(node, method)(**arguments)
        except LXDAPIException as error:
            raise WireError(_status_of(error), str(error)) from error

    def _pylxd(self) -> pylxd.Client:
        import pylxd
        from pylxd.exceptions import ClientConnectionFailed

        if not hasattr(self._threads, "client"):
            try:
                # Without an endpoint pylxd looks for LXD only.
                self._threads.client = pylxd.Client(endpoint=self.endpoint.address)
            except ClientConnectionFailed as error:
                raise UnreachableError(str(error)) from error
            # Incus closes idle connections after 30 s, pylxd keeps one per address: a second request to the same
            # address about then, such as a stop by force after one that timed out, would meet a reset connection.
            self._threads.client.api.session.headers["Connection"] = "close"
        return self._threads.client


def _status_of(error: Any) -> int:
    """The answer's HTTP status; a failed operation is an answer with status 200 whose body says what went wrong.

    The code in that body is not looked at: a 404 there is about something that the operation needed, such as a volume,
    and must not be taken for a forgotten operation.
    """
    status: int = error.response.status_code
    return int(HTTPStatus.BAD_REQUEST) if status == HTTPStatus.OK else status


# Reasons why an Incus elsewhere does not answer, or refuses everything, and what to do.

ENROL = (
    "On the machine of that Incus, `incus config trust add NAME` prints a token; here, give it to: "
    "provision host prepare --trust -"
)
_LIMITED = "does not have permission"
"""So begins what it says to a certificate that its owner restricted; the status is 403 or 500."""


def reason_unreached(endpoint: Endpoint, error: Exception) -> tuple[str, str]:
    """Why a request has failed as it did, and what to do about it."""
    if isinstance(error, UnreachableError):
        return str(error), error.resolution
    if _LIMITED in str(error):
        resolution = (
            "Its owner limited our certificate to some projects, and provision works in project default. On that "
            "machine, see: incus config trust list"
        )
        return f"It knows us, and does not let us in: {error}", resolution
    if isinstance(error, WireError) and error.status == HTTPStatus.FORBIDDEN:
        return untrusted_reason(endpoint)
    words = str(error).strip() or type(error).__name__
    return words, f"Does Incus run there? Is `incus: {endpoint}` the address of its API?"


def is_refusal(error: Exception) -> bool:
    """Whether the server answers, and does not let us do what was asked for."""
    return isinstance(error, WireError) and (error.status == HTTPStatus.FORBIDDEN or _LIMITED in str(error))


def untrusted_reason(endpoint: Endpoint) -> tuple[str, str]:
    """Why the server does not take our certificate, and what to do about it."""
    if not endpoint.cert:
        return "It was shown no client certificate.", ENROL
    ended = _end(Path(endpoint.cert))
    if ended is not None and ended < datetime.now(UTC):
        again = f"Move {endpoint.cert} and {endpoint.key} away, so that new ones are made. {ENROL}"
        return f"The client certificate {endpoint.cert} has expired on {ended:%Y-%m-%d}.", again
    return f"It does not trust the client certificate {endpoint.cert}.", ENROL


def _end(cert: Path) -> datetime | None:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(content_of(cert)).not_valid_after_utc
    except (OSError, ValueError):
        return None


# Failures of Incus in our words: what failed, what it said, what to do now.

_UNREACHED = "Unable to reach Incus at {}"
_PREPARE = "Run: sudo provision host prepare"
_NAME_TAKEN = ("unique constraint failed", "already exists")
_RESOLUTIONS = {
    "no space left on device": "Storage pool {pool} is full. See: incus storage info {pool}; grow it with: "
    "incus storage set {pool} size=<more>GiB; or delete what is not needed.",
    "disk quota exceeded": "Its disk is too small, or storage pool {pool} is full. See: incus storage info {pool}",
    "unique constraint failed": "The name is taken: choose another one, or look who has it: incus list",
    "already exists": "The name is taken: choose another one, or look who has it: incus list",
    "address already in use": "Another program on this host listens on that port: give another port, or stop it.",
    "volume is still in use": "Another run on this host makes it, or a container has it mounted: run this again when "
    "that has ended.",
    "cannot be restored due to subsequent": "This storage goes back to the newest snapshot only: delete the newer ones "
    "of this container first, or move it to a btrfs pool.",
    "setting cgroup item": "It uses more than that now: stop what uses it, or stop the container, and run this again.",
    "failed adding bridge filter rules": "Its kernel no longer takes the rules that keep the container in: boot one "
    "with nf_conntrack_bridge, or take them off (incus config device unset NAME eth0 security.acls) and run up again.",
    "failed to detect requested gpu": "The host has no such card any more. See which it has: provision doctor",
    "invalid pci address": "The host has no such card any more. See which it has: provision doctor",
    "nvidia container tools couldn't be found": "Install NVIDIA's container toolkit on the host: "
    "sudo provision host prepare --gpu",
    "required device path doesn't exist": "The host's driver has not made it: load it (modprobe amdgpu), and see: "
    "provision doctor",
    "setgid/uid": "This user has no subordinate ids. " + _PREPARE,
    "functional idmap setup": "Root has no subordinate ids. See what to run: provision doctor",
    "newuidmap": "Root has no subordinate ids. " + _PREPARE,
}


@contextmanager
def worded(message: str, endpoint: Endpoint, pool: Callable[[], str]) -> Iterator[None]:
    """Turn whatever Incus or its socket answers into a ``ProviderError`` that begins with ``message``."""
    try:
        yield
    except (WireError, OSError, HTTPException) as error:
        if isinstance(error, UnreachableError) or (endpoint.is_remote and is_refusal(error)):
            why = unavailable(endpoint, error)
            raise ProviderError(message, details=f"{why.message}: {why.details}", resolution=why.resolution) from error
        raise ProviderError(message, details=_error_text(error), resolution=_resolution(error, pool)) from error


def is_name_clash(error: WireError) -> bool:
    """Whether a creation failed because somebody else has the name (Incus shows its database's words)."""
    return any(words in str(error).lower() for words in _NAME_TAKEN)


@contextmanager
def reachable(endpoint: Endpoint) -> Iterator[None]:
    """Turn a socket that is missing, refused or forbidden into an ``UnavailableError`` that says what to do."""
    try:
        yield
    except (WireError, OSError, HTTPException) as error:
        raise unavailable(endpoint, error) from error


def unavailable(endpoint: Endpoint, error: Exception) -> UnavailableError:
    """Why Incus at ``endpoint`` does not answer this user, and what to do."""
    message = _UNREACHED.format(endpoint)
    if endpoint.is_remote:
        details, resolution = reason_unreached(endpoint, error)
        return UnavailableError(message, details=details, resolution=resolution)
    from provisioner.hosts.incus import machine  # nothing that an Incus which answers needs

    details, resolution = machine.reason_unreached(Path(endpoint.address), error)
    return UnavailableError(message, details=details, resolution=resolution)


def require_trust(endpoint: Endpoint, server: Mapping[str, Any]) -> None:
    """Raise ``UnavailableError`` when ``server``, what an Incus says of itself, does not take our certificate."""
    if server["auth"] == "trusted":
        return

    details, resolution = untrusted_reason(endpoint)
    raise UnavailableError(_UNREACHED.format(endpoint), details=details, resolution=resolution)


def _error_text(error: Exception) -> str:
    return str(error).strip() or type(error).__name__


def _resolution(error: Exception, pool: Callable[[], str]) -> str:
    text = str(error).lower()
    words = next((words for part, words in _RESOLUTIONS.items() if part in text), "")
    return words.format(pool=pool()) if "{pool}" in words else words
