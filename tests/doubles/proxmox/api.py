"""From a request to an answer: who calls, what is meant, may they, which node, are the parameters right; the work."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, unquote

from tests.doubles.proxmox import schema
from tests.doubles.proxmox.call import Call, Counted, handlers
from tests.doubles.proxmox.errors import ApiError, RefusedError, UnreachableError, bad_parameters, died, forbidden
from tests.doubles.proxmox.schema import Method, Value
from tests.doubles.proxmox.world import Node, World

OPEN = {"GET /access/domains", "GET /access/ticket", "POST /access/ticket"}
BASE = "/api2/json"
JSON = "application/json;charset=UTF-8"
UNAUTHORIZED = 401


@dataclass(frozen=True)
class Request:
    """What came in; ``path`` as it was sent, header names in lower case."""

    verb: str
    path: str
    query: str = ""
    headers: Mapping[str, str] | None = None
    body: bytes = b""

    def header(self, name: str) -> str:
        """A header, or nothing."""
        return (self.headers or {}).get(name, "")


@dataclass(frozen=True)
class Answer:
    """What goes out. ``reason`` is one line; without ``content_type`` there is no body."""

    status: int
    reason: str
    content_type: str = ""
    body: bytes = b""


def answer(world: World, entry: Node, request: Request) -> Answer:
    """The answer of a node to a request; a 401 takes its time."""
    began = time.monotonic()
    try:
        data = _data(world, entry, request)
        found = Answer(200, "OK", JSON, _body(data))
    except (RefusedError, UnreachableError) as error:
        found = Answer(error.status, error.message.strip())
    except ApiError as error:
        found = Answer(error.status, error.message.splitlines()[0], JSON, _error_body(error))
    if found.status == UNAUTHORIZED:
        time.sleep(max(0, world.auth_delay_s - (time.monotonic() - began)))
    return found


def _body(data: object) -> bytes:
    if isinstance(data, Counted):
        return json.dumps({"data": data.data, "total": data.total}).encode()
    return json.dumps({"data": data}).encode()


def _error_body(error: ApiError) -> bytes:
    body: dict[str, object] = {"data": None, "message": error.message}
    if error.errors:
        body["errors"] = error.errors
    return json.dumps(body).encode()


def _data(world: World, entry: Node, request: Request) -> object:
    path = unquote(request.path)
    if not path.startswith(f"{BASE}/"):
        raise ApiError(501, "no such uri")
    path = path.removeprefix(BASE)
    path = path.rstrip("/") or "/"
    world.faults.meet(request.verb, path, done=False)
    user = _caller(world, request, path)
    found = schema.find(request.verb, path)
    if found is None:
        raise ApiError(501, f"Method '{request.verb} {path}' not implemented")
    method, in_path = found
    given = _given(request, in_path)
    if "!" in user and not method.page.get("allowtoken"):
        raise forbidden(f"URI '{path}' not available with API token, need proper ticket.\n")
    if user:
        world.access.permissions.check_method(user, method.page.get("permissions"), given)
    node = _node(world, entry, given) if method.proxied else entry
    errors = method.errors(given)
    if errors:
        raise bad_parameters(errors)
    plain = {name: str(int(value)) if isinstance(value, bool) else value for name, value in given.items()}
    data = _work(world, method)(Call(world, node, user, plain))
    world.faults.meet(request.verb, path, done=True)
    return data


def _caller(world: World, request: Request, path: str) -> str:
    if f"{request.verb} {path}" in OPEN:
        return ""
    headers = [request.header(name) for name in ("cookie", "authorization", "csrfpreventiontoken")]
    return world.access.caller(request.verb, *headers)


def _node(world: World, entry: Node, given: Mapping[str, Value]) -> Node:
    """The node that answers; one that is down cannot be reached, one that is not there cannot be found."""
    name = str(given["node"])
    if name in ("localhost", entry.name):
        return entry
    if name not in world.nodes:
        reason = f"failed to get address info for: {name}: Name or service not known"
        raise died(f"hostname lookup '{name}' failed - {reason}")
    if not world.nodes[name].online:
        raise UnreachableError
    return world.nodes[name]


def _work(world: World, method: Method) -> Any:
    key = f"{method.verb} {method.path}"
    if key not in handlers():
        world.unanswered.append(key)
        raise ApiError(501, f"the double does not answer {key}")
    return handlers()[key]


def _given(request: Request, in_path: Mapping[str, str]) -> dict[str, Value]:
    given: dict[str, Value] = {}
    if request.verb in ("POST", "PUT"):
        given = _from_form(request.body.decode())
    given.update(_from_form(request.query))
    for name, value in in_path.items():
        if given.get(name, value) != value:
            text = "duplicate parameter (already defined in URI) with conflicting values!"
            raise bad_parameters({name: text})
    return {**given, **in_path}


def _from_form(text: str) -> dict[str, Value]:
    """A form; a parameter that is there twice is a list, which no text may be."""
    lists = parse_qs(text, keep_blank_values=True)
    return {name: values if len(values) > 1 else values[0] for name, values in lists.items()}
