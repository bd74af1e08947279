"""Runs ``provision cluster …`` against a lab of corosync nodes as a user would, to its end or until it is killed."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from provisioner.cluster.record import Record, record_of
from tests.doubles.corosync.cluster import Cluster
from tests.processes import completed, killed_at_end

LIMIT_S = 900.0
PROGRAM = str(Path(sys.executable).parent / "provision")
PIECE = 24
"""Bytes of a key that are looked for: more than chance would write anywhere."""


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """Everything."""
        return self.out + self.err

    def lines(self, kind: str) -> list[dict[str, Any]]:
        """The lines of that type of a ``--json`` stream."""
        return [one for one in map(json.loads, self.out.splitlines()) if one["type"] == kind]


@dataclass
class Hand:
    """A user at a controller: ``home`` is where it keeps what it knows."""

    cluster: Cluster
    home: Path
    asked: str = "pve1"
    commands: set[str] = field(default_factory=set)

    @property
    def environment(self) -> dict[str, str]:
        """What the program is started with."""
        return {**os.environ, **self.cluster.environment, "XDG_STATE_HOME": str(self.home)}

    def rejoin(self, node: str, *options: str, host: str = "") -> Ended:
        """``provision cluster rejoin NODE HOST …``."""
        return self.run("cluster", "rejoin", node, self.host(host), *options)

    def restore(self, *arguments: str) -> Ended:
        """``provision cluster restore …``."""
        return self.run("cluster", "restore", *arguments)

    def host(self, name: str = "") -> str:
        """A node as the words of the command line."""
        return f"root@{self.cluster.node(name or self.asked).address}"

    def run(self, *arguments: str) -> Ended:
        """Run it to its end."""
        done = completed([PROGRAM, *arguments], env=self.environment, timeout_s=LIMIT_S)
        return Ended(done.returncode, done.stdout, done.stderr)

    def at_step(self, node: str, step: str, do: Callable[[subprocess.Popen[str]], None], *options: str) -> Ended:
        """Rejoin ``node``; when the step with that id begins ``do`` something; ``AssertionError``: it did not begin."""
        is_past = step in self.begun(node)  # in an attempt before: the record is fresh once this one begins its steps
        command = [PROGRAM, "cluster", "rejoin", node, self.host(), "--yes", "--json", *options]
        out = ""
        is_done = False
        with killed_at_end(
            subprocess.Popen(
                command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        ) as run:
            assert run.stdout
            assert run.stderr
            for line in run.stdout:
                out += line
                has_begun = step in self.begun(node)
                is_past = is_past and has_begun
                if has_begun and not is_past and not is_done:
                    is_done = True
                    do(run)
            err = run.stderr.read()
            run.wait(LIMIT_S)
        assert is_done, out + err
        return Ended(run.returncode, out, err)

    def kill_at(self, node: str, step: str, *options: str) -> None:
        """Rejoin ``node`` and kill it, as by pulling its plug, when that step begins."""
        ended = self.at_step(node, step, lambda run: run.send_signal(signal.SIGKILL), *options)
        assert ended.code == -signal.SIGKILL, ended.said
        self.wait_for_ansible()

    def wait_for_ansible(self) -> None:
        """Nothing of a killed run is left here."""
        deadline = time.monotonic() + LIMIT_S
        while any(str(self.home) in one for one in command_lines() if "ansible-playbook" in one):
            assert time.monotonic() < deadline, "ansible-playbook outlives the run that was killed"
            time.sleep(0.2)

    def records(self, node: str) -> list[Record]:
        """The records of all runs on the node, the oldest first."""
        found = sorted(self.home.glob(f"provisioner/clusters/*/*-{node}*/record.json"))
        return [record_of(one.read_text(encoding="utf-8")) for one in found]

    def begun(self, node: str) -> tuple[str, ...]:
        """The steps that were begun in the newest run on the node and in this attempt."""
        records = self.records(node)
        return tuple(one.id for one in records[-1].steps if one.status.name != "NOT_REACHED") if records else ()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note every command line on this machine meanwhile, in ``commands``."""
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(0.02):
                self.commands.update(command_lines())

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(LIMIT_S)


def command_lines() -> list[str]:
    """Those of all processes now."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue  # it has just ended
    return found


def forms(key: bytes) -> list[bytes]:
    """How a part of a key may look in a text: raw, in hexadecimal digits, in base64 at each of its three offsets."""
    piece = key[: 3 * PIECE]
    shifted = [base64.b64encode(piece[offset:])[:PIECE] for offset in range(3)]
    return [piece[:PIECE], piece.hex().encode(), piece.hex().upper().encode(), *shifted]
