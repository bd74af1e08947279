"""A session with a host, by way of proxmoxer: who we are to it, who it is to us, and what failed requests mean.

We have an API token, or a ticket for a password, which is renewed. Imported at the first call: requests takes a while.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlsplit

import requests
from proxmoxer.backends.https import JsonSerializer, ProxmoxHTTPApiTokenAuth, ProxmoxHTTPAuthBase, ProxmoxHttpSession
from proxmoxer.core import ProxmoxResource, ResourceException
from requests.adapters import HTTPAdapter
from requests.cookies import cookiejar_from_dict
from requests.exceptions import (
    ChunkedEncodingError,
    ConnectTimeout,
    ProxyError,
    ReadTimeout,
    RequestException,
    SSLError,
)
from requests.exceptions import ConnectionError as DroppedError
from urllib3.connection import HTTPSConnection
from urllib3.connectionpool import HTTPSConnectionPool
from urllib3.exceptions import MaxRetryError, NameResolutionError, NewConnectionError
from urllib3.util.ssl_ import ALPN_PROTOCOLS

from provisioner.hosts.proxmox.access import Access
from provisioner.hosts.proxmox.failures import NODE_DOWN, SILENT, PveError, UnreachableError
from provisioner.values.plain_data import json_value

TICKET_RENEW_S = 3600.0
"""A ticket lives for two hours."""


class Login:
    """One identity at one host, usable from many threads; ``who`` is the name that permissions are given to."""

    def __init__(self, access: Access, adapter: TlsAdapter, timeout_s: float, *, as_root: bool) -> None:
        self._access = access
        self._timeout_s = timeout_s
        self._ticket: Ticket | None = None
        options = {"verify_ssl": verify_option(access), "timeout": (min(CONNECT_S, timeout_s), timeout_s)}
        session = ProxmoxHttpSession()
        if access.token_secret and not as_root:
            self.who = f"{access.user}!{access.token_id}"
            user = quote(access.user, safe="@")  # HTTP's headers have no letters beyond ASCII
            session.auth = ProxmoxHTTPApiTokenAuth(user, access.token_id, _token_secret(access), **options)
        else:
            self.who = access.user
            session.auth = self._ticket = Ticket(access, adapter, **options)
        session.mount("https://", adapter)
        session.max_redirects = 0  # nobody else is told the secret
        self._api = ProxmoxResource(base_url=_base_url(access), session=session, serializer=_Serializer(access))

    def call(self, verb: str, path: Sequence[object], given: Mapping[str, object]) -> Any:
        """One call; ``PveError`` for whatever is no success. A ticket that is too old is replaced, once."""
        bought = self._bought(self._ticket) if self._ticket else ""
        try:
            return self._ask(verb, path, given)
        except PveError as error:
            if error.status != HTTPStatus.UNAUTHORIZED:
                raise
            if self._ticket is None:
                raise refused_token_error(self._access, error.message) from error
        self._ticket.forget(bought)
        self._bought(self._ticket)
        return self._ask(verb, path, given)

    def _bought(self, ticket: Ticket) -> str:
        """A good ticket; when there is none, the call itself was not sent, whatever became of the login."""
        try:
            return ticket.bought()
        except requests.RequestException as error:
            failure = request_error(error, self._access, self._timeout_s)
            failure.unsent = True
            raise failure from error
        except UnreachableError as error:
            error.unsent = True
            raise

    def _ask(self, verb: str, path: Sequence[object], given: Mapping[str, object]) -> Any:
        resource = self._api([quote(str(part), safe="") for part in path])
        try:
            return getattr(resource, verb.lower())(**given)
        except ResourceException as error:
            raise _call_error(error, verb, path, self.who) from error
        except requests.RequestException as error:
            raise request_error(error, self._access, self._timeout_s) from error


# Not proxmoxer's ProxmoxHTTPAuth: it logs in over a connection of its own, which knows no pinned fingerprint, and
# renews a ticket with the one before, which no longer counts in a run that slept for two hours.
class Ticket(ProxmoxHTTPAuthBase):  # type: ignore[misc]
    """What a password buys for two hours; bought at the first call, by one thread for all."""

    def __init__(self, access: Access, adapter: TlsAdapter, **options: Any) -> None:
        super().__init__(**options)
        self._access = access
        self._adapter = adapter
        self._lock = threading.Lock()
        self._ticket = ""
        self._csrf = ""
        self._born = 0.0

    def bought(self) -> str:
        """The ticket, a new one when it is old."""
        with self._lock:
            if not self._ticket or _boot_clock_s() - self._born >= TICKET_RENEW_S:
                self._log_in()
            return self._ticket

    def forget(self, ticket: str) -> None:
        """It was refused: the next call logs in, unless another thread has done so since."""
        with self._lock:
            if self._ticket == ticket:
                self._ticket = ""

    def get_cookies(self) -> Any:
        """What goes with each call; proxmoxer asks."""
        return cookiejar_from_dict({"PVEAuthCookie": self._ticket})  # type: ignore[no-untyped-call]

    def __call__(self, request: Any) -> Any:
        """What goes with each change."""
        if request.method != "GET":
            request.headers["CSRFPreventionToken"] = self._csrf
        return request

    def _log_in(self) -> None:
        secret = self._access.password.reveal() if self._access.password else ""
        answer = self._send("POST", "ticket", {"username": self._access.user, "password": secret})
        if answer.status_code != HTTPStatus.OK:
            raise refused_password_error(self._access, _reason_text(answer.reason), self._realms())
        data = _Serializer(self._access).loads(answer)
        if data.get("NeedTFA"):
            raise second_factor_error(self._access)
        self._ticket, self._csrf, self._born = data["ticket"], data["CSRFPreventionToken"], _boot_clock_s()

    def _realms(self) -> list[str]:
        answer = self._send("GET", "domains")
        if answer.status_code != HTTPStatus.OK:
            return []
        return [realm["realm"] for realm in _Serializer(self._access).loads(answer)]

    def _send(self, verb: str, name: str, form: Mapping[str, str] | None = None) -> requests.Response:
        """One request that needs no login, over the connections of all others."""
        session = requests.Session()
        session.mount("https://", self._adapter)
        session.max_redirects = 0
        session.auth = lambda request: request  # not what ~/.netrc has
        url = f"{_base_url(self._access)}/access/{name}"
        return session.request(verb, url, data=form, verify=self.verify_ssl, timeout=self.timeout)


class _Serializer(JsonSerializer):  # type: ignore[misc]
    """Proxmoxer's own takes any page for an answer, and drops the ``message`` of an error."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def loads(self, response: Any) -> Any:
        """What was asked for."""
        try:
            return json_value(response.content)["data"]
        except (ValueError, KeyError, TypeError) as error:
            raise not_proxmox_error(self._access) from error

    def loads_errors(self, response: Any) -> Any:
        """The whole body; nothing for one that is none."""
        try:
            found = json_value(response.content)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


