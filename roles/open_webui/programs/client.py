"""Asks Open WebUI over its own HTTP API. Every answer has a time, a limit and a form."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

LARGEST_ANSWER = 16 * 2**20
TECHNICAL = "provisioner@localhost"
"""The user by whom what the lab's file says is written, and by whom it is proved."""
ADMINISTRATOR = "admin"
"""Its word for who may do everything."""
PASSWORDS = Path("/etc/open-webui/technical.json")
"""Its passwords, the newest first: one that was about to become another one has two."""
POLL_S = 0.5
ENDED = ("failed", "inactive")
TOO_OFTEN = 429
PATIENCE_S, AGAIN_S = 200.0, 20.0
"""It lets a user try 15 times in 180 s, and tries that it refuses count as well."""
INSIDE = "/run/switch-open-webui/inside.sock"
"""By this socket the switch lets root in, also while it keeps people out; as an address, ``inside://open-webui``."""


class _Inside(http.client.HTTPConnection):
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(INSIDE)


class _InsideHandler(urllib.request.AbstractHTTPHandler):
    def inside_open(self, request: urllib.request.Request) -> Any:
        return self.do_open(_Inside, request)

    def inside_request(self, request: urllib.request.Request) -> Any:
        return self.do_request_(request)


class _Stay(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer: whom the server sends elsewhere is root, and nobody keeps root in."""

    def redirect_request(self, *_: object) -> None:
        return


_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}), _InsideHandler(), _Stay())


class AnswerError(Exception):
    """It did not answer, or not as it should; ``status`` is 0 where it did not answer at all.

    Its words are one line, however many others have said: of what a program of ours ended with, the last line is told.
    """

    def __init__(self, words: str, status: int = 0) -> None:
        super().__init__(" ".join(words.split()))
        self.status = status


class Client:
    """Open WebUI at ``url``; ``token`` and ``role`` are those of whoever has signed in."""

    def __init__(self, url: str, timeout_s: float, patience_s: float = PATIENCE_S) -> None:
        self._url, self._timeout_s, self._patience_s = url.rstrip("/"), timeout_s, patience_s
        self.token = self.role = ""

    def answer(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        """Status and body of an answer, whatever it is; ``AnswerError`` where there is none, or no end of it."""
        return self._sent(method, path, None if body is None else json.dumps(body).encode(), "application/json")

    def _sent(self, method: str, path: str, data: bytes | None, kind: str) -> tuple[int, bytes]:
        headers = {"Accept": "application/json"}
        if data is not None:
            headers["Content-Type"] = kind
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(self._url + path, data, headers, method=method)  # noqa: S310  # of 127.0.0.1
        try:
            with _OPENER.open(request, timeout=self._timeout_s) as said:
                return said.status, _whole(said, path)
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, _whole(refusal, path)
        except OSError as error:
            raise AnswerError(f"{method} {path}: {getattr(error, 'reason', error)}") from None

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON of an answer that is well; ``AnswerError`` otherwise, with what it said."""
        return _read(f"{method} {path}", *self.answer(method, path, body))

    def mapping(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """``ask`` of what answers with a mapping."""
        return _mapping(f"{method} {path}", self.ask(method, path, body))

    def upload(self, path: str, name: str, text: str) -> dict[str, Any]:
        """Send a text as a file, as a form of a page does; what ``mapping`` gives."""
        edge = secrets.token_hex()
        head = f'Content-Disposition: form-data; name="file"; filename="{name}"\r\nContent-Type: text/plain'
        data = f"--{edge}\r\n{head}\r\n\r\n{text}\r\n--{edge}--\r\n".encode()
        kind = f"multipart/form-data; boundary={edge}"
        return _mapping(f"POST {path}", _read(f"POST {path}", *self._sent("POST", path, data, kind)))

    def sign_in(self, email: str, password: str) -> None:
        """Be this user from now on; ``AnswerError`` where it is another password.

        Who has signed in too often is told to come again, and does so.
        """
        self.token = self.role = ""
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                said = self.mapping("POST", "/api/v1/auths/signin", {"email": email, "password": password})
                break
            except AnswerError as error:
                if error.status != TOO_OFTEN or time.monotonic() > deadline:
                    raise
            time.sleep(AGAIN_S)
        if not isinstance(said.get("token"), str):
            raise AnswerError("signing in gave no token: is a second factor asked for?")
        self.token, self.role = said["token"], str(said.get("role"))


def _read(asked: str, status: int, said: bytes) -> Any:
    """The JSON of an answer that is well."""
    if not 200 <= status < 300:
        raise AnswerError(f"{asked}: status {status}, {_detail(said)}", status)
    try:
        return json.loads(said)
    except ValueError:
        raise AnswerError(f"{asked}: answered with what is no JSON: {said[:80]!r}") from None


def _mapping(asked: str, said: Any) -> dict[str, Any]:
    if not isinstance(said, dict):
        raise AnswerError(f"{asked}: answered with {type(said).__name__} instead of a mapping")
    return said


def _whole(said: Any, path: str) -> bytes:
    body: bytes = said.read(LARGEST_ANSWER + 1)
    if len(body) > LARGEST_ANSWER:
        raise AnswerError(f"{path}: answered with more than {LARGEST_ANSWER} bytes")
    return body


def _detail(said: bytes) -> str:
    """Its own words for what is wrong."""
    text = said[:300].decode("utf-8", errors="replace")
    try:
        found = json.loads(said)
    except ValueError:
        return text
    return str(found.get("detail", text))[:300] if isinstance(found, dict) else text


def wait_until_ready(client: Client, unit: str, within_s: float) -> None:
    """Wait until it has changed its database and answers; ``AnswerError`` where it has given up, or time is over."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            client.ask("GET", "/ready")
        except AnswerError as error:
            state = _unit_state(unit)
            if state in ENDED:
                raise AnswerError(f"{unit} is {state}") from None
            if time.monotonic() > deadline:
                raise AnswerError(f"not ready after {within_s:g} s: {error}") from None
            time.sleep(POLL_S)
        else:
            return


def _unit_state(unit: str) -> str:
    command = ["systemctl", "show", "--value", "--property=ActiveState", "--", unit]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout.strip()


def passwords() -> list[str]:
    """Those of the technical user, the one first that was made last; none where there is no such user yet."""
    try:
        found = json.loads(PASSWORDS.read_text(encoding="utf-8"))["passwords"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return []
    return [one for one in found if isinstance(one, str)]


def keep(made: list[str]) -> None:
    """Write them where only root reads them, before they count."""
    beside = PASSWORDS.with_suffix(".new")
    beside.unlink(missing_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        json.dump({"passwords": made}, file)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(PASSWORDS)


def technical_signed_in(client: Client) -> str | None:
    """The password by which the technical user has signed in; None where there is none that is right."""
    for password in passwords():
        try:
            client.sign_in(TECHNICAL, password)
        except AnswerError as error:
            if error.status not in REFUSED:
                raise
        else:
            return password
    return None


REFUSED = (400, 401, 403)
"""The statuses by which it says that a password is not right."""


def masked(words: str, secrets: Iterable[str]) -> str:
    """``words`` without any of the secrets, whoever has repeated them."""
    for secret in filter(None, secrets):
        words = words.replace(secret, "********")
    return words
