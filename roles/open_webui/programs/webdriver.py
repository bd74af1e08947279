"""Drives a Chromium over WebDriver, which is JSON over HTTP. Every wait has an end."""

from __future__ import annotations

import base64
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""Under this name the standard hands an element out."""
ENTER = "\ue007"
PATIENCE_S, POLL_S, ANSWER_S = 90.0, 0.5, 60.0
NOT_THERE, COVERED = "no such element", "not interactable"
"""What the standard calls an element that is not there, and one that something is in front of."""
LARGEST_ANSWER = 32 * 2**20
ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",  # an unprivileged container gives it no namespaces of its own
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--window-size=1280,900",
)
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class BrowserError(Exception):
    """The browser does not do, or does not show, what it should."""


class Browser:
    """A window of the browser whose driver listens at ``address``."""

    def __init__(self, address: str) -> None:
        self._url = f"{address}/session"
        options = {"args": [*ARGUMENTS]}
        wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}

        def begun() -> Any:
            try:
                return self._ask("POST", "", wanted)
            except OSError:
                return None

        session = until(begun, "the browser's driver does not listen")
        self._url += f"/{session['sessionId']}"

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url + path, data, headers, method=method)  # noqa: S310  # of a driver
        try:
            with _OPENER.open(request, timeout=ANSWER_S) as said:
                text = said.read(LARGEST_ANSWER + 1)
        except urllib.error.HTTPError as refusal:
            with refusal:
                words = refusal.read(2000).decode("utf-8", errors="replace")[:500]
            raise BrowserError(f"its driver refuses {path or 'a window'}: {words}") from None
        if len(text) > LARGEST_ANSWER:
            raise BrowserError(f"its driver answered {path} with more than {LARGEST_ANSWER} bytes")
        try:
            return json.loads(text)["value"]
        except (ValueError, KeyError, TypeError):
            raise BrowserError(
                f"its driver answers {path or 'for a window'} with what WebDriver does not say"
            ) from None

    def open(self, address: str) -> None:
        """Go to a page."""
        self._ask("POST", "/url", {"url": address})

    def find(self, css: str) -> str:
        """The first element that there is of the kind, waited for."""

        def found() -> Any:
            try:
                return self._ask("POST", "/element", {"using": "css selector", "value": css})
            except BrowserError as error:
                if NOT_THERE not in str(error):
                    raise
                return None

        return str(until(found, f"its page has no {css}", self.text)[ELEMENT])

    def write(self, css: str, text: str, clears: str = "") -> None:
        """Type into an element, once nothing is in front of it; before each try ``clears`` is run in the page."""

        def typed() -> bool:
            if clears:
                self.run(clears)
            try:
                self._ask("POST", f"/element/{self.find(css)}/value", {"text": text})
            except BrowserError as error:
                if COVERED not in str(error):
                    raise
                return False
            return True

        until(typed, f"something is in front of {css}", self.text)

    def text(self) -> str:
        """All words of the page that are seen."""
        return str(self.run("return document.body.innerText"))

    def run(self, script: str) -> Any:
        """What a script in the page returns."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": []})

    def picture(self) -> bytes:
        """What the window shows, as PNG."""
        return base64.b64decode(self._ask("GET", "/screenshot"))


def until(
    said: Callable[[], Any], otherwise: str, shown: Callable[[], str] | None = None, within_s: float | None = None
) -> Any:
    """What it says as soon as that is something; ``BrowserError`` with what is ``shown`` when the time is over."""
    deadline = time.monotonic() + (PATIENCE_S if within_s is None else within_s)
    while not (something := said()):
        if time.monotonic() > deadline:
            raise BrowserError(f"{otherwise}: {' '.join(shown().split())[:500]}" if shown else otherwise)
        time.sleep(POLL_S)
    return something
