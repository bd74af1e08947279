"""Waits until llama-server has given the answers that it is giving; systemd runs this before it ends the server.

``drain.py --within SECONDS``, with the server's process in ``$MAINPID``. llama-server itself stops in the middle of its
answers when it is told to end: streams stay silent for half a minute and then break off. Says on standard error what is
cut all the same when the time is over. Always exits with 0: the server ends now, whatever this program has found.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

POLL_S = 0.1
QUIET_LOOKS = 2
"""So many looks one after the other must find nothing: between two answers of a queue there may be a moment of rest."""
ANSWER_S = 10.0
"""How long the server may take to say what it does: it says so between two parts of its work."""
LARGEST_ANSWER = 16 * 2**20
TABLES = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
"""Not /proc/net, which a unit with ``ProcSubset=pid`` does not have."""
LISTENING = "0A"
LOCAL, STATE, QUEUES = 1, 3, 4
"""The columns of the kernel's tables of connections that count here."""


def words_of(pid: int) -> list[str]:
    """The words that a process was started with; none of one that is no more."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return line.decode(errors="surrogateescape").split("\0")


def said_last(words: Sequence[str], name: str) -> str:
    """What follows a name in a command; the last one counts, and nothing is said of one that is not there."""
    places = [place for place, word in enumerate(words[:-1]) if word == name]
    return words[places[-1] + 1] if places else ""


def key_in(file: Path) -> str:
    """The server's first key; nothing where it cannot be read: it then refuses to answer, and counts as busy."""
    try:
        return file.read_text(encoding="utf-8").partition("\n")[0].strip()
    except OSError:
        return ""


class Server:
    """A llama-server on this machine: one with a single model, or one that starts a server for each of several."""

    def __init__(self, port: int, key: str) -> None:
        self._port = port
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    def running(self) -> int:
        """How many answers are being computed; ``OSError`` where nobody listens or nothing was said in time."""
        return sum(self._computing(f"/slots{query}") for query in self._models())

    def _models(self) -> Iterator[str]:
        """What to add to an address for each model in memory; one that is not must not be loaded by a question."""
        listed = self._said("/v1/models")
        entries = listed.get("data", []) if isinstance(listed, dict) else []
        if not any("status" in entry for entry in entries):
            yield ""
        for entry in entries:
            if entry.get("status", {}).get("value") == "loaded":
                yield f"?model={quote(entry['id'], safe='')}"

    def _computing(self, path: str) -> int:
        slots = self._said(path)
        return sum(bool(slot.get("is_processing")) for slot in slots) if isinstance(slots, list) else 0

    def _said(self, path: str) -> Any:
        """The JSON that is answered; None of one that still loads its model, ``ValueError`` for any other refusal."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=ANSWER_S)
        try:
            connection.request("GET", path, headers=self._headers)
            answer = connection.getresponse()
            text = answer.read(LARGEST_ANSWER)
        finally:
            connection.close()
        if answer.status == http.client.SERVICE_UNAVAILABLE:
            return None
        if answer.status != http.client.OK:
            raise ValueError(f"{path} answers with {answer.status}")
        return json.loads(text)


def undelivered(port: int, tables: Sequence[Path] = TABLES) -> int:
    """How many connections to the port have bytes that the other side has not read, or that the server has not read.

    A slot is free as soon as its answer is computed: a slow reader may still wait for most of it. What the server has
    closed counts as well: the kernel delivers the rest, unless the container ends before.
    """
    count = 0
    for table in tables:
        if table == TABLES[1] and not table.exists():
            continue  # a kernel without IPv6
        lines = table.read_text(encoding="ascii").splitlines()
        count += sum(_has_waiting_bytes(line.split(), port) for line in lines[1:])
    return count


def _has_waiting_bytes(row: Sequence[str], port: int) -> bool:
    own_port = int(row[LOCAL].rpartition(":")[2], 16)
    return own_port == port and row[STATE] != LISTENING and row[QUEUES] != "00000000:00000000"


def going_on(server: Server, port: int) -> str:
    """What the server is doing for somebody; nothing where it is at rest."""
    try:
        unread = undelivered(port)
        computing = server.running()
    except ConnectionRefusedError:
        return ""  # it has not begun to listen, or has ended: it answers nobody
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"the server does not say what it does ({error})"
    if not computing and not unread:
        return ""
    return f"{computing} answers that are computed, {unread} connections with something unread"


def drained(server: Server, port: int, within_s: float) -> str:
    """Wait until nothing is being answered; what is still going on when the time is over, else nothing."""
    deadline = time.monotonic() + within_s
    quiet = 0
    while True:
        left = going_on(server, port)
        quiet = 0 if left else quiet + 1
        if quiet == QUIET_LOOKS or (left and time.monotonic() > deadline):
            return left
        time.sleep(POLL_S)


def main(words: Sequence[str]) -> None:
    """Wait, and say what is cut.

    What the unit says by now may be another port or key than the server was started with, so its own words count.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--within", type=float, required=True)
    asked = parser.parse_args(words)
    started_with = words_of(int(os.environ.get("MAINPID", "0")))
    port = said_last(started_with, "--port")
    if not port:
        return  # it has ended by itself
    key_file = said_last(started_with, "--api-key-file")
    key = key_in(Path(key_file)) if key_file else ""
    left = drained(Server(int(port), key), int(port), asked.within)
    if left:
        sys.stderr.write(f"Not drained within {asked.within:g} s, and ended all the same: {left}.\n")


if __name__ == "__main__":
    main(sys.argv[1:])
