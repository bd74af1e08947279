"""An engine that nobody asks is ended, and started by the next request; none is lost over it, and no look wakes it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from testinfra.host import Host

from tests.molecule.switch_scenario import (
    CONFIG,
    CONTROL,
    DROP_IN,
    ENGINE,
    SCENARIO,
    SOCKET,
    UNIT,
    ask,
    converged,
    get,
    post,
    put,
    state,
    status,
    wait_until_serving,
)

KEEPER = "switch-engine-keeper.service"
PROGRAM = "/usr/local/lib/switch/keeper.py"
MARKER = "/run/switch-engine-keeper/asleep"
STARTS = "/var/lib/switch-engine-keeper/starts"
COMMAND = f"python3 -BEsS {PROGRAM} --socket {SOCKET} --unit {ENGINE}"
ENDS_THE_QUEUE = "[Unit]\\nOnSuccess=switch-engine-gone.service\\nOnFailure=switch-engine-gone.service\\n"
"""As the units of roles say it: requests do not wait for an engine that was stopped by hand."""
LOADS_S = 1
ROUNDS = 6
SHORT = post({"parts": 2, "pause": 0})


@pytest.fixture(scope="module", autouse=True)
def _idle(host: Host) -> Iterator[None]:
    """The engine ends after a second of rest; later the scenario's own options hold again."""
    host.check_output(f"mkdir -p {DROP_IN} && printf '{ENDS_THE_QUEUE}' > {DROP_IN}/gone.conf")
    host.check_output(f"systemctl daemon-reload && systemctl restart {ENGINE}")
    converged(idle="1s")
    yield
    host.check_output(f"rm -rf {DROP_IN} && systemctl daemon-reload && systemctl restart {ENGINE}")
    converged()


@contextmanager
def changed(host: Host, file: str, edit: str, take_up: str) -> Iterator[None]:
    """The file is as ``sed`` makes it, and a command has what reads it take that up; later it is as it was."""
    host.check_output(f"sed -i.before '{edit}' {file} && {take_up}")
    try:
        yield
    finally:
        host.check_output(f"mv {file}.before {file} && {take_up} && systemctl restart {ENGINE}")
        wait_until_serving(host)


def wait_until(host: Host, condition: str) -> None:
    """Until a command of the shell succeeds."""
    host.check_output("timeout 60 sh -c %s", f"until {condition}; do sleep 0.05; done")


def fallen_asleep(host: Host) -> None:
    """Wait until the engine has ended because nobody asked it."""
    wait_until(host, f"test -e {MARKER} && [ $(systemctl is-active {ENGINE}) = inactive ]")


def starts(host: Host) -> int:
    """How often the engine was started so far."""
    return int(host.check_output(f"journalctl --quiet --output cat --unit {ENGINE} | grep -c '^Started '"))


def hammered(host: Host, *killed: str) -> dict[str, Any]:
    """What became of requests that came while the engine fell asleep (see ``hammer.py``)."""
    put(host, "/run/hammer.py", (SCENARIO / "hammer.py").read_text(encoding="utf-8"))
    return dict(json.loads(host.check_output(f"python3 /run/hammer.py 8080 {MARKER} {ROUNDS} {' '.join(killed)}")))


LOOKS = """
import collections, http.client, json, sys, time
seen = {}
for _ in range(int(sys.argv[1])):
    for path in ("/health", "/v1/models", "/slots", "/v1/chat/completions"):
        connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=20)
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        counts = seen.setdefault(path, [collections.Counter(), answer.headers["Retry-After"]])
        counts[0][answer.status] += 1
    time.sleep(0.1)
print(json.dumps(seen))
"""


def looks(host: Host, count: int) -> dict[str, Any]:
    """What each page answered to so many looks at it: how often each status, and its last Retry-After."""
    put(host, "/run/looks.py", LOOKS)
    return dict(json.loads(host.check_output(f"python3 /run/looks.py {count}")))


