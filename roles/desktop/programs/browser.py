"""Firefox, in a session and without one, on a page that is served here and found again in a picture of it."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import judge
from client import end
from picture import Picture, read_png
from sessions import Process

SNAP = b"snap"
STUB = 8192
"""Bytes within which a script says that it is one; the program itself is larger."""
HEADLESS_S = 60
WINDOW = (512, 384)


def missing(name: str) -> str:
    """Why there is no such browser, or an empty text."""
    program = shutil.which(name)
    if program is None:
        return f"{name} is not installed. Run: provision up"
    head = Path(program).resolve().read_bytes()[:STUB]
    if head.startswith(b"#!") and SNAP in head:
        return (
            f"{program} is a stub that wants snapd, which does not run in an unprivileged container. Remove the "
            f"package {name}, and run: provision up"
        )
    return ""


@contextmanager
def served() -> Iterator[tuple[str, tuple[int, ...]]]:
    """The address of a page that nobody has seen before, and its fields."""
    fields = judge.drawn_fields(secrets.randbits(64))
    body = judge.page(fields).encode()

    class Page(BaseHTTPRequestHandler):
        """Gives the page to whoever asks."""

        def do_GET(self) -> None:  # http.server's name
            """Answer."""
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Keep no log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", fields
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def profile(user: str) -> Iterator[Path]:
    """An empty profile of the user's, so that the own one keeps no trace."""
    account = pwd.getpwnam(user)
    folder = Path(tempfile.mkdtemp(prefix="desktop-proof-"))
    os.chown(folder, account.pw_uid, account.pw_gid)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # Firefox's last process may still write there


@contextmanager
def in_session(name: str, leader: int, user: str, address: str) -> Iterator[subprocess.Popen[bytes]]:
    """The browser in the user's session, on that page; it is ended afterwards."""
    account = pwd.getpwnam(user)
    with profile(user) as folder:
        process = subprocess.Popen(
            [name, "--no-remote", "--profile", str(folder), address],
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=[],
            env=dict(Process(leader).environment),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            end(process)


def headless(name: str, user: str, address: str) -> Picture:
    """What the browser draws without a screen. Raises ``OSError`` with its words."""
    account = pwd.getpwnam(user)
    with profile(user) as folder:
        file = folder / "headless.png"
        words = [name, "--headless", "--no-remote", "--profile", str(folder), "--screenshot", str(file)]
        done = subprocess.run(
            [*words, f"--window-size={WINDOW[0]},{WINDOW[1]}", address],
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=[],
            env={"HOME": str(folder), "PATH": os.defpath, "XDG_RUNTIME_DIR": str(folder)},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=HEADLESS_S,
            check=False,
        )
        if not file.is_file():
            raise OSError(f"it ended with {done.returncode} and drew nothing: {done.stderr.strip()[-300:]}")
        return read_png(file)
