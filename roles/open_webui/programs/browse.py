"""Has a real browser do what people do: sign in, ask, and read the answer; of each step it keeps a picture."""

from __future__ import annotations

import json
import socket
import socketserver
import subprocess
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from client import INSIDE, TECHNICAL, AnswerError, Client
from webdriver import ENTER, Browser, BrowserError, until

FOLDER = Path("/var/lib/provisioner/open_webui")
"""Where the pictures are kept, and in ``proof.json`` what they show."""
DRIVER = "/usr/bin/chromedriver"
UNIT = "open-webui-proof.service"
ALONE = (
    "--property=DynamicUser=yes",
    "--property=RuntimeMaxSec=3600",
    "--property=TimeoutStopSec=10",
    "--property=NoNewPrivileges=yes",
    "--property=PrivateTmp=yes",
    "--setenv=HOME=/tmp",  # its own
)
END_S = 60.0
PIECE = 65536
CLOSES_THE_NEWS = """
    const button = [...document.querySelectorAll("button")].find(one => one.innerText.includes("Let's Go"));
    if (button) button.click();
    return Boolean(button);
"""
"""An administrator who comes for the first time is shown what is new, over everything else."""
ANSWER = "const said = document.querySelector('.chat-assistant'); return said ? said.innerText : ''"
IS_DONE = "return Boolean(document.querySelector('.copy-response-button'))"


class Forwarder(socketserver.ThreadingTCPServer):
    """Leads a port of 127.0.0.1 to the switch's socket for root, as long as a proof runs: no browser opens a socket."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Forwarded)


class Forwarded(socketserver.BaseRequestHandler):
    """One connection."""

    def handle(self) -> None:
        """Pass on what comes from either side, until both have ended."""
        with socket.socket(socket.AF_UNIX) as inside:
            inside.connect(INSIDE)
            back = threading.Thread(target=_passed_on, args=(inside, self.request), daemon=True)
            back.start()
            _passed_on(self.request, inside)
            back.join()


def _passed_on(source: socket.socket, target: socket.socket) -> None:
    try:
        while piece := source.recv(PIECE):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:  # one of them has gone: so does the other
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@contextmanager
def led_inside() -> Iterator[str]:
    """The address at which a browser finds the server meanwhile."""
    with Forwarder() as forwarder:
        thread = threading.Thread(target=forwarder.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{forwarder.server_address[1]}"
        finally:
            forwarder.shutdown()
            thread.join()


@contextmanager
def driver() -> Iterator[str]:
    """The address of a browser's driver, which is nobody's and ends with its unit, also where a proof was killed."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    _run("systemctl", "stop", UNIT)
    said = _run("systemd-run", "--quiet", "--collect", f"--unit={UNIT}", *ALONE, DRIVER, f"--port={port}")
    if said.returncode:
        raise BrowserError(f"its driver does not start: {said.stderr.strip()[-500:]}")
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        _run("systemctl", "stop", UNIT)


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=END_S)


class Pictures:
    """What was seen, by name, and what it shows."""

    def __init__(self) -> None:
        self._shows: dict[str, str] = {}
        FOLDER.mkdir(mode=0o700, parents=True, exist_ok=True)
        forget()

    def keep(self, name: str, picture: bytes, shows: str) -> None:
        """Keep one more."""
        (FOLDER / f"{name}.png").write_bytes(picture)
        self._shows[name] = shows
        (FOLDER / "proof.json").write_text(json.dumps({"pictures": self._shows}), encoding="utf-8")


def forget() -> None:
    """Pictures of an earlier proof go."""
    for old in (*FOLDER.glob("*.png"), *FOLDER.glob("proof.json")):
        old.unlink()


def sees(client: Client, password: str, model: str, answer_s: float) -> Iterator[str]:
    """What is wrong for somebody with a browser who signs in and asks the model; nothing of it is left."""
    before = _chats(client)
    pictures = Pictures()
    try:
        with ExitStack() as ends:
            browser = Browser(ends.enter_context(driver()))
            try:
                address = ends.enter_context(led_inside())
                _sign_in(browser, address, password, pictures)
                _talk(browser, address, model, answer_s, pictures)
            except BrowserError:
                with suppress(BrowserError, OSError):  # one that has ended shows nothing
                    pictures.keep("failed", browser.picture(), "where it failed")
                raise
    except (BrowserError, OSError, subprocess.SubprocessError) as error:
        yield f"with a browser: {error}"
    finally:
        for chat in _chats(client) - before:
            client.ask("DELETE", f"/api/v1/chats/{chat}")


def _sign_in(browser: Browser, address: str, password: str, pictures: Pictures) -> None:
    browser.open(f"{address}/auth")
    browser.write("input[type=email]", TECHNICAL)
    pictures.keep("sign_in", browser.picture(), "the page on which one signs in")
    browser.write("input[type=password]", password + ENTER)
    browser.find("#chat-input")


def _talk(browser: Browser, address: str, model: str, answer_s: float, pictures: Pictures) -> None:
    browser.open(f"{address}/?models={urllib.parse.quote(model, safe='')}")
    browser.write("#chat-input", "Say hello." + ENTER, clears=CLOSES_THE_NEWS)
    until(lambda: str(browser.run(ANSWER)).strip(), "no answer comes", browser.text, answer_s)
    until(lambda: browser.run(IS_DONE), "the answer does not end", browser.text, answer_s)
    pictures.keep("chat", browser.picture(), f"an answer of {model}")


def _chats(client: Client) -> set[str]:
    listed: Any = client.ask("GET", "/api/v1/chats/")
    found = [one.get("id") for one in listed if isinstance(one, dict)] if isinstance(listed, list) else [None]
    chats = {one for one in found if isinstance(one, str)}
    if len(chats) != len(found):
        raise AnswerError("its chats are no list of chats")
    return chats