def test_looks_do_not_wake_it(host: Host) -> None:
    fallen_asleep(host)
    before = starts(host)
    looked = looks(host, 60)
    assert {path: counts[0] for path, counts in looked.items()} == {
        "/health": {"200": 60},
        "/v1/models": {"503": 60},
        "/slots": {"404": 60},
        "/v1/chat/completions": {"405": 60},
    }
    assert [counts[1] for path, counts in looked.items() if path == "/v1/models"] == ["10"]
    assert json.loads(ask(host, get("/health"))[1].partition("\r\n\r\n")[2]) == {"status": "asleep"}
    assert "The engine is asleep" in ask(host, get("/v1/models"))[1]
    assert starts(host) == before
    assert host.check_output(f"systemctl is-active {ENGINE} || true") == "inactive"


def test_one_without_the_key_is_refused_at_once_and_starts_nothing(host: Host) -> None:
    converged(idle="1s", key_sha256=[hashlib.sha256(b"key").hexdigest()])
    fallen_asleep(host)
    before = starts(host)
    took, answer = ask(host, SHORT)
    assert (status(answer), took < LOADS_S) == (401, True)
    assert starts(host) == before
    converged(idle="1s")


def test_the_next_request_wakes_it_and_its_start_is_noted(host: Host) -> None:
    fallen_asleep(host)
    host.check_output(f"rm -f {STARTS}")
    before = starts(host)
    took, answer = ask(host, SHORT)
    assert status(answer) == 200
    assert '"finish_reason": "stop"' in answer
    wait_until(host, f"test -s {STARTS}")
    noted = float(host.check_output(f"cat {STARTS}").split()[-1])
    assert LOADS_S <= noted < LOADS_S + 4
    assert took <= noted + 1
    assert starts(host) == before + 1
    assert not host.file(MARKER).exists
    assert status(ask(host, get("/v1/models"))[1]) == 200


def test_who_is_asked_stays(host: Host) -> None:
    assert status(ask(host, SHORT)[1]) == 200
    process = host.check_output(f"systemctl show --value -p MainPID {ENGINE}")
    answer = ask(host, post({"parts": 40, "pause": 0.1}))[1]
    assert '"finish_reason": "stop"' in answer
    assert host.check_output(f"systemctl show --value -p MainPID {ENGINE}") == process


def test_no_request_is_lost_that_comes_while_it_falls_asleep(host: Host) -> None:
    """However often it is woken, systemd does not take that for an engine that fails."""
    limit = "[Unit]\\nStartLimitIntervalSec=600\\nStartLimitBurst=3\\n"
    host.check_output(f"printf '{limit}' > {DROP_IN}/limit.conf && systemctl daemon-reload")
    before = starts(host)
    became = hammered(host)
    host.check_output(f"rm {DROP_IN}/limit.conf && systemctl daemon-reload")
    assert set(became) == {"whole", "slowest"}, became
    assert became["whole"] == 3 * ROUNDS
    assert starts(host) >= before + ROUNDS // 2


def test_nor_where_its_keeper_is_killed_at_any_moment(host: Host) -> None:
    became = hammered(host, KEEPER)
    assert set(became) == {"whole", "slowest"}, became
    assert became["whole"] == 3 * ROUNDS


def test_without_the_note_that_it_is_asleep_requests_are_refused(host: Host) -> None:
    """The gate can fail: an engine that ends without it is taken for one that does not come again."""
    with changed(host, PROGRAM, "/self._note_asleep()$/d", f"systemctl restart {KEEPER}"):
        wait_until(host, f"[ $(systemctl is-active {ENGINE}) = inactive ]")
        wait_until(host, f"! {CONTROL} state | grep -q '\"may_wait\": true'")
        assert status(ask(host, SHORT)[1]) == 503


def test_a_switch_that_hands_looks_on_to_the_queue_wakes_it(host: Host) -> None:
    """The gate can fail: the same looks start the engine where they count as requests."""
    fallen_asleep(host)
    before = starts(host)
    edit = "s/default_backend looks-a/default_backend answers/; /srv_is_up(asleep/d"
    with changed(host, CONFIG, edit, f"systemctl reload {UNIT}"):
        assert starts(host) == before
        looks(host, 1)
        assert starts(host) > before


def test_a_keeper_that_was_killed_before_it_stopped_the_engine_takes_its_note_back(host: Host) -> None:
    host.check_output(f"systemctl stop {KEEPER} && systemctl restart {ENGINE}")
    wait_until_serving(host)
    host.check_output(f"{COMMAND} wake --within 60; echo '{{}}' > {MARKER} && {CONTROL} drain a")
    host.check_output(f"systemctl start {KEEPER}")
    wait_until_serving(host)
    assert not host.file(MARKER).exists
    assert status(ask(host, SHORT)[1]) == 200
    host.check_output(f"{COMMAND} rest")


