"""A real Chromium in a container, told what to do over WebDriver, which is JSON over HTTP."""

from __future__ import annotations

import base64
import json
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.integration.up.quickstart_lab import Lab

INSTALL = (
    "apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "
    "chromium chromium-driver fonts-dejavu-core"
)
PORT = 9515
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""Under this name the standard hands an element out."""
ENTER = "\ue007"
PATIENCE_S, POLL_S, ANSWER_S = 90.0, 0.5, 60.0
WINDOW = "--window-size=1280,900"


class Browser:
    """A browser in a container of the lab, with one window."""

    def __init__(self, lab: Lab, container: str) -> None:
        lab.incus("exec", container, "--", "sh", "-c", INSTALL)
        words = [f"--port={PORT}", "--allowed-ips=", "--allowed-origins=*"]
        unit = ["systemd-run", "--quiet", "--unit=webdriver", "--collect", "--setenv=HOME=/root"]
        lab.incus("exec", container, "--", *unit, "chromedriver", *words)
        self._url = f"http://{lab.address(container)}:{PORT}/session"
        options = {"args": ["--headless=new", "--no-sandbox", "--disable-gpu", WINDOW]}
        wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}
        self._url += "/" + str(self._until_it_listens(wanted)["sessionId"])

    def _until_it_listens(self, wanted: Any) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self._ask("POST", "", wanted)
            except urllib.error.URLError:
                assert time.monotonic() < deadline, "the browser's driver does not listen"
                time.sleep(POLL_S)

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url + path, data, headers, method=method)  # noqa: S310  # of our bridge
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=ANSWER_S) as said:
            return json.load(said)["value"]

    def open(self, address: str) -> None:
        """Go to a page."""
        self._ask("POST", "/url", {"url": address})

    def find(self, css: str) -> str:
        """The first element that there is of the kind, waited for."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                found = self._ask("POST", "/element", {"using": "css selector", "value": css})
                return str(found[ELEMENT])
            except urllib.error.HTTPError as refusal:
                said = refusal.read().decode()
                assert time.monotonic() < deadline, f"no {css} in:\n{self.text()}\n{said[:500]}"
                time.sleep(POLL_S)

    def write(self, css: str, text: str) -> None:
        """Type into an element, once nothing is in front of it."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                self._ask("POST", f"/element/{self.find(css)}/value", {"text": text})
            except urllib.error.HTTPError as refusal:
                said = refusal.read().decode()
                assert "not interactable" in said, said[:500]
                assert time.monotonic() < deadline, f"something is in front of {css}:\n{self.text()}"
                time.sleep(POLL_S)
            else:
                return

    def text(self) -> str:
        """All words of the page that are seen."""
        return str(self.run("return document.body.innerText"))

    def run(self, script: str) -> Any:
        """What a script in the page returns."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": []})

    def picture(self, path: Path) -> None:
        """Write what the window shows as PNG."""
        path.write_bytes(base64.b64decode(self._ask("GET", "/screenshot")))
