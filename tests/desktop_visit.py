"""Sits down before a desktop as its user does, in the container, with the role's own programs; JSON in, JSON out.

Asked: ``user``, ``password``, ``port``, ``certificate``, ``limit`` (seconds for each picture). Perhaps ``file``, an RDP
file that says where and as whom, or ``words``, all that FreeRDP is told but the password; ``fields``, the page that
Firefox has to show once the launcher on the desktop is clicked; ``run``, a shell command in the session; ``stay``, at
most so many seconds without a hand on mouse or keys.
Answers: ``panel`` (seconds, null without panels), ``code`` (the client's, null while it was connected), ``shows`` (what
the last picture was judged to show), ``words`` (the client's last) and what was asked for: ``page`` (seconds), ``said``
(of the command), ``stayed`` (seconds).
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, "/usr/local/lib/desktop")
client, judge, prove, sessions, tls = (
    importlib.import_module(name) for name in ("client", "judge", "prove", "sessions", "tls")
)
LEFT_BUTTON = 1
ICONS = 200
"""Columns at the left within which the file manager draws its icons."""
FLAME = ((230, 256), (90, 200), (0, 90))
"""Red, green and blue of what is orange in Firefox' icon, and in no other one."""


def main() -> None:
    """Do what is asked, and say what was seen."""
    asked = json.load(sys.stdin)
    answer: dict[str, Any] = {}
    fingerprint = tls.fingerprint_of(Path(asked["certificate"]))
    limit = float(asked["limit"])
    prove.until(lambda: tls.is_open(client.LOCAL, asked["port"]), limit)  # its container may have been started just now
    with client.screen() as screen, login(screen, asked, fingerprint) as running:
        answer["panel"] = prove.until(lambda: judge.kind(screen.picture()) == "mate" or running.code is not None, limit)
        if running.code is None and answer["panel"] is not None:
            answer |= done(screen, running, asked, limit)
        answer |= {"code": running.code, "shows": judge.kind(screen.picture()), "words": running.words()}
    json.dump(answer, sys.stdout)


def done(screen: Any, running: Any, asked: dict[str, Any], limit: float) -> dict[str, Any]:
    """What was asked for beside the login."""
    answer: dict[str, Any] = {}
    if "fields" in asked:
        double_click(screen, *launcher(prove.calm(screen)))
        answer["page"] = prove.until(lambda: judge.shows(screen.picture(), asked["fields"]), limit)
    if "run" in asked:
        answer["said"] = said_in_session(asked["user"], asked["run"])
    if "stay" in asked:
        began = time.monotonic()
        prove.until(lambda: running.code is not None, float(asked["stay"]))
        answer["stayed"] = round(time.monotonic() - began, 1)
    return answer


@contextmanager
def login(screen: Any, asked: dict[str, Any], fingerprint: str) -> Iterator[Any]:
    """The client of the proof, or one that is given nothing but the file, the password and the certificate's mark."""
    if not {"file", "words"} & asked.keys():
        with client.login(screen, asked["port"], asked["user"], asked["password"], fingerprint) as running:
            yield running
        return
    program = next(found for name in client.PROGRAMS if (found := shutil.which(name)))
    marks = ",".join(f"fingerprint:sha256:{text}" for text in (fingerprint, bytes.fromhex(fingerprint).hex(":")))
    # With more than 24 bits pictures come packed with losses, which the judge of panels does not know.
    words = [*asked["words"], "/bpp:24"] if "words" in asked else [asked["file"], "/from-stdin:force", f"/cert:{marks}"]
    command = [program, *words, "-grab-keyboard", "/log-level:INFO"]
    log = screen.folder / "file.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command, env=screen.environment, cwd=screen.folder, stdin=subprocess.PIPE, stdout=stream, stderr=stream
        )
    assert process.stdin is not None
    try:
        process.stdin.write(asked["password"].encode() + b"\n")
        process.stdin.flush()
        yield client.Login(process, log)
    finally:
        client.end(process)


def launcher(picture: Any) -> tuple[int, int]:
    """The middle of the browser's icon on the desktop."""
    numbers, width = picture.numbers(), picture.width
    places = [
        (place % width, place // width)
        for place, number in enumerate(numbers)
        if place % width < ICONS and is_flame(judge.colour_of(number))
    ]
    if not places:
        raise ValueError("there is no launcher on the desktop")
    across, down = (sum(each) // len(places) for each in zip(*places, strict=True))
    return across, down


def is_flame(colour: tuple[int, int, int]) -> bool:
    """Whether the colour is that of the icon."""
    return all(low <= channel < high for channel, (low, high) in zip(colour, FLAME, strict=True))


def double_click(screen: Any, x: int, y: int) -> None:
    """Move the client's mouse there and press twice, through the X server that the client draws on."""
    os.environ.update(screen.environment)
    x11, test = ctypes.CDLL("libX11.so.6"), ctypes.CDLL("libXtst.so.6")
    x11.XOpenDisplay.restype = ctypes.c_void_p
    display = ctypes.c_void_p(x11.XOpenDisplay(None))
    act: Callable[..., Any] = test.XTestFakeMotionEvent
    act(display, -1, x, y, 0)
    x11.XSync(display, 0)
    for is_down in (1, 0, 1, 0):
        test.XTestFakeButtonEvent(display, LEFT_BUTTON, is_down, ctypes.c_ulong(50))
        x11.XSync(display, 0)
    x11.XCloseDisplay(display)


def said_in_session(user: str, command: str) -> str:
    """What a shell command says that is run as the user, with what the session's programs have in their environment."""
    leader = sessions.Process(prove.own(user).leader)
    run = ["/usr/sbin/runuser", "-u", user, "--", "sh", "-c", command]
    return subprocess.run(
        run, env=dict(leader.environment), capture_output=True, text=True, check=True, timeout=60
    ).stdout


if __name__ == "__main__":
    main()
