"""Who we are to the host: an API token, or a ticket for a password that is renewed; calls by way of proxmoxer."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import requests
from proxmoxer.backends.https import JsonSerializer, ProxmoxHTTPApiTokenAuth, ProxmoxHTTPAuthBase, ProxmoxHttpSession
from proxmoxer.core import ProxmoxResource, ResourceException
from requests.cookies import cookiejar_from_dict

from provisioner.providers.proxmox import contact, tls
from provisioner.providers.proxmox.access import Access
from provisioner.providers.proxmox.failures import NODE_DOWN, PveError, UnreachableError
from provisioner.values.plain_data import json_value

RENEW_S = 3600.0
"""A ticket lives for two hours."""


class Login:
    """One identity at one host, usable from many threads; ``who`` is the name that permissions are given to."""

    def __init__(self, access: Access, adapter: tls.Adapter, timeout_s: float, *, as_root: bool) -> None:
        self._access = access
        self._timeout_s = timeout_s
        self._ticket: Ticket | None = None
        options = {"verify_ssl": tls.verification(access), "timeout": (min(contact.CONNECT_S, timeout_s), timeout_s)}
        session = ProxmoxHttpSession()
        if access.token_secret and not as_root:
            self.who = f"{access.user}!{access.token_id}"
            user = quote(access.user, safe="@")  # HTTP's headers have no letters beyond ASCII
            session.auth = ProxmoxHTTPApiTokenAuth(user, access.token_id, _secret(access), **options)
        else:
            self.who = access.user
            session.auth = self._ticket = Ticket(access, adapter, **options)
        session.mount("https://", adapter)
        session.max_redirects = 0  # nobody else is told the secret
        self._api = ProxmoxResource(base_url=_base(access), session=session, serializer=_Serializer(access))

    def call(self, verb: str, path: Sequence[object], given: Mapping[str, object]) -> Any:
        """One call; ``PveError`` for whatever is no success. A ticket that is too old is replaced, once."""
        bought = self._bought(self._ticket) if self._ticket else ""
        try:
            return self._ask(verb, path, given)
        except PveError as error:
            if error.status != HTTPStatus.UNAUTHORIZED:
                raise
            if self._ticket is None:
                raise contact.refused_token(self._access, error.message) from error
        self._ticket.forget(bought)
        self._bought(self._ticket)
        return self._ask(verb, path, given)

    def _bought(self, ticket: Ticket) -> str:
        """A good ticket; when there is none, the call itself was not sent, whatever became of the login."""
        try:
            return ticket.bought()
        except requests.RequestException as error:
            failure = contact.unreached(error, self._access, self._timeout_s)
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
            raise _refused(error, verb, path, self.who) from error
        except requests.RequestException as error:
            raise contact.unreached(error, self._access, self._timeout_s) from error


# Not proxmoxer's ProxmoxHTTPAuth: it logs in over a connection of its own, which knows no pinned fingerprint, and
# renews a ticket with the one before, which no longer counts in a run that slept for two hours.
class Ticket(ProxmoxHTTPAuthBase):  # type: ignore[misc]
    """What a password buys for two hours; bought at the first call, by one thread for all."""

    def __init__(self, access: Access, adapter: tls.Adapter, **options: Any) -> None:
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
            if not self._ticket or _now() - self._born >= RENEW_S:
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
            raise contact.refused_password(self._access, _text(answer.reason), self._realms())
        data = _Serializer(self._access).loads(answer)
        if data.get("NeedTFA"):
            raise contact.second_factor(self._access)
        self._ticket, self._csrf, self._born = data["ticket"], data["CSRFPreventionToken"], _now()

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
        url = f"{_base(self._access)}/access/{name}"
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
            raise contact.not_proxmox(self._access) from error

    def loads_errors(self, response: Any) -> Any:
        """The whole body; nothing for one that is none."""
        try:
            found = json_value(response.content)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


def _refused(error: ResourceException, verb: str, path: Sequence[object], who: str) -> PveError:
    """What a node said, all of it: the reason phrase is only the first line, and older nodes say nothing else."""
    body = error.errors or {}
    errors = {str(name): str(text).strip() for name, text in (body.get("errors") or {}).items()}
    reason = _text(error.content)
    message = str(body.get("message") or reason or f"status {error.status_code}").strip()
    if error.status_code in NODE_DOWN and tuple(path[:1]) == ("nodes",):
        message = f"Node {path[1]} cannot be reached by the others: {message}"
    text = "\n".join([message, *(f"{name}: {words}" for name, words in errors.items())])
    return PveError(text, status=error.status_code, reason=reason, errors=errors, verb=verb, who=who)


def _text(reason: str) -> str:
    """A reason phrase as it was meant: HTTP reads its bytes one to a character."""
    return reason.encode("latin-1", "replace").decode("utf-8", "replace").strip()


def _base(access: Access) -> str:
    return f"{access.url.rstrip('/')}/api2/json"


def _secret(access: Access) -> str:
    """The token's secret; one that no header can hold is refused here, because requests shows it when it does so."""
    secret = access.token_secret.reveal().strip() if access.token_secret else ""
    if not secret.isascii() or not secret.isprintable():
        raise contact.malformed_token(access)
    return secret


def _now() -> float:
    """Seconds that go on while this machine sleeps, as they do for the ticket."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