def _call_error(error: ResourceException, verb: str, path: Sequence[object], who: str) -> PveError:
    """What a node said, all of it: the reason phrase is only the first line, and older nodes say nothing else."""
    body = error.errors or {}
    errors = {str(name): str(text).strip() for name, text in (body.get("errors") or {}).items()}
    reason = _reason_text(error.content)
    message = str(body.get("message") or reason or f"status {error.status_code}").strip()
    if error.status_code in NODE_DOWN and tuple(path[:1]) == ("nodes",):
        message = f"{_who_is_silent(error.status_code, path)}: {message}"
    text = "\n".join([message, *(f"{name}: {words}" for name, words in errors.items())])
    return PveError(text, status=error.status_code, reason=reason, errors=errors, verb=verb, who=who)


def _who_is_silent(status: int, path: Sequence[object]) -> str:
    """Who did not answer the node that was asked: another node, or a process of a node that waits for a container."""
    if status not in SILENT:
        return f"Node {path[1]} cannot be reached by the others"
    asked = "/".join(map(str, path[2:]))
    return f"Node {path[1]} has not answered in time when it was asked for {asked}"


def _reason_text(reason: str) -> str:
    """A reason phrase as it was meant: HTTP reads its bytes one to a character."""
    return reason.encode("latin-1", "replace").decode("utf-8", "replace").strip()


def _base_url(access: Access) -> str:
    return f"{access.url.rstrip('/')}/api2/json"


def _token_secret(access: Access) -> str:
    """The token's secret; one that no header can hold is refused here, because requests shows it when it does so."""
    secret = access.token_secret.reveal().strip() if access.token_secret else ""
    if not secret.isascii() or not secret.isprintable():
        raise malformed_token_error(access)
    return secret


