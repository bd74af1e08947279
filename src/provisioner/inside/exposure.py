"""Tells what is open in a container: which sockets listen there, and which routes of its services answer without a key.

Reads JSON: ``sockets`` (whether to look at them), ``doors``, ``most`` (requests in all) and ``within_s``. A door has

* ``name``, ``url`` (where it is asked; ``http://own:PORT`` is the container's own address), ``routes`` (pairs of method
  and path), ``ways``: how it is asked (``KINDS``), each with how many routes, None for all; and it may have
* ``document``: the address of an OpenAPI document with further routes;
* ``open``: routes that may answer, as ``METHOD /path``; an end ``/*`` is any one part, ``/**`` any number of them;
* ``passed``: the same of a service that asks for no key, and is asked for all others alone;
* ``tells``: what stands in the JSON of open pages, as path, keys and value: another value is told as an answer;
* ``front``: whether unknown paths show something, such as a front page;
* ``looks_only``: nothing but GET and HEAD, which wakes nobody;
* ``host_name``: by which it is asked; ``timeout_s`` of each request.

Answers as JSON: ``sockets`` (protocol, address, port, unit), and ``doors``, each with ``name``, ``url``, ``asked``,
``answered`` (method, path, status, way), ``silent`` (no answer in time, or only to come again: a busy server is no open
one), ``left`` (not asked any more) and ``problem``.
Nothing is changed: what is not only looked at is asked with a body that no server can use. Python alone is enough.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

CLOSED = (401, 403, 404)
REDIRECTS = range(300, 400)
"""They give nothing; where they lead is asked by itself."""
BUSY = 503
SILENT = 0
"""The status of a route behind which nobody answers, or only that one may come again."""
NOT_ALLOWED = 405
ASKED, NO_ANSWER, LEFT, SHUT, OPEN = "asked", "silent", "left", "shut", "open"
"""What became of a request; the first three are counted."""
SWITCH_SAYS = (b'"message": "Use POST."', b'"message": "Use GET."')
"""What the switch itself says of another method, without the engine behind it."""
SAFE = ("GET", "HEAD")
WITH_BODY = ("POST", "PUT", "PATCH")
METHODS = (*SAFE, *WITH_BODY, "DELETE")
UNUSABLE = b"0"
"""A body that is JSON, so that a server looks at the key before it, and that is no object, list or text."""
WRONG_KEY = "Bearer sk-nobody-has-this-key-00000000"
FOREIGN = "foreign.example"
PLAIN, WRONG, ELSEWHERE, DISGUISED = "without a key", "with a wrong key", "from a foreign page", "in disguise"
KINDS = (PLAIN, WRONG, ELSEWHERE, DISGUISED)
NOWHERE = "/api/there-is-no-such-path"
OWN = "own"
"""In the place of a host's name: the container's own address in its network."""
ANYWHERE = "192.0.2.1"
"""An address that nobody has (RFC 5737)."""
LONGEST_DOCUMENT = 16 * 2**20
LONGEST_ANSWER = 2**20
TIMEOUT_S, SHORTEST_S = 5.0, 0.1
FIRST_PIECE = 2**16
SS_TIMEOUT_S = 10
ANY = {"*": "::"}
"""How ss writes every address of both kinds."""
LOOK = "LOOK "
"""Before the method of a route that is looked at by GET alone."""
_PROCESS = re.compile(r"pid=(\d+)")


def routes_in(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each method and path of an OpenAPI document, with a word for what varies in the path.

    A route that would do something although its body is of no use, as it names none, is looked at by GET instead: a
    server that asks for no key says 405 then, which is an answer.
    """
    for path, page in sorted(document.get("paths", {}).items()):
        plain = re.sub(r"\{[^}]*\}", "x", path)
        for method in METHODS:
            operation = page.get(method.lower())
            if operation is None:
                continue
            is_harmless = method in SAFE or (method in WITH_BODY and "requestBody" in operation)
            if is_harmless:
                yield method, plain
            elif "get" not in page:
                yield f"{LOOK}{method}", plain


def matches(route: str, patterns: Sequence[str]) -> bool:
    """Whether ``METHOD /path`` is one of these, whose paths may end in ``/*`` or ``/**``."""
    for pattern in patterns:
        if pattern.endswith("/**"):
            if route.startswith(pattern[:-2]):
                return True
        elif pattern.endswith("/*"):
            rest = route.removeprefix(pattern[:-1])
            if rest != route and rest and "/" not in rest:
                return True
        elif route == pattern:
            return True
    return False


def disguises(path: str) -> list[str]:
    """Other spellings of a path that a server may read as the same one."""
    if path == "/":
        return []
    escaped = f"/%{ord(path[1]):02x}{path[2:]}"
    return [f"/{path}", f"/.{path}", f"{path}/", f"{path};x", f"/x/..{path}", escaped, path.upper()]


