"""Two engines that share a card, in two containers: one at a time has it, and no request is lost over it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host

from provisioner.values.errors import ProviderError
from tests.molecule.switch_scenario import ENGINE, SOCKET, UNIT, get, put, raw_answer, status
from tests.waiting import PATIENCE_S

SCENARIO = Path(__file__).resolve().parents[1]
KEEPER = "switch-engine-keeper.service"
FIRST, SECOND = "molecule-switch-turns-a.incus:8080", "molecule-switch-turns-b.incus:8080"
KEY = "the-key-of-those-who-share"
KEY_FILE = "/etc/switch-engine.turns-key"
DROP_IN = f"/etc/systemd/system/{ENGINE}.d/turns.conf"
MARKER = "/run/switch-engine-keeper/asleep"
HOLD_S = 2.0
"""``switch_hold`` of the scenario."""
LATEST_S = 2.0
"""So much longer an engine may stay than it has to: its running answers are finished first."""


@pytest.fixture(scope="module")
def host(container: Callable[[str], Host]) -> Host:
    """One of both; all tests are about both of them."""
    return container("molecule-switch-turns-a")


@pytest.fixture(scope="module")
def second(container: Callable[[str], Host]) -> Host:
    """The other container."""
    return container("molecule-switch-turns-b")


@pytest.fixture(autouse=True)
def _well(host: Host, second: Host) -> None:
    """Each test finds both at work; an engine that was stopped by hand would stay so."""
    for one in (host, second):
        one.check_output(f"systemctl reset-failed {UNIT} {KEEPER} {ENGINE} && systemctl start {UNIT} {KEEPER}")
        one.check_output(f"test -e {MARKER} || systemctl start {ENGINE}")


def asked(host: Host, count: int, pause: float, *addresses: str) -> list[dict[str, Any]]:
    """What became of so many requests to these in turn."""
    put(host, "/run/ask.py", (SCENARIO / "ask.py").read_text(encoding="utf-8"))
    return list(json.loads(host.check_output(f"python3 /run/ask.py {count} {pause} {' '.join(addresses)}")))


def outcomes(requests: list[dict[str, Any]]) -> Counter[str]:
    """How often each."""
    return Counter(one["outcome"] for one in requests)


def lines(host: Host, unit: str, since: float) -> list[tuple[float, str]]:
    """What was said of a unit since then, by it and by systemd, with the seconds of each."""
    shown = host.check_output(f"journalctl --quiet --output json --since @{since:.3f} --unit {unit}")
    told = [json.loads(line) for line in shown.splitlines()]
    return [(int(line["__REALTIME_TIMESTAMP"]) / 1e6, str(line["MESSAGE"])) for line in told]


def runs(host: Host, since: float) -> list[tuple[float, float]]:
    """From when to when the engine ran; to infinity where it still does."""
    found: list[tuple[float, float]] = []
    for moment, words in lines(host, ENGINE, since):
        if words.startswith("Started "):
            found.append((moment, float("inf")))
        elif found and found[-1][1] == float("inf") and re.match("Stopped |.*Deactivated|.*Main process exited", words):
            found[-1] = (found[-1][0], moment)
    return found


def stays(host: Host, since: float) -> list[float]:
    """How long the engine served each time that it was woken and let another have the card."""
    began, found = None, []
    for moment, words in lines(host, KEEPER, since):
        if "answers after" in words:
            began = moment
        elif "the card is" in words and began is not None:
            found.append(moment - began)
            began = None
    return found


def overlaps(host: Host, second: Host, since: float) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """The times at which both ran."""
    every = sorted([*runs(host, since), *runs(second, since)])
    return [(one, other) for one, other in pairwise(every) if other[0] < one[1]]


def is_active(host: Host) -> bool:
    """Whether its engine runs."""
    return str(host.run(f"systemctl is-active {ENGINE}").stdout).strip() == "active"


def first_process(host: Host) -> str:
    """When the container's first process began: another moment after each start of the container."""
    return str(host.check_output("cut -d' ' -f22 /proc/1/stat"))


