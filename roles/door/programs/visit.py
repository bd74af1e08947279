"""Visits a door as a browser does: each of its sites, and what it has to refuse.

Reads JSON: ``host``, ``port``, ``plain_port``, ``sites`` (names with the addresses behind them), ``socket``,
``identity``, ``pair`` (the file of certificate and key), ``is_given`` (whether that is somebody's own), ``hsts_s``,
``unsized_bytes`` (at which a body without a length is refused, 0 for never), and ``root``, the certificate of the
authority as PEM, or the one that is given, or nothing where it is that of the file. Answers with a JSON list of
sentences, one for each thing that is not as it should be.
"""

from __future__ import annotations

import csv
import http.client
import json
import socket
import ssl
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

PATIENCE_S = 10.0
LARGEST_ANSWER = 2**20
OK, REDIRECT, NOT_FOUND, LENGTH_REQUIRED, MISDIRECTED = 200, 308, 404, 411, 421
HSTS = "Strict-Transport-Security"
BEGIN = "-----BEGIN CERTIFICATE-----"
END = "-----END CERTIFICATE-----"
NOWHERE = "nowhere.invalid"
"""A name that no site has (RFC 2606)."""
FAILURES = (OSError, http.client.HTTPException)

Asked = Mapping[str, Any]


class Control:
    """The running HAProxy, by its control socket."""

    def __init__(self, path: str) -> None:
        self._path = path

    def said(self, command: str) -> str:
        """What it answers to one command, of a very long answer the beginning."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE_S)
            connection.connect(self._path)
            connection.sendall(f"{command}\n".encode("ascii"))
            with connection.makefile(encoding="utf-8", errors="replace") as answer:
                return answer.read(LARGEST_ANSWER)

    def identity(self) -> str:
        """What its configuration calls itself."""
        lines = [line.partition(": ") for line in self.said("show info").splitlines()]
        return next((value for name, _, value in lines if name == "description"), "")

    def handed_on(self, site: str) -> int:
        """How many requests the service behind a site was given so far."""
        rows = csv.DictReader(self.said("show stat -1 4 -1").lstrip("# ").splitlines())
        return sum(int(row["stot"]) for row in rows if row["pxname"] == f"site-{site}")


def main() -> None:
    """Ask and tell."""
    asked = json.load(sys.stdin)
    sys.stdout.write(json.dumps(list(complaints(asked))))


def complaints(asked: Asked) -> Iterator[str]:
    """What is not as it should be."""
    control = Control(asked["socket"])
    try:
        context = _trusting(asked)
    except OSError as error:
        yield f"Its certificate cannot be used: {error}."
        return
    try:
        if control.identity() != asked["identity"]:
            yield "It runs with another configuration than its file has."
    except OSError as error:
        yield f"Its control socket does not answer: {error}."
        return
    for name, address in sorted(asked["sites"].items()):
        yield from _of_site(asked, context, control, name, address)
    first = min(asked["sites"])
    yield from _of_certificate(asked, context, first)
    yield from _of_hsts(asked, context, first)
    yield from _of_refusals(asked, context, first)
    yield from _of_stranger(asked)


def _trusting(asked: Asked) -> ssl.SSLContext:
    """What holds certificates against the root; one that is given is believed itself, for its names and its time."""
    context = ssl.create_default_context(cadata=asked["root"] or "".join(_shown(asked)))
    if asked["is_given"]:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _shown(asked: Asked) -> Iterator[str]:
    """The certificates of its file, as PEM."""
    inside = False
    for line in Path(asked["pair"]).read_text(encoding="utf-8").splitlines(keepends=True):
        inside = inside or line.startswith(BEGIN)
        if inside:
            yield line
        inside = inside and not line.startswith(END)


def _of_refusals(asked: Asked, context: ssl.SSLContext, first: str) -> Iterator[str]:
    """What the door has to refuse by itself."""
    checks: list[tuple[str, Callable[[], int], int]] = [
        ("a host that is no site", lambda: _status(_secure(asked, context, first), NOWHERE), MISDIRECTED),
        ("a host that is no site, without TLS,", lambda: _status(_plain(asked), NOWHERE), NOT_FOUND),
    ]
    unsized = b"a" * asked["unsized_bytes"]
    if unsized:
        what = "a long body that does not say its length"
        checks.append((what, lambda: _unsized(_secure(asked, context, first), unsized), LENGTH_REQUIRED))
    for what, ask, wanted in checks:
        try:
            seen = ask()
        except FAILURES as error:
            yield f"Asked for {what} it does not answer: {error}."
        else:
            if seen != wanted:
                yield f"Asked for {what} it answers {seen}, and should answer {wanted}."


def _of_site(asked: Asked, context: ssl.SSLContext, control: Control, name: str, address: str) -> Iterator[str]:
    path = urlsplit(address).path or "/"
    try:
        direct = _status(_direct(address), urlsplit(address).netloc, path)
    except FAILURES as error:
        yield f"Behind {name} nobody answers at {address}: {error}."
        return
    before = control.handed_on(name)
    try:
        seen = _status(_secure(asked, context, name), name, path)
    except FAILURES as error:
        yield f"{name} is not reached by TLS: {error}."
        return
    if seen != direct or seen != OK:
        yield f"{name} answers {seen} on {path}, and its service itself answers {direct}."
    elif control.handed_on(name) <= before:
        yield f"The answer of {name} does not come from the service behind it."
    yield from _of_redirect(asked, name)


def _of_redirect(asked: Asked, name: str) -> Iterator[str]:
    port = "" if asked["port"] == http.client.HTTPS_PORT else f":{asked['port']}"
    wanted = f"https://{name}{port}/a?b=c"
    connection = _plain(asked)
    try:
        connection.request("GET", "/a?b=c", headers={"Host": name})
        answer = connection.getresponse()
        seen = (answer.status, answer.getheader("Location"))
    except FAILURES as error:
        yield f"{name} does not answer without TLS: {error}."
        return
    finally:
        connection.close()
    if seen != (REDIRECT, wanted):
        yield f"Without TLS {name} answers {seen[0]} to {seen[1]}, and should answer {REDIRECT} to {wanted}."


def _of_certificate(asked: Asked, context: ssl.SSLContext, name: str) -> Iterator[str]:
    """What was signed last is what is shown."""
    certificate = Path(asked["pair"]).read_text(encoding="ascii").partition(END)
    with suppress(OSError), _handshake(asked, context, name) as connection:
        if connection.getpeercert(binary_form=True) != ssl.PEM_cert_to_DER_cert(certificate[0] + END):
            yield "It shows another certificate than its file has."


def _of_hsts(asked: Asked, context: ssl.SSLContext, name: str) -> Iterator[str]:
    """How long browsers are told to ask by TLS alone; an answer of the door's own says it as well."""
    wanted = f"max-age={asked['hsts_s']}"
    try:
        connection = _secure(asked, context, name)
    except FAILURES:
        return  # this has been told of the site
    try:
        connection.request("GET", "/", headers={"Host": NOWHERE})
        seen = connection.getresponse().getheader(HSTS)
    except FAILURES as error:
        yield f"It does not tell {HSTS}: {error}."
        return
    finally:
        connection.close()
    if seen != wanted:
        yield f"It says {HSTS}: {seen}, and should say {wanted}."


