"""Strangers without a key, through the real proxy device of a published port: who has the key notices nothing."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.integration.up.quickstart_lab import ENGINE_KEY, Lab
from tests.lab.incus import Lab as Incus
from tests.lab_files import lab_text
from tests.processes import completed, killed_at_end
from tests.waiting import wait_until

pytestmark = [pytest.mark.incus]

ATTACKERS = Path(__file__).resolve().parents[2] / "attackers"
PORT = 8080
ADDRESSES = [f"127.0.1.{number}" for number in range(1, 9)]
"""Of this machine, from which its published port is reached as from others of the LAN."""
LASTS_S = 1200
MOST_OF_ONE = 100
"""Of one address that are open for long."""
MOST_TIMES_SLOWER = 3
"""Measured alone it is 1.0 to 1.2: the attackers run on the same processors."""


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One engine that the LAN reaches, up."""
    lab = Lab(tmp_path_factory.mktemp("attacked"), incus_lab.environment, "debian/12", "debian/12", name="attacked")
    lab.write(lab_text("attacked"))
    with lab.brought_up():
        yield lab


@contextmanager
def attacked() -> Iterator[None]:
    """5,000 idle connections, 200 bodies that take long and 100 slow readers, from eight addresses, in the block."""
    slow = ["slow_bodies.py", str(PORT), "200", str(LASTS_S), "33554432", ",".join(ADDRESSES)]
    idle = ["idle_connections.py", str(PORT), "5000", str(LASTS_S), *ADDRESSES]
    reading = ["slow_readers.py", str(PORT), "100", str(LASTS_S), "/v1/models", ",".join(ADDRESSES)]
    with ExitStack() as stack:
        running = []
        for program, *words in (slow, idle, reading):
            command = [sys.executable, str(ATTACKERS / program), *words]
            running.append(stack.enter_context(killed_at_end(subprocess.Popen(command, stdout=subprocess.DEVNULL))))
        wait_until(lambda: connected() > MOST_OF_ONE * len(ADDRESSES) / 2)
        yield
        assert [one.poll() for one in running] == [None] * 3, "they went on until the end"


def connected() -> int:
    """Return how many connections to the published port there are."""
    said = completed(["ss", "-Htn", "state", "established", f"( sport = :{PORT} )"], timeout_s=30).stdout
    return len(said.splitlines())


def asked() -> float:
    """Return the seconds that an answer to who has the key took."""
    body = json.dumps({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {ENGINE_KEY}"}
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}/v1/chat/completions", body, headers)
    began = time.monotonic()
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
        assert answer.status == 200
        json.load(answer)
    return time.monotonic() - began


def test_who_has_the_key_notices_no_strangers(lab: Lab) -> None:
    alone = statistics.median(asked() for _ in range(20))
    with attacked():
        beside = statistics.median(asked() for _ in range(20))
        lab.succeeded("status")
        assert "No changes" in lab.succeeded("up", "--yes").out
        changed_while_asked(lab, 640)
    print(f"an answer took {alone:.3f} s alone, {beside:.3f} s beside strangers")  # noqa: T201  # shown by -rP
    assert beside < MOST_TIMES_SLOWER * alone


@pytest.mark.slow
def test_no_answer_is_cut_by_ten_changes_beside_strangers(lab: Lab) -> None:
    with attacked():
        answered = [changed_while_asked(lab, 704 + 64 * number) for number in range(10)]
    print(f"answers over ten changes: {answered}")  # noqa: T201  # shown by -rP


def changed_while_asked(lab: Lab, context: int) -> int:
    """Change the engine while who has the key asks it; return how many answers there were, all of which are whole."""
    lab.write(lab_text("attacked").replace("context: 512", f"context: {context}"))
    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        meanwhile = pool.submit(lambda: [asked() for _ in iter(over.is_set, True)])
        try:
            lab.succeeded("up", "--yes")
        finally:
            over.set()
        answered = len(meanwhile.result(60))  # the first one that was not answered is raised
    assert answered > 10
    return answered