def own_address() -> str:
    """The address at which others reach this container: that of its way to whatever is not nearby; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        try:
            way.connect((ANYWHERE, 9))
        except OSError:  # no way out: nobody reaches it by a network
            return "127.0.0.1"
        return str(way.getsockname()[0])


def _anybody() -> ssl.SSLContext:
    """TLS with whoever answers: nothing is told to it, only what it says is looked at."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # that of Python reads all authorities, which takes its time
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


ANYBODY = _anybody()


class Door:
    """One address of a service, asked as strangers ask."""

    def __init__(self, asked: Mapping[str, Any], budget: Budget) -> None:
        parts = urlsplit(asked["url"])
        self.host = own_address() if parts.hostname == OWN else parts.hostname or ""
        self.port, self.is_tls = parts.port, parts.scheme == "https"
        self.url = f"{parts.scheme}://{self.host}:{parts.port}"
        self.name = asked.get("host_name", "")
        self.timeout_s = float(asked.get("timeout_s", TIMEOUT_S))
        self.budget = budget
        self.compares = bool(asked.get("front"))
        self.nothing: set[tuple[str, int, str]] = set()

    def ask(self, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Status and beginning of the answer; ``SILENT`` where none comes in time, or only that one may come again."""
        body = UNUSABLE if method in WITH_BODY else None
        said = {"Content-Type": "application/json"} if body else {}
        if self.name:
            said["Host"] = self.name
        timeout_s = max(SHORTEST_S, min(self.timeout_s, self.budget.left_s()))
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)
        try:
            connection.sock = self._connected(timeout_s)
            connection.request(method, path, body, {**said, **headers})
            answer = connection.getresponse()
            content = self._beginning(answer)
            may_come_again = answer.status == BUSY and answer.getheader("Retry-After")
        except (OSError, http.client.HTTPException):
            return SILENT, b""
        finally:
            connection.close()
        return (SILENT if may_come_again else answer.status), content

    def _connected(self, timeout_s: float) -> socket.socket:
        plain = socket.create_connection((self.host, self.port), timeout_s)
        if not self.is_tls:
            return plain
        return ANYBODY.wrap_socket(plain, server_hostname=self.name or self.host)

    def _beginning(self, answer: http.client.HTTPResponse) -> bytes:
        """As much as tells two answers apart: a stream has no end, and of most the first piece is enough."""
        if not self.compares:
            return answer.read1(FIRST_PIECE)
        content, ends = b"", time.monotonic() + self.timeout_s
        while len(content) < LONGEST_ANSWER and time.monotonic() < ends:
            piece = answer.read1(FIRST_PIECE)
            if not piece:
                break
            content += piece
        return content

    def remember_nothing(self) -> None:
        """Take note of what the server says of paths that it does not have: it may show its front page there."""
        for method, path in (("GET", "/"), ("GET", NOWHERE), ("POST", NOWHERE)):
            status, content = self.ask(method, path, {})
            if status != SILENT:
                self.nothing.add((method, status, sha256(content).hexdigest()))

    def is_closed(self, method: str, status: int, content: bytes) -> bool:
        """Whether the answer gives nothing to who has no key."""
        if status in CLOSED or status in REDIRECTS:
            return True
        if status == NOT_ALLOWED and any(words in content for words in SWITCH_SAYS):
            return True
        return (method, status, sha256(content).hexdigest()) in self.nothing


class Budget:
    """So many requests may still be sent, and so long."""

    def __init__(self, most: int, within_s: float) -> None:
        self.requests, self._ends = most, time.monotonic() + within_s

    def left_s(self) -> float:
        """Seconds until the end."""
        return self._ends - time.monotonic()

    def takes(self) -> bool:
        """Whether one more request may be sent; it is counted."""
        if self.requests <= 0 or self.left_s() <= 0:
            return False
        self.requests -= 1
        return True


HEADERS: Mapping[str, Mapping[str, str]] = {
    WRONG: {"Authorization": WRONG_KEY, "X-Api-Key": WRONG_KEY.removeprefix("Bearer ")},
    ELSEWHERE: {"Origin": f"https://{FOREIGN}", "Host": FOREIGN},
}


def requests_of(asked: Mapping[str, Any], routes: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
    """Way, method and path of each request; routes that may answer are asked in no disguise and by no wrong key."""
    listed = (*asked.get("open", ()), *asked.get("passed", ()))
    closed = list[tuple[str, str]]()
    for method, path in routes:
        may_be_sent = method in SAFE or not asked.get("looks_only")
        if may_be_sent and not matches(_text(method, path), listed):
            closed.append((method, path))
    for way, most in asked["ways"].items():
        chosen = _disguised(closed, listed) if way == DISGUISED else closed
        for method, path in chosen[:most]:
            yield way, method, path


def _disguised(routes: Sequence[tuple[str, str]], listed: Sequence[str]) -> list[tuple[str, str]]:
    """The same routes in other spellings, without those that are listed themselves."""
    found = list[tuple[str, str]]()
    for method, path in routes:
        for spelled in disguises(path):
            if not matches(_text(method, spelled), listed):
                found.append((method, spelled))
    return found


def _text(method: str, path: str) -> str:
    """The route as pages write it."""
    return f"{method.removeprefix(LOOK)} {path}"


def _sent(method: str) -> str:
    """The method by which a route is asked."""
    return "GET" if method.startswith(LOOK) else method


def told(asked: Mapping[str, Any], budget: Budget) -> dict[str, Any]:
    """What one door answers to strangers."""
    door = Door(asked, budget)
    routes, problem = _routes_of(asked, door.timeout_s)
    if door.compares:
        door.remember_nothing()
    counts = {ASKED: 0, NO_ANSWER: 0, LEFT: 0}
    answered = []
    for way, method, path in requests_of(asked, routes):
        if not budget.takes():
            counts[LEFT] += 1
            continue
        status, became = _verdict(door, way, method, path)
        if became == OPEN:
            answered.append([_sent(method), path, status, way])
        if became == NO_ANSWER:
            counts[NO_ANSWER] += 1
        counts[ASKED] += 1
    for path, keys, wanted in asked.get("tells", ()):
        status, value = _told_there(door, path, keys)
        if status != SILENT and value != wanted:
            answered.append(["GET", path, status, f"with {'.'.join(keys)}: {json.dumps(value)}"])
    return {
        "name": asked["name"],
        "url": door.url,
        "answered": answered,
        "problem": problem,
        **counts,
    }


def _told_there(door: Door, path: str, keys: Sequence[str]) -> tuple[int, Any]:
    """The status of an open page, and the value that stands there in its JSON; None where there is none."""
    status, content = door.ask("GET", path, {})
    try:
        value = json.loads(content)
        for key in keys:
            value = value[key]
    except (ValueError, LookupError, TypeError):
        return status, None
    return status, value


def _routes_of(asked: Mapping[str, Any], timeout_s: float) -> tuple[list[tuple[str, str]], str]:
    """Each route that is to be asked, once, and why its document could not be read, if it has one."""
    routes = dict.fromkeys((method, path) for method, path in asked.get("routes", ()))
    document = asked.get("document")
    if not document:
        return list(routes), ""
    try:
        routes |= dict.fromkeys(_documented(document, timeout_s))
    except (OSError, ValueError, http.client.HTTPException) as error:
        return list(routes), f"{document}: {error}"
    return list(routes), ""


def _verdict(door: Door, way: str, method: str, path: str) -> tuple[int, str]:
    """The status of one request, and what it means."""
    sent = _sent(method)
    status, content = door.ask(sent, path, HEADERS.get(way, {}))
    if status == SILENT:
        return status, NO_ANSWER
    if door.is_closed(sent, status, content):
        return status, SHUT
    return status, OPEN


def _documented(address: str, timeout_s: float) -> list[tuple[str, str]]:
    """The routes of the OpenAPI document at an address."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)
    try:
        connection.request("GET", parts.path)
        answer = connection.getresponse()
        content = answer.read(LONGEST_DOCUMENT)
    finally:
        connection.close()
    if answer.status != http.HTTPStatus.OK:
        raise ValueError(f"HTTP {answer.status}")
    return list(routes_in(json.loads(content)))


def listening() -> list[list[Any]]:
    """Protocol, address, port and unit of every socket that listens, as ``ss`` of iproute2 tells."""
    done = subprocess.run(
        ["ss", "--tcp", "--udp", "--listening", "--numeric", "--processes", "--no-header"],
        capture_output=True,
        check=True,
        timeout=SS_TIMEOUT_S,
    )
    return sockets_in(done.stdout.decode(errors="replace"))


def sockets_in(text: str) -> list[list[Any]]:
    """The same of what ``ss`` said."""
    found = []
    for line in text.splitlines():
        protocol, _state, _received, _sent, local, _peer, *who = line.split(maxsplit=6)
        address, _, port = local.rpartition(":")
        process = _PROCESS.search(who[0]) if who else None
        plain = re.sub(r"%[^\]]*", "", address).strip("[]")
        unit = _unit_of(process[1]) if process else ""
        found.append([protocol, ANY.get(plain, plain), int(port), unit])
    return found


def _unit_of(process: str) -> str:
    """The unit of systemd whose process it is; empty where that is not known any more."""
    try:
        groups = Path(f"/proc/{process}/cgroup").read_text(encoding="utf-8").split("\n")
    except OSError:
        return ""
    for group in groups:
        name = group.rpartition("/")[2]
        if name.endswith((".service", ".scope", ".socket")):
            return name
    return ""


def look(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that was asked for."""
    budget = Budget(int(asked["most"]), float(asked["within_s"]))
    found: dict[str, Any] = {"sockets": [], "problem": ""}
    if asked.get("sockets"):
        try:
            found["sockets"] = listening()
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            found["problem"] = f"ss (package iproute2): {error}"
    found["doors"] = [told(door, budget) for door in asked["doors"]]
    return found


def main(request: bytes) -> None:
    """Answer one request, given as it is sent."""
    json.dump(look(json.loads(request)), sys.stdout)


if __name__ == "__main__":
    main(sys.stdin.buffer.read())
