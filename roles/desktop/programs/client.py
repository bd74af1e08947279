"""A real RDP client on a screen that nobody sees: FreeRDP under Xvfb, both with a folder of their own."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from picture import Picture, read_framebuffer

WIDTH, HEIGHT = 1024, 768
PROGRAMS = ("xfreerdp3", "xfreerdp")
START_S = 20.0
END_S = 10.0
COOKIE = b"MIT-MAGIC-COOKIE-1"
ANY_FAMILY = 65535
LOCAL = "127.0.0.1"


@dataclass(frozen=True)
class Screen:
    """An X server in memory."""

    display: str
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """What a program needs to draw there, with a home of its own."""
        return {
            "DISPLAY": self.display,
            "XAUTHORITY": str(self.folder / "authority"),
            "HOME": str(self.folder),
            "PATH": os.environ.get("PATH", os.defpath),
            "LC_ALL": "C.UTF-8",
        }

    def picture(self) -> Picture:
        """What is drawn there now."""
        return read_framebuffer(self.folder / "Xvfb_screen0")


@contextmanager
def screen() -> Iterator[Screen]:
    """A screen that only its owner may draw on, and that is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="desktop-proof-", dir="/run"))
    cookie = secrets.token_bytes(16)
    parts = (b"", b"", COOKIE, cookie)
    entry = struct.pack(">H", ANY_FAMILY) + b"".join(struct.pack(">H", len(part)) + part for part in parts)
    (folder / "authority").write_bytes(entry)
    size = f"{WIDTH}x{HEIGHT}x24"
    reader, writer = os.pipe()
    command = ["Xvfb", "-displayfd", str(writer), "-screen", "0", size, "-nolisten", "tcp", "-noreset"]
    command += ["-auth", str(folder / "authority"), "-fbdir", str(folder)]
    with (folder / "Xvfb.log").open("wb") as log:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[writer])
    os.close(writer)
    try:
        with os.fdopen(reader) as told:
            number = told.readline().strip()
        if not number:
            raise OSError(f"Xvfb does not start: {(folder / 'Xvfb.log').read_text(errors='replace').strip()}")
        yield Screen(f":{number}", folder)
    finally:
        end(server)
        shutil.rmtree(folder)


@dataclass(frozen=True)
class Login:
    """A running client; ``code`` is None while it is connected."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def code(self) -> int | None:
        """Its exit code once it has ended."""
        return self.process.poll()

    def words(self) -> str:
        """The last thing that it complained of."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return next((line.rpartition(" - ")[2] for line in reversed(lines) if "[ERROR]" in line), "")


@contextmanager
def login(where: Screen, port: int, user: str, password: str, fingerprint: str) -> Iterator[Login]:
    """Log in; the password goes through a pipe, and the server must show that certificate. The end is a disconnect."""
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        raise OSError(f"no RDP client is installed ({' or '.join(PROGRAMS)})")
    command = [program, f"/v:{LOCAL}:{port}", f"/u:{user}", "/from-stdin:force", "/sec:tls", "/bpp:24", "/f"]
    # One version of the client compares with colons, the other without.
    accepted = ",".join(f"fingerprint:sha256:{text}" for text in (fingerprint, bytes.fromhex(fingerprint).hex(":")))
    command += [f"/cert:{accepted}", f"/size:{WIDTH}x{HEIGHT}", "-grab-keyboard", "/log-level:INFO"]
    log = where.folder / f"client-{time.monotonic_ns()}.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command, env=where.environment, cwd=where.folder, stdin=subprocess.PIPE, stdout=stream, stderr=stream
        )
    assert process.stdin is not None  # PIPE was asked for
    try:
        try:
            process.stdin.write(password.encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended already, and its exit code says why
        yield Login(process, log)
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End it politely, then not."""
    if process.stdin:
        process.stdin.close()
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
