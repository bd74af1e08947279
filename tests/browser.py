"""A real browser without a window: what a page says in its console, asks for, and looks like."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

from tests.processes import killed_at_end

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-extensions",
    "--disable-component-update",
    "--disable-background-networking",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
SAID = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
"""How Chromium tells what stands in the console of a page."""


def program() -> str | None:
    """The browser of this machine; None where it has none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@dataclass
class Tab:
    """One page, driven by Chromium's own protocol over a pipe."""

    to: IO[bytes]
    back: BufferedReader
    session: str = ""
    said: list[str] = field(default_factory=list)
    """What stands in the console."""
    requests: list[str] = field(default_factory=list)
    """The address of everything that was asked for."""
    events: list[str] = field(default_factory=list)
    number: int = 0
    left: bytes = b""
    """What has come of the next message."""

    def ask(self, method: str, **values: Any) -> dict[str, Any]:
        """Ask the browser, and take what it tells meanwhile."""
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": values}
        if self.session:
            message["sessionId"] = self.session
        self.to.write(json.dumps(message).encode() + b"\0")
        self.to.flush()
        while True:
            answer = self._next()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self.left:
            more = self.back.read1()
            assert more, "the browser has ended"
            self.left += more
        content, _, self.left = self.left.partition(b"\0")
        message: dict[str, Any] = json.loads(content)
        self._take(message)
        return message

    def _take(self, message: Mapping[str, Any]) -> None:
        method, values = str(message.get("method", "")), message.get("params", {})
        self.events.append(method)
        if method in SAID:
            self.said.append(json.dumps(values))
        if method == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])

    def open(self, page: Path) -> None:
        """Open a file, and wait until all of it is there."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        self.events.clear()
        self.ask("Page.navigate", url=page.absolute().as_uri())
        while "Page.loadEventFired" not in self.events:
            self._next()

    def looks(self, *, scheme: str = "light", width: int = 1280, height: int = 900, media: str = "") -> None:
        """What the reader's screen is like; ``media`` "print" for paper."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", media=media, features=features)

    def value(self, script: str) -> Any:
        """What a script in the page gives."""
        answer = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def picture(self, file: Path, height: int = 0, above: int = 0) -> None:
        """The page as a PNG: all of it, or so many lines of pixels below the first ones that are left out."""
        size = self.value("[innerWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": above, "width": size[0], "height": height or size[1], "scale": 1}
        shot = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        file.write_bytes(base64.b64decode(shot["data"]))

    def paper(self, file: Path) -> None:
        """The page as it is printed, as a PDF."""
        file.write_bytes(base64.b64decode(self.ask("Page.printToPDF", printBackground=False)["data"]))


@contextmanager
def opened(browser: str, profile: Path) -> Iterator[Tab]:
    """A browser with one empty page; it ends with the test."""
    read_it, write_to = os.pipe()
    read_back, write_it = os.pipe()

    def place() -> None:
        """The browser reads commands from 3, and writes to 4."""
        os.dup2(read_it, 13)
        os.dup2(write_it, 14)
        os.dup2(13, 3)
        os.dup2(14, 4)

    words = [browser, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    silence = subprocess.DEVNULL
    with killed_at_end(
        subprocess.Popen(words, preexec_fn=place, close_fds=False, stdout=silence, stderr=silence),  # noqa: PLW1509 - no other thread runs
        grace_s=30,
    ):
        os.close(read_it)
        os.close(write_it)
        with os.fdopen(write_to, "wb") as to, os.fdopen(read_back, "rb") as back:
            tab = Tab(to, back)
            target = tab.ask("Target.createTarget", url="about:blank")["targetId"]
            tab.session = tab.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            yield tab
            tab.session = ""
            tab.ask("Browser.close")