def _of_stranger(asked: Asked) -> Iterator[str]:
    """A client that names no site gets no certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with _handshake(asked, context, NOWHERE):
            yield "A client that names no site in the handshake gets a certificate all the same."
    except OSError:
        return


def _status(connection: http.client.HTTPConnection, host: str, path: str = "/") -> int:
    """The status of an answer to GET."""
    try:
        connection.request("GET", path, headers={"Host": host})
        return connection.getresponse().status
    finally:
        connection.close()


def _unsized(connection: http.client.HTTPConnection, body: bytes) -> int:
    """The status of an answer to a body that does not say how long it is."""
    try:
        connection.request("POST", "/", iter([body]), {"Transfer-Encoding": "chunked"}, encode_chunked=True)
        return connection.getresponse().status
    finally:
        connection.close()


def _direct(address: str) -> http.client.HTTPConnection:
    parts = urlsplit(address)
    return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_S)


def _plain(asked: Asked) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(asked["host"], asked["plain_port"], timeout=PATIENCE_S)


def _secure(asked: Asked, context: ssl.SSLContext, name: str) -> http.client.HTTPConnection:
    """A connection that is already there, its certificate held against the root, the name and the clock."""
    connection = http.client.HTTPConnection(name, timeout=PATIENCE_S)
    connection.sock = _handshake(asked, context, name)
    return connection


def _handshake(asked: Asked, context: ssl.SSLContext, name: str) -> ssl.SSLSocket:
    raw = socket.create_connection((asked["host"], asked["port"]), PATIENCE_S)
    try:
        return context.wrap_socket(raw, server_hostname=name)
    except OSError:
        raw.close()
        raise


if __name__ == "__main__":
    main()
