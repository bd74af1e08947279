"""Has Open WebUI finish what it answers before it is stopped: ``quiet.py --url URL --within SECONDS``.

Nobody is let in any more: the switch shows its page. An answer goes on when its browser has gone, as a task of the
server, so that the tasks are waited for as well as the requests.
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


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--within", type=float, required=True)
    asked = parser.parse_args()
    deadline = time.monotonic() + asked.within
    left_alone = [*CONTROL, "away", "a", "--within", str(asked.within)]
    try:
        subprocess.run(left_alone, check=True, timeout=asked.within + ANSWER_S)
        left = wait(Client(asked.url, ANSWER_S, asked.within), deadline)
    except (AnswerError, OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"Unable to wait for its answers: {masked(str(error), passwords())}.\n")
        return 1
    if left:
        sys.stderr.write(f"Not finished within {asked.within:g} s, and ended all the same: {left} answers.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
