"""What tests call the double with: proxmoxer, as the product does, and bare HTTP where the reason phrase matters."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

from tests.doubles.proxmox.double import Double
from tests.doubles.proxmox.world import PASSWORD

TASK_TIMEOUT_S = 10


@dataclass(frozen=True)
class Reply:
    """An answer as it came over the wire."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def line(self) -> str:
        """Status and reason."""
        return f"{self.status} {self.reason}"

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)


@dataclass
class Hand:
    """Bare HTTP with the headers of one identity; ``node`` is the node that is asked."""

    pve: Double
    headers: Mapping[str, str] = field(default_factory=dict)
    node: str = "pve1"

    def ask(self, verb: str, path: str, /, **given: object) -> Reply:
        """One call; parameters as a form, or in the query of a GET or DELETE. ``_`` in a name stands for ``-``."""
        form = urlencode({name.replace("_", "-"): value for name, value in given.items()})
        in_query = verb in ("GET", "DELETE") and form
        url = f"/api2/json{path}{'?' + form if in_query else ''}"
        body = None if in_query else form
        kind = {"Content-Type": "application/x-www-form-urlencoded"} if body else {}
        return self.send(verb, url, body, {**self.headers, **kind})

    def send(self, verb: str, url: str, body: str | None, headers: Mapping[str, str]) -> Reply:
        """One request as it is."""
        address = urlsplit(self.pve.url_of(self.node))
        context = ssl.create_default_context(cafile=str(self.pve.ca))
        connection = http.client.HTTPSConnection(str(address.hostname), address.port, context=context, timeout=10)
        try:
            connection.request(verb, url, body, dict(headers))
            answer = connection.getresponse()
            return Reply(answer.status, answer.reason, dict(answer.headers), answer.read())
        finally:
            connection.close()


def root(pve: Double, node: str = "pve1") -> Hand:
    """root@pam with a ticket."""
    access = pve.world.access
    return Hand(pve, {"Cookie": f"PVEAuthCookie={access.ticket('root@pam')}", **csrf(pve, "root@pam")}, node)


def csrf(pve: Double, user: str) -> dict[str, str]:
    """The header that goes with a ticket."""
    return {"CSRFPreventionToken": pve.world.access.csrf_token(user)}


def with_token(pve: Double, user: str = "root@pam", name: str = "ci", *, privsep: bool = False) -> Hand:
    """A new API token."""
    secret = pve.world.access.add_token(user, name, privsep=privsep)
    return Hand(pve, {"Authorization": f"PVEAPIToken={user}!{name}={secret}"})


def proxmoxer(pve: Double, **login: object) -> Any:
    """Proxmoxer's client, as root@pam with a password unless told otherwise."""
    from proxmoxer import ProxmoxAPI

    return ProxmoxAPI(pve.address, verify_ssl=str(pve.ca), **(login or {"user": "root@pam", "password": PASSWORD}))


def ended(api: Any, upid: str) -> str:
    """The exit status of a task, asked for over the API until there is one."""
    node = upid.split(":")[1]
    until = time.monotonic() + TASK_TIMEOUT_S
    while time.monotonic() < until:
        status = api.nodes(node).tasks(upid).status.get()
        if status["status"] == "stopped":
            return str(status["exitstatus"])
        time.sleep(0.01)
    raise TimeoutError(upid)