def is_up(host: Host, before: str) -> bool:
    """Whether a container has been started anew, and has come as far as its keeper; meanwhile it runs no command."""
    try:
        return first_process(host) != before and host.run(f"systemctl is-active {KEEPER}").rc == 0
    except (ProviderError, AssertionError):
        return False


def until(condition: Callable[[], bool], within_s: float, what: str) -> float:
    """How long it took until something was so."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < within_s, f"not within {within_s:g} s: {what}"
        time.sleep(0.1)
    return time.monotonic() - began


@contextmanager
def changed(host: Host, file: str, edit: str, take_up: str) -> Iterator[None]:
    """The file is as ``sed`` makes it; later it is as it was."""
    host.check_output(f"cp -p {file} /run/before && sed -i '{edit}' {file} && {take_up}")
    try:
        yield
    finally:
        host.check_output(f"cp -p /run/before {file} && {take_up}")


def test_forty_requests_that_alternate_are_answered_and_each_stay_is_as_told(host: Host, second: Host) -> None:
    began = time.time()
    requests = asked(host, 40, 0.4, FIRST, SECOND)
    assert outcomes(requests) == {"whole": 40}
    assert overlaps(host, second, began - 60) == []
    for one in (host, second):
        stayed = stays(one, began)
        assert stayed, "it has let the other one have the card"
        assert all(HOLD_S - 0.2 < stay < HOLD_S + LATEST_S for stay in stayed), stayed


def test_of_two_that_ask_one_after_the_other_each_waits_for_one_stay(host: Host, second: Host) -> None:
    began = time.time()
    requests = [one for _ in range(2) for address in (FIRST, SECOND) for one in asked(host, 1, 0, address)]
    assert outcomes(requests) == {"whole": 4}
    assert overlaps(host, second, began - 60) == []
    assert max(one["ended"] - one["began"] for one in requests) < HOLD_S + LATEST_S + 5


def test_one_that_nobody_waits_for_keeps_the_card(host: Host, second: Host) -> None:
    began = time.time()
    for address in (SECOND, FIRST, SECOND):
        asked(host, 1, 0, address)
    time.sleep(HOLD_S + LATEST_S + 2)  # nothing is to happen
    assert is_active(second)
    assert runs(second, began)[-1][1] == float("inf")
    assert len(stays(second, began)) <= 1


def test_killed_keepers_and_switches_of_both_lead_to_no_two_engines(host: Host, second: Host) -> None:
    """A switch that is killed cuts what it hands on, which is counted apart: that is no matter of turns."""
    began = time.time()
    for pause, one in ((0.3, host), (1.9, second)):
        one.check_output(
            f"systemd-run --quiet --collect sh -c 'sleep {pause}; for _ in 1 2 3; do"
            f" systemctl kill --signal=KILL {KEEPER}; sleep 4; done'"
        )
    requests = asked(host, 40, 0.4, FIRST, SECOND)
    assert outcomes(requests) == {"whole": 40}
    assert overlaps(host, second, began - 60) == []
    for one in (host, second):
        one.check_output(f"systemctl kill --signal=KILL {UNIT}")
    assert outcomes(asked(host, 6, 1.0, FIRST, SECOND))["whole"] >= 4
    assert overlaps(host, second, began - 60) == []


def test_a_start_by_hand_waits_for_its_turn(host: Host, second: Host) -> None:
    asked(host, 1, 0, FIRST)
    assert is_active(host)
    began = time.time()
    second.check_output(f"systemctl start {ENGINE}")
    assert is_active(second)
    assert not is_active(host)
    assert overlaps(host, second, began - 60) == []


def test_after_a_start_of_both_containers_nobody_runs_until_somebody_asks(host: Host, second: Host) -> None:
    before = [first_process(one) for one in (host, second)]
    for one in (host, second):
        one.run("systemctl reboot")
    for one, was in zip((host, second), before, strict=True):
        until(lambda one=one, was=was: is_up(one, was), 60, "its keeper after a new start")  # type: ignore[misc]
        until(lambda one=one: one.file(MARKER).exists, 30, "it counts as asleep")  # type: ignore[misc]
        assert not is_active(one)
        assert not one.run(f"systemctl is-failed --quiet {ENGINE}").succeeded
    assert outcomes(asked(host, 1, 0, SECOND)) == {"whole": 1}
    assert is_active(second)
    assert not is_active(host)


def test_one_whose_switch_and_engine_are_gone_is_not_waited_for(host: Host, second: Host) -> None:
    asked(host, 1, 0, SECOND)
    second.check_output(f"systemctl stop {KEEPER} {UNIT} {ENGINE}")
    try:
        requests = asked(host, 1, 0, FIRST)
        assert outcomes(requests) == {"whole": 1}
        assert requests[0]["ended"] - requests[0]["began"] < 15
        assert "b/engine takes no part" in host.check_output(f"journalctl --unit {KEEPER} -n 5")
    finally:
        second.check_output(f"systemctl start {UNIT} {KEEPER}")
    second.check_output(f"systemctl start {ENGINE}")  # who has stopped it by hand starts it by hand
    assert outcomes(asked(host, 2, 0.1, FIRST, SECOND)) == {"whole": 2}


def test_another_key_gets_nothing(host: Host, second: Host) -> None:
    asked(host, 1, 0, FIRST)
    with changed(second, KEY_FILE, "s/the/another/", f"systemctl restart {KEEPER}"):
        began = time.time()
        put(second, "/run/ask.py", (SCENARIO / "ask.py").read_text(encoding="utf-8"))
        second.check_output(f"systemd-run --quiet --unit asks -p RemainAfterExit=yes python3 /run/ask.py 1 0 {SECOND}")
        until(lambda: "HTTP 403" in second.check_output(f"journalctl --unit {KEEPER} -n 3"), 10, "it is refused")
        time.sleep(HOLD_S + LATEST_S)  # nothing is to happen
        assert not is_active(second)
        assert stays(host, began) == []
        assert is_active(host)
    until(lambda: '"outcome": "whole"' in second.check_output("journalctl --unit asks --output cat"), 30, "an answer")
    second.check_output("systemctl stop asks")


def test_two_that_have_the_card_find_that_out(host: Host, second: Host) -> None:
    """They could not reach each other for a while, and each took the other for stopped."""
    asked(host, 1, 0, FIRST)
    with changed(second, DROP_IN, "s/^ExecCondition/#&/", "systemctl daemon-reload"):
        second.check_output(f"systemctl start {ENGINE} && systemctl restart {KEEPER}")
        assert is_active(host)
        assert is_active(second)
        until(lambda: not is_active(second), 30, "the later one makes way")
    assert is_active(host)
    assert "the card is a/engine's now" in second.check_output(f"journalctl --unit {KEEPER} -n 3")


def test_without_asking_both_would_run(host: Host, second: Host) -> None:
    """What the others hold to: the tests of this file see two engines that run at once."""
    asked(host, 1, 0, FIRST)
    began = time.time()
    with changed(second, DROP_IN, "s/^ExecCondition/#&/", "systemctl daemon-reload"):
        second.check_output(f"systemctl start {ENGINE}")
        assert len(overlaps(host, second, began - 60)) == 1
        second.check_output(f"systemctl stop {ENGINE}")


def converged(**options: Any) -> None:
    """The role on both with other options than the scenario's."""
    command = ["ansible-playbook", "--inventory", os.environ["MOLECULE_INVENTORY_FILE"], str(SCENARIO / "converge.yml")]
    words = ["--extra-vars", json.dumps(options)]
    done = subprocess.run([*command, *words], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


def test_turns_are_ended_and_taken_up_while_both_are_asked(host: Host, second: Host) -> None:
    """The second answers as before while the first knows of turns already."""
    with ThreadPoolExecutor(1) as pool:
        for options, running in (({"switch_share": []}, 2), ({}, 1)):
            asking = pool.submit(asked, host, 100, 0.5, FIRST, SECOND)
            converged(**options)
            assert outcomes(asking.result(PATIENCE_S)) == {"whole": 100}
            assert is_active(host) + is_active(second) == running
    began = time.time()
    assert outcomes(asked(host, 10, 0.4, FIRST, SECOND)) == {"whole": 10}
    assert overlaps(host, second, began) == []
    for file in (DROP_IN, f"/etc/systemd/system/{UNIT}.d/turns.conf"):
        assert [one.file(file).exists for one in (host, second)] == [True, True]


RELEASE = "POST /release HTTP/1.1\r\nHost: engine\r\nConnection: close\r\n"
BODY = json.dumps({"from": "b/engine", "count": 1, "holds": False})


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (f"{RELEASE}Content-Length: {len(BODY)}\r\n\r\n{BODY}", 403),
        (f"{RELEASE}Authorization: Bearer no\r\nContent-Length: {len(BODY)}\r\n\r\n{BODY}", 403),
        (f"{RELEASE}Authorization: Bearer {KEY}\r\nContent-Length: 2\r\n\r\n[]", 400),
        (f"{RELEASE}Authorization: Bearer {KEY}\r\nContent-Length: 5000\r\n\r\n{' ' * 5000}", 413),
        (f"{RELEASE}Authorization: Bearer {KEY}\r\n\r\n", 411),
        (f"{RELEASE}Authorization: Bearer {KEY}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (get("/release"), 405),
        (RELEASE.replace("/release", "/claim") + "Content-Length: 2\r\n\r\n{}", 404),
        (RELEASE.replace("/release", "/release/") + "Content-Length: 2\r\n\r\n{}", 404),
        (RELEASE.replace("/release", "/RELEASE") + "Content-Length: 2\r\n\r\n{}", 404),
        (RELEASE.replace("/release", "//release") + "Content-Length: 2\r\n\r\n{}", 404),
        (RELEASE.replace("/release", "/release?x=1") + f"Content-Length: {len(BODY)}\r\n\r\n{BODY}", 404),
    ],
)
def test_strangers_cannot_take_the_card(host: Host, request_: str, said: int) -> None:
    before = is_active(host)
    assert status(raw_answer(host, request_)) == said
    assert is_active(host) == before


