"""The address of a client is heard from the host's proxy alone; no address takes the places of others."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from testinfra.host import Host

from tests.molecule.switch_scenario import CONTROL, ask, converged, get, post, put, raw_answer, status
from tests.waiting import PATIENCE_S

ATTACKERS = Path(__file__).resolve().parents[3] / "tests/attackers"
EACH = 100 + 3 + 28
"""Connections of one address: those that wait and that are answered in this scenario, and some more."""
ADDRESSES = [f"127.0.1.{number}" for number in range(1, 9)]
LASTS_S = 25
READERS = 10
PROMPT_S = 5
SAID = """
import socket, sys
connection = socket.create_connection((sys.argv[1], 8080), timeout=10)
connection.sendall(bytes.fromhex(sys.argv[2]))
answer = b""
try:
    while part := connection.recv(65536):
        answer += part
except OSError as error:
    answer += repr(error).encode()
print(answer.decode())
"""
HEADER = "PROXY TCP4 198.51.100.7 10.0.0.2 40000 8080\r\n"


@contextmanager
def attacked(host: Host, program: str, *words: str) -> Iterator[None]:
    """A program of ``tests/attackers`` runs meanwhile; it ends by itself."""
    put(host, f"/run/{program}", (ATTACKERS / program).read_text(encoding="utf-8"))
    command = f"python3 /run/{program} {' '.join(words)} > /run/{program}.said"
    host.check_output("systemd-run --quiet --unit %s -p LimitNOFILE=20000 sh -c %s", program, command)
    try:
        yield
    finally:
        ended = f"while systemctl is-active --quiet {program}; do sleep 0.5; done"
        host.check_output("timeout %s sh -c %s", str(LASTS_S + 60), ended)


def said(host: Host, address: str, request: str) -> str:
    """All that was answered at an address of this machine."""
    put(host, "/run/said.py", SAID)
    return str(host.check_output("python3 /run/said.py %s %s", address, request.encode().hex()))


def test_the_hosts_proxy_says_whose_connection_it_is(host: Host) -> None:
    answer = said(host, "127.0.0.2", HEADER + post({"parts": 1, "pause": 0}))
    assert status(answer) == 200
    assert '"forwarded": "198.51.100.7"' in said(host, "127.0.0.2", HEADER + get("/v1/models"))


def test_nobody_else_is_believed(host: Host) -> None:
    assert status(said(host, "127.0.0.1", HEADER + get("/v1/models"))) == 400
    forged = get("/v1/models").replace("Host", "X-Forwarded-For: 198.51.100.7\r\nHost", 1)
    assert "198.51.100.7" not in said(host, "127.0.0.1", forged)


def test_who_says_nothing_of_an_address_is_not_heard_where_it_is_to_be_said(host: Host) -> None:
    assert "HTTP/1.1 200" not in said(host, "127.0.0.2", get("/v1/models"))


def test_five_thousand_idle_connections_take_nobodys_place(host: Host) -> None:
    with attacked(host, "idle_connections.py", "8080", "5000", str(LASTS_S), *ADDRESSES):
        host.check_output(
            "timeout 20 sh -c %s",
            f"until [ $(ss -Htn state established sport = 8080 | wc -l) -ge {EACH} ]; do sleep 0.2; done",
        )
        became = [ask(host, post({"parts": 1, "pause": 0})) for _ in range(10)]
        assert status(raw_answer(host, get("/v1/models"))) == 200
    assert [status(answer) for _, answer in became] == [200] * 10
    assert max(took for took, _ in became) < PROMPT_S
    kept = json.loads(host.file("/run/idle_connections.py.said").content_string)
    assert set(kept) == set(ADDRESSES)
    assert max(kept.values()) <= EACH + 5, "one that was refused may count until its end is seen"


@pytest.fixture
def pages() -> Iterator[None]:
    """It stands before a web application meanwhile."""
    converged(answers=[], looks=[], pages=["/health", "/web/**"])
    yield
    converged()


@pytest.mark.usefixtures("pages")
def test_a_page_that_its_client_does_not_take_is_not_waited_for_and_an_answer_that_is_slow_is(host: Host) -> None:
    """Before a web application, when that is exchanged: the slow reader has twenty seconds, and not all of the time."""
    question = post({"parts": 15, "pause": 2}).replace("/v1/chat/completions", "/web/chat")
    answers: list[str] = []
    asking = threading.Thread(target=lambda: answers.append(raw_answer(host, question)), daemon=True)
    with attacked(host, "slow_readers.py", "8080", str(READERS), "80", "/web/large", ",".join(ADDRESSES)):
        asking.start()
        there = "$(ss -Htn state established dport = 18080 | wc -l)"
        host.check_output("timeout 20 sh -c %s", f"until [ {there} -gt {READERS} ]; do sleep 0.2; done")
        began = time.monotonic()
        told = host.run(f"{CONTROL} away a --within 90")
        took = time.monotonic() - began
        host.check_output(f"{CONTROL} ready a")
    asking.join(PATIENCE_S)
    assert (told.rc, told.stderr) == (0, "")
    assert 25 < took < 45, took
    assert '"finish_reason": "stop"' in answers[0], "an answer is not cut for want of tokens"