def _boot_clock_s() -> float:
    """Seconds that go on while this machine sleeps, as they do for the ticket."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


# TLS: the server is signed by a certificate authority, or has the certificate of that fingerprint.

CONNECTIONS = 32
"""Kept open at most; more can be in use at once."""
KEPT_OPEN_S = 4.0
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
        return super().is_connected and time.monotonic() - self._answered < KEPT_OPEN_S


class _Pool(HTTPSConnectionPool):
    ConnectionCls = _Connection


class TlsAdapter(HTTPAdapter):
    """Connections to one host, kept open and shared by all threads and identities."""

    def __init__(self, access: Access) -> None:
        self._tls: dict[str, Any] = {}
        if access.fingerprint:
            self._tls["assert_fingerprint"] = access.fingerprint
        if access.ca:
            self._tls["ssl_context"] = _ca_context(access)
        super().__init__(pool_connections=1, pool_maxsize=CONNECTIONS)

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **options: Any) -> None:
        """With what we ask of the server."""
        super().init_poolmanager(connections, maxsize, block, **options, **self._tls)
        self.poolmanager.pool_classes_by_scheme = {"https": _Pool}

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        """The same through a proxy."""
        return super().proxy_manager_for(proxy, **options, **self._tls)


class _SettledContext(ssl.SSLContext):
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


def _ca_context(access: Access) -> ssl.SSLContext:
    # It verifies, and compares the host's name. Not strictly, as Python's default is since 3.13: Proxmox's
    # authorities from before 2025 do not say what their key is used for.
    context = _SettledContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(str(access.ca))
    except OSError as error:
        message = f"The certificate authority's file {access.ca} cannot be used: {error.strerror or error}"
        raise UnreachableError(message, resolution="Copy /etc/pve/pve-root-ca.pem from the node again") from error
    context.set_alpn_protocols(ALPN_PROTOCOLS)
    return context.settle()


def verify_option(access: Access) -> bool | str:
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


# What failed requests mean: network, certificates, logins.

API_PORT = 8006
CONNECT_S = 10.0

_HOW_TO_TRUST = (
    "Proxmox signs its certificates itself. Copy /etc/pve/pve-root-ca.pem from the node and write its path as `ca:`"
)
_NOT_PROXMOX = "Is `proxmox:` the address of Proxmox VE's own API, such as https://192.168.1.10:8006?"


def request_error(error: RequestException, access: Access, timeout_s: float) -> UnreachableError:
    """Why a request has no answer; ``unsent`` when it surely was not read by anybody."""
    inner = error.args[0] if error.args else error
    cause = inner.reason if isinstance(inner, MaxRetryError) else inner
    if isinstance(error, SSLError):
        return _certificate_error(error, access)
    if isinstance(error, ProxyError):
        message = f"The proxy of this machine does not connect to {address_text(access)}: {cause}"
        return UnreachableError(message, resolution="Except the node from it: NO_PROXY names hosts without a proxy.")
    if isinstance(error, ConnectTimeout) or isinstance(cause, NewConnectionError):
        return _connect_error(cause, access, min(timeout_s, CONNECT_S))
    return _answer_error(error, cause, access, timeout_s)


def _connect_error(cause: object, access: Access, timeout_s: float) -> UnreachableError:
    if isinstance(cause, NameResolutionError):
        message = f"The name {urlsplit(access.url).hostname} is not known: {_system_error_text(cause)}"
        return UnreachableError(message, resolution="Write the node's address, or a name that this machine can look up")
    words = _system_error_text(cause) if isinstance(cause, NewConnectionError) else f"none within {timeout_s:.0f} s"
    return UnreachableError(
        f"There is no connection to {address_text(access)}: {words}", resolution=_is_it_on_hint(access), is_passing=True
    )


def _answer_error(error: RequestException, cause: object, access: Access, timeout_s: float) -> UnreachableError:
    where = address_text(access)
    if isinstance(error, ReadTimeout):
        return UnreachableError(f"{where} gave no answer within {timeout_s:.0f} s.", unsent=False)
    if isinstance(error, DroppedError | ChunkedEncodingError):
        message = f"{where} closed the connection before it had answered: {cause}"
        return UnreachableError(message, is_passing=True, unsent=False)
    return UnreachableError(f"{where} gave an answer that is none: {error}", resolution=_NOT_PROXMOX, unsent=False)


def not_proxmox_error(access: Access) -> UnreachableError:
    """The words for an answer that Proxmox would not give."""
    message = f"{address_text(access)} answers, but not as Proxmox VE's API does."
    return UnreachableError(message, resolution=_NOT_PROXMOX, unsent=False)


def refused_token_error(access: Access, reason: str) -> UnreachableError:
    """The words for a token that is not taken; Proxmox never says what is wrong with one."""
    token = f"{access.user}!{access.token_id}"
    resolution = (
        f"Its user ({access.user}), its id ({access.token_id}) or its secret is wrong, or it has expired. On the node, "
        f"see: pveum user token list {access.user}; a secret is shown only when a token is made."
    )
    return UnreachableError(f"API token {token} was refused: {reason}", resolution=resolution, status=401)


def malformed_token_error(access: Access) -> UnreachableError:
    """The words for a secret that can be none."""
    message = f"The secret of API token {access.user}!{access.token_id} has characters that no such secret has."
    return UnreachableError(message, resolution="Copy it again: it looks like 01234567-89ab-4cde-8f01-23456789abcd")


def refused_password_error(access: Access, reason: str, realms: list[str]) -> UnreachableError:
    """The words for a password that is not taken; what is said of the realm is all that can be found out."""
    message = f"The login of {access.user} with its password was refused: {reason}"
    realm = access.user.rpartition("@")[2]
    if realms and realm not in realms:
        resolution = f"There is no realm {realm} there, but: {', '.join(realms)}. Write user: NAME@REALM"
    else:
        resolution = (
            f"The password is wrong, or there is no such user, or it is disabled. See: pveum user list ({realm})"
        )
    return UnreachableError(message, resolution=resolution, status=401)


def second_factor_error(access: Access) -> UnreachableError:
    """The words for a user who has to be asked for more than a password."""
    resolution = "Nobody can be asked for it here: use an API token (`token:`); for what only root may do, give `ssh:`."
    return UnreachableError(f"{access.user} logs in with a second factor.", resolution=resolution, status=401)


def address_text(access: Access) -> str:
    """Host and port."""
    address = urlsplit(access.url)
    return f"{address.hostname}:{address.port or 443}"


def _is_it_on_hint(access: Access) -> str:
    if not urlsplit(access.url).port:
        return f"Proxmox listens on port {API_PORT}: write {access.url.rstrip('/')}:{API_PORT}"
    return "Is the node on, does pveproxy run there, and does no firewall stand between?"


def _certificate_error(error: SSLError, access: Access) -> UnreachableError:
    """Why TLS failed: the certificate is another's, or signed by somebody unknown, or there is no TLS at all."""
    text = str(error)
    if "Fingerprints did not match" in text:
        resolution = (
            "When the certificate was renewed, this one is shown by `pvenode cert info` on the node, too: write it as "
            "`fingerprint:`. Else somebody else answers there."
        )
        message = f"{address_text(access)} shows another certificate: {_shown_fingerprint(access)}"
        return UnreachableError(message, resolution=resolution)
    if "CERTIFICATE_VERIFY_FAILED" not in text:
        message = f"{address_text(access)} does not speak TLS as Proxmox does: {_openssl_words(text)}"
        return UnreachableError(message, resolution=_NOT_PROXMOX)
    message = f"The certificate of {address_text(access)} is not trusted: {_openssl_words(text)}"
    seen = _shown_fingerprint(access)
    pin = f'when `pvenode cert info` on the node shows the same fingerprint, write fingerprint: "{seen}"'
    if "ismatch" in text:
        return UnreachableError(message, resolution=f"Use a name that is in the certificate, or {pin}")
    if "expired" in text or "not yet valid" in text:
        return UnreachableError(
            message, resolution=f"Renew it (pvecm updatecerts -f), or see this machine's clock: {pin}"
        )
    if access.ca:
        return UnreachableError(message, resolution=f"It was not signed by {access.ca}. {_HOW_TO_TRUST}, or, {pin}")
    return UnreachableError(message, resolution=f"{_HOW_TO_TRUST}, or, {pin}")


def _shown_fingerprint(access: Access) -> str:
    """The certificate's fingerprint as people read it."""
    try:
        found = seen_fingerprint(access.url)
    except OSError as error:
        return f"(not readable: {error})"
    return ":".join(found[at : at + 2] for at in range(0, len(found), 2)).upper()


def _openssl_words(text: str) -> str:
    """The words of OpenSSL without the names of Python's classes around them."""
    return text.rpartition("] ")[2].rpartition(" (_ssl")[0].strip("'\" )") or text


def _system_error_text(error: BaseException) -> str:
    cause = error.__cause__ or error
    return str(getattr(cause, "strerror", "") or cause)
