"""Has Open WebUI finish what it answers before it is stopped: ``quiet.py --url URL --within SECONDS``.

Nobody is let in any more: the switch shows its page. An answer goes on when its browser has gone, as a task of the
server, so that the tasks are waited for as well as the requests. With ``--close`` the page stays until the switch is
told to open, whatever becomes of the server, and connections that pages keep open are ended: nobody writes any more.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from client import POLL_S, AnswerError, Client, masked, passwords, technical_signed_in

ANSWER_S = 10.0
CONTROL = [
    "/usr/bin/python3",
    "-IS",
    "/usr/local/lib/switch/control.py",
    "--socket",
    "/run/switch-open-webui/control.sock",
]


def tasks(client: Client) -> int:
    """How many answers it is giving."""
    running = client.mapping("GET", "/api/tasks").get("tasks")
    if not isinstance(running, list):
        raise AnswerError("it does not say what it is answering")
    return len(running)


def wait(client: Client, deadline: float) -> int:
    """How many answers are not finished when the time is over."""
    if technical_signed_in(client) is None:
        raise AnswerError("its technical user cannot sign in, so that nobody knows what it is answering")
    while left := tasks(client):
        if time.monotonic() > deadline:
            return left
        time.sleep(POLL_S)
    return 0


def told(timeout_s: float, *words: str) -> None:
    """Have the switch do something; ``SubprocessError`` where it does not."""
    subprocess.run([*CONTROL, *words], check=True, timeout=timeout_s + ANSWER_S)


def finish(url: str, within_s: float, deadline: float) -> bool:
    """Wait for its answers, and say which are not finished; whether anything is known of them."""
    try:
        left = wait(Client(url, ANSWER_S, within_s), deadline)
    except (AnswerError, OSError) as error:
        sys.stderr.write(f"Unable to wait for its answers: {masked(str(error), passwords())}.\n")
        return False
    if left:
        sys.stderr.write(f"Not finished within {within_s:g} s, and ended all the same: {left} answers.\n")
    return True


def main() -> int:
    """The exit code; of one that is closed it says whether nobody writes any more."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--within", type=float, required=True)
    parser.add_argument("--close", action="store_true")
    asked = parser.parse_args()
    deadline = time.monotonic() + asked.within
    try:
        told(asked.within, "close" if asked.close else "away", "a", "--within", str(asked.within))
        is_known = finish(asked.url, asked.within, deadline)
        if asked.close:
            told(0, "hang-up", "a")
    except (OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"Unable to have the switch keep people out: {error}.\n")
        return 1
    return 0 if is_known or asked.close else 1


if __name__ == "__main__":
    sys.exit(main())
