"""Has a real browser do what people do: sign in, ask, and read the answer; of each step it keeps a picture."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import socketserver
import subprocess
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from client import INSIDE, POLL_S, TECHNICAL, AnswerError, Client
from webdriver import ENTER, Browser, BrowserError, until

FOLDER = Path("/var/lib/provisioner/open_webui")
"""Where the pictures are kept, and in ``proof.json`` what they show."""
DRIVER = "/usr/bin/chromedriver"
NOBODY, NOGROUP = "nobody", "nogroup"
STARTED = re.compile(r"started successfully on port (\d+)")
START_S, END_S = 60.0, 10.0
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
    """The address of a browser's driver, which runs as nobody in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="open-webui-proof-") as folder:
        shutil.chown(folder, NOBODY, NOGROUP)
        environment = {"HOME": folder, "TMPDIR": folder, "PATH": os.defpath, "LC_ALL": "C.UTF-8"}
        with Path(folder, "said").open("w+", encoding="utf-8", errors="replace") as said:
            process = subprocess.Popen(
                [DRIVER, "--port=0"],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=folder,
                user=NOBODY,
                group=NOGROUP,
                extra_groups=[],
                start_new_session=True,
            )
            try:
                yield f"http://127.0.0.1:{_port(process, Path(said.name))}"
            finally:
                _ended(process)


def _port(process: subprocess.Popen[bytes], said: Path) -> int:
    deadline = time.monotonic() + START_S
    while True:
        words = said.read_text(encoding="utf-8", errors="replace")
        if found := STARTED.search(words):
            return int(found[1])
        if process.poll() is not None or time.monotonic() > deadline:
            raise BrowserError(f"its driver does not start: {words.strip()[-500:]}")
        time.sleep(POLL_S)


def _ended(process: subprocess.Popen[bytes]) -> None:
    """End it and all that it has started."""
    for number in (15, 9):
        try:
            os.killpg(process.pid, number)
            process.wait(END_S)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


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
                pictures.keep("failed", browser.picture(), "where it failed")
                raise
    except (BrowserError, OSError) as error:
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