def test_one_whose_keeper_was_ended_before_it_stopped_it_is_in_service_once_it_is_woken(host: Host) -> None:
    host.check_output(f"systemctl stop {KEEPER} && systemctl restart {ENGINE}")
    wait_until_serving(host)
    host.check_output(f"echo '{{}}' > {MARKER} && {CONTROL} drain a")
    host.check_output(f"{COMMAND} wake --within 0")
    wait_until_serving(host)
    assert not host.file(MARKER).exists
    host.check_output(f"systemctl start {KEEPER}")


def test_one_that_is_started_by_hand_is_awake(host: Host) -> None:
    fallen_asleep(host)
    host.check_output(f"systemctl start {ENGINE}")
    assert not host.file(MARKER).exists
    wait_until_serving(host)
    assert state(host)["asleep"] is False
    fallen_asleep(host)


def test_one_that_is_stopped_by_hand_stays_so(host: Host) -> None:
    host.check_output(f"systemctl restart {ENGINE} && {COMMAND} wake --within 60")
    wait_until_serving(host)
    host.check_output(f"systemctl stop {ENGINE}")
    wait_until(host, f"! {CONTROL} state | grep -q '\"may_wait\": true'")
    took, answer = ask(host, SHORT)
    assert (status(answer), took < 2) == (503, True)
    host.check_output(f"{COMMAND} wake --within 0")
    assert host.check_output(f"systemctl is-active {ENGINE} || true") == "inactive"
    host.check_output(f"systemctl start {ENGINE}")


def test_it_stays_while_it_is_proved_and_ends_later(host: Host) -> None:
    fallen_asleep(host)
    host.check_output(f"{COMMAND} wake --within 60")
    wait_until_serving(host)
    process = host.check_output(f"systemctl show --value -p MainPID {ENGINE}")
    host.check_output("sleep 4")
    assert host.check_output(f"systemctl show --value -p MainPID {ENGINE}") == process
    host.check_output(f"{COMMAND} rest")
    fallen_asleep(host)


@pytest.mark.parametrize("verb", ["restart", "reload"])
def test_a_new_process_of_the_switch_knows_that_it_is_asleep(host: Host, verb: str) -> None:
    fallen_asleep(host)
    before = starts(host)
    host.check_output(f"systemctl {verb} {UNIT}")
    wait_until(host, f"{CONTROL} state | grep -q '\"asleep\": true'")
    assert (status(ask(host, get("/health"))[1]), starts(host)) == (200, before)
    assert status(ask(host, SHORT)[1]) == 200


def test_nobody_waits_for_one_that_cannot_start(host: Host) -> None:
    fallen_asleep(host)
    broken = "[Service]\\nExecStart=\\nExecStart=/bin/false\\nRestart=no\\n"
    host.check_output(f"printf '{broken}' > {DROP_IN}/broken.conf && systemctl daemon-reload")
    took, answer = ask(host, SHORT)
    host.check_output(f"rm {DROP_IN}/broken.conf && systemctl daemon-reload")
    assert (status(answer), took < 10) == (503, True)
    assert not host.file(MARKER).exists
    assert host.check_output(f"systemctl is-active {ENGINE} || true") == "failed"
    host.check_output(f"systemctl start {ENGINE}")


def test_its_keeper_may_do_little(host: Host) -> None:
    exposure = host.check_output(f"systemd-analyze security {KEEPER} | tail -n 1")
    assert float(exposure.split(": ")[1].split()[0]) <= 3.0, exposure
    assert host.file(MARKER.rpartition("/")[0]).mode == 0o700


def test_one_that_nobody_keeps_any_more_is_awake(host: Host) -> None:
    fallen_asleep(host)
    converged()
    assert host.check_output(f"systemctl is-active {ENGINE}") == "active"
    assert not host.file(f"/etc/systemd/system/{KEEPER}").exists
    assert host.check_output(f"systemctl show --value --property=LoadState {KEEPER}") == "not-found"
    host.check_output("sleep 3")
    assert state(host)["slots"]["a"]["status"] == "UP"