def test_the_key_is_in_no_list_of_processes_and_no_journal(host: Host) -> None:
    asked(host, 2, 0.1, FIRST, SECOND)
    assert host.file(KEY_FILE).mode == 0o600
    assert KEY in host.file(KEY_FILE).content_string
    for shown in (
        "ps axww -o args=",
        "journalctl --no-pager",
        "cat /etc/switch-engine.cfg /etc/systemd/system/*.service /etc/systemd/system/engine.service.d/*",
        f"systemctl show {KEEPER} {ENGINE} {UNIT}",
    ):
        assert KEY not in host.check_output(shown)


def test_the_keeper_reaches_no_network_and_only_root_its_control(host: Host) -> None:
    assert host.check_output(f"systemctl show --property=PrivateNetwork --value {KEEPER}") == "yes"
    assert host.file(SOCKET).mode == 0o600
    asks = host.file("/run/switch-engine-keeper/turns.sock")
    assert (asks.user, asks.group, asks.mode) == ("root", "haproxy", 0o660)


def test_while_nobody_asks_it_costs_next_to_nothing(host: Host, second: Host) -> None:
    asked(host, 1, 0, FIRST)
    ticks = f"cut -d' ' -f14,15 /proc/$(systemctl show --property=MainPID --value {KEEPER})/stat"

    def used(one: Host) -> float:
        return sum(int(word) for word in one.check_output(ticks).split()) / 100

    before = [used(one) for one in (host, second)]
    time.sleep(10)
    spent = [used(one) - was for one, was in zip((host, second), before, strict=True)]
    assert max(spent) < 0.25, f"{spent} CPU seconds in 10 s"
