"""The switch loses nothing while its engine is exchanged, and passes nothing that is not on its list."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host

from tests.attackers import two_ways
from tests.molecule.counted import counted, kept
from tests.molecule.switch_scenario import (
    CONFIG,
    CONTROL,
    DROP_IN,
    ENGINE,
    SCENARIO,
    SOCKET,
    UNIT,
    ask,
    assert_refused,
    converged,
    get,
    post,
    put,
    raw_answer,
    run_playbook,
    seen_by_the_engine,
    state,
    status,
    wait_for,
    wait_until_serving,
)
from tests.waiting import PATIENCE_S

PARALLEL = 3
LOADS_S = 8
RELOADS = 10
MOST_ADDED_MS = 20
"""Measured are 0.3, and 200 where HAProxy waits for acknowledgements."""
TELL = """
import socket, sys
control = socket.socket(socket.AF_UNIX)
control.connect(sys.argv[1])
control.sendall(sys.argv[2].encode() + b"\\n")
"""


@pytest.fixture
def as_before(host: Host) -> Iterator[None]:
    """Whatever the test does, the scenario's own options hold afterwards."""
    yield
    host.check_output(f"rm -rf {DROP_IN} && systemctl daemon-reload && systemctl restart {ENGINE}")
    converged()


def have_it_load_for(host: Host, seconds: int) -> None:
    """From its next start on the engine loads for so long."""
    command = f"/usr/bin/python3 /usr/local/lib/engine.py --port 18080 --loads {seconds}"
    loads = f"[Service]\\nExecStart=\\nExecStart={command}\\n"
    host.check_output(f"mkdir -p {DROP_IN} && printf '{loads}' > {DROP_IN}/loads.conf && systemctl daemon-reload")


def test_it_is_bound_as_told_and_controlled_by_root_alone(host: Host) -> None:
    listening = host.check_output("ss -Hltn | awk '{print $4}' | sort -u").split()
    assert [place for place in listening if place.endswith((":8080", ":18080"))] == [
        "127.0.0.1:18080",
        "127.0.0.1:8080",
        "127.0.0.2:8080",
    ]
    assert len(host.check_output("ss -Hltnp | grep haproxy").splitlines()) == 2
    assert host.file(SOCKET).mode == 0o600
    assert host.file("/run/switch-engine").mode == 0o700
    owner = host.check_output(f"ps -o user= -p $(systemctl show --value -p MainPID {UNIT})")
    assert owner == host.file("/run/switch-engine").user == "haproxy"
    own = host.service("haproxy.service")
    assert (own.is_running, own.is_enabled) == (False, False)
    exposure = host.check_output(f"systemd-analyze security {UNIT} | tail -n 1")
    assert float(exposure.split(": ")[1].split()[0]) <= 3.0, exposure


def nothing() -> None:
    """What happens where nothing happens."""


def test_the_engine_gets_no_more_at_once_than_it_computes(host: Host) -> None:
    host.check_output(f"systemctl restart {ENGINE}")
    wait_until_serving(host)
    became = counted(host, nothing, 8080, "numbered")
    assert set(became) == {"whole", "slowest"}, became
    assert seen_by_the_engine(host)["most"] == PARALLEL


def test_nothing_is_lost_over_exchanges(host: Host) -> None:
    seen = []

    def exchange() -> None:
        for _ in range(3):
            host.check_output(f"systemctl restart {ENGINE}")
            wait_until_serving(host)
            host.check_output("sleep 1")
            seen.append(seen_by_the_engine(host))

    became = counted(host, exchange, 8080, "numbered")
    assert set(became) == {"whole", "slowest"}, became
    assert became["whole"] > 50
    assert [one["early"] for one in seen] == [0, 0, 0]
    assert max(one["most"] for one in seen) <= 2 * PARALLEL  # HAProxy 2.6, at the moment of coming into service
    assert len({one["engine"] for one in seen}) == 3


def test_without_the_switch_the_same_load_loses_answers(host: Host) -> None:
    became = counted(host, lambda: host.run(f"systemctl restart {ENGINE}"), 18080, "numbered")
    assert set(became) - {"whole", "slowest"}, became
    wait_until_serving(host)


@pytest.mark.usefixtures("as_before")
def test_without_the_drain_running_answers_are_cut(host: Host) -> None:
    host.check_output(f"mkdir -p {DROP_IN} && printf '[Service]\\nExecStop=\\n' > {DROP_IN}/drain.conf")
    host.check_output("systemctl daemon-reload")
    became = counted(host, lambda: host.run(f"systemctl restart {ENGINE}"), 8080, "numbered")
    assert became.get("cut", 0) + became.get("502", 0) > 0, became


def test_of_an_engine_that_is_killed_only_what_runs_is_cut(host: Host) -> None:
    host.check_output(f"systemctl restart {ENGINE}")
    wait_until_serving(host)

    def kill() -> None:
        host.check_output(f"systemctl kill --kill-whom=main --signal=KILL {ENGINE}")
        host.check_output("sleep 1")
        wait_until_serving(host)

    became = counted(host, kill, 8080, "numbered")
    assert set(became) <= {"whole", "slowest", "cut", "502"}, became
    # Its connections are closed before its port is: the next requests may reach what ends.
    assert became.get("cut", 0) <= PARALLEL, became
    assert 1 <= became.get("cut", 0) + became.get("502", 0) <= 2 * PARALLEL, became


@pytest.mark.usefixtures("as_before")
def test_who_waits_too_long_or_is_one_too_many_is_told_to_come_again(host: Host) -> None:
    converged(queue="4s", waiting=2)
    host.check_output(f"systemctl stop {ENGINE}")
    took, answer = ask(host, post({"parts": 1, "pause": 0}))
    assert 3 <= took <= 12
    assert status(answer) == 503
    assert "\nretry-after: 10\r" in answer.lower()
    assert json.loads(answer.partition("\r\n\r\n")[2])["error"]["type"] == "unavailable_error"
    most = 2 + PARALLEL
    crowd = [
        threading.Thread(target=ask, args=(host, post({"parts": 1, "pause": 0})), daemon=True) for _ in range(most)
    ]
    for one in crowd:
        one.start()
    wait_for(host, "waiting", most)
    took, answer = ask(host, post({"parts": 1, "pause": 0}))
    assert (status(answer), took < 2) == (503, True)
    for one in crowd:
        one.join(PATIENCE_S)
    took, answer = ask(host, get("/health"))
    assert (status(answer), took < 2) == (503, True)


def test_who_waits_is_answered_when_the_engine_is_there(host: Host) -> None:
    host.check_output(f"systemctl stop {ENGINE}")
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(ask(host, post({"parts": 2, "pause": 0}))), daemon=True)
    waiting.start()
    wait_for(host, "waiting", 1)
    host.check_output(f"systemctl start {ENGINE}")
    waiting.join(PATIENCE_S)
    assert status(answers[0][1]) == 200
    assert '"finish_reason": "stop"' in answers[0][1]


def test_what_could_be_read_in_two_ways_is_refused_and_who_asks_beside_it_notices_nothing(host: Host) -> None:
    """Only what is on the list reaches the engine, as it is written."""
    put(host, "/run/two_ways.py", Path(two_ways.__file__).read_text(encoding="utf-8"))
    said = []
    attack = f"timeout {PATIENCE_S:.0f} python3 /run/two_ways.py 8080 15"
    became = counted(host, lambda: said.append(json.loads(host.check_output(attack))), 8080, "numbered")
    assert set(became) == {"whole", "slowest"}, became
    wanted = {name: set(words.split()) for name, (_, words) in two_ways.REQUESTS.items()}
    wanted |= {path: {words} for path, words in two_ways.PATHS.items()}
    assert said[0].keys() == wanted.keys()
    assert {name: counts for name, counts in said[0].items() if not counts.keys() <= wanted[name]} == {}


def test_a_client_that_asks_before_it_sends_is_told_to_go_on(host: Host) -> None:
    answer = ask(host, post({"parts": 1, "pause": 0}, "Expect: 100-continue"))[1]
    assert "HTTP/1.1 200 OK" in answer
    assert '"finish_reason": "stop"' in answer


def test_a_second_request_on_a_connection_goes_nowhere(host: Host) -> None:
    """Each answer ends its connection, and says so."""
    answer = ask(host, get("/v1/models").replace("Connection: close\r\n", "") + get("/slots"))[1]
    assert answer.count("HTTP/1.1 ") == answer.count("HTTP/1.1 200") == 1
    assert "\nconnection: close\r" in answer.lower()


def test_a_slow_client_keeps_no_place_of_the_engine(host: Host) -> None:
    """Until its body is there, the engine hears nothing of it; after half a minute it is told so."""
    unfinished = post({"parts": 1, "pause": 0})[:-4]
    answers = []
    slow = [
        threading.Thread(target=lambda: answers.append(ask(host, unfinished)), daemon=True) for _ in range(PARALLEL)
    ]
    for one in slow:
        one.start()
    took, answer = ask(host, post({"parts": 1, "pause": 0}))
    assert (status(answer), took < 5) == (200, True)
    for one in slow:
        one.join(PATIENCE_S)
    assert [status(answer) for _, answer in answers] == [408] * PARALLEL
    assert all(25 <= took <= 45 for took, _ in answers)


def test_nobody_waits_for_an_engine_that_does_not_come(host: Host) -> None:
    """Those who wait already are told so, too; one that is started, or started again at this moment, is waited for."""
    gone = f"{CONTROL} gone a --unit {ENGINE}"
    host.check_output(gone)
    assert state(host)["slots"]["a"]["status"] == "UP", "it is there"
    host.check_output(f"systemctl stop {ENGINE}")
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(ask(host, post({"parts": 1, "pause": 0}))), daemon=True)
    waiting.start()
    wait_for(host, "waiting", 1)
    host.check_output(gone)
    waiting.join(PATIENCE_S)
    took, answer = ask(host, post({"parts": 1, "pause": 0}))
    assert [status(answers[0][1]), status(answer), took < 1] == [503, 503, True]
    assert "\nretry-after: 10\r" in answer.lower()
    host.check_output(f"systemctl start {ENGINE}")
    assert status(ask(host, post({"parts": 1, "pause": 0}))[1]) == 200


LEAVES = """
import socket, sys, time
connection = socket.create_connection(("127.0.0.1", 8080))
connection.sendall(bytes.fromhex(sys.argv[1]))
time.sleep(float(sys.argv[2]))
"""


def test_of_a_client_that_has_gone_the_engine_hears_at_once(host: Host) -> None:
    """While it is computed for, in silence, and while it waits."""
    put(host, "/run/leaves.py", LEAVES)
    silent = post({"parts": 1, "pause": 0, "before": 30}).encode().hex()
    for _ in range(PARALLEL + 1):
        host.check_output("systemd-run --quiet --collect python3 /run/leaves.py %s 5", silent)
    wait_for(host, "running", PARALLEL)
    wait_for(host, "waiting", 1)
    wait_for(host, "running", 0)
    wait_for(host, "waiting", 0)
    took, answer = ask(host, post({"parts": 1, "pause": 0}))
    assert (status(answer), took < 5) == (200, True)
    host.check_output(f"systemctl restart {ENGINE}")  # the stand-in does not look whether somebody is still there
    wait_until_serving(host)


def test_a_silent_engine_is_waited_for(host: Host) -> None:
    took, answer = ask(host, post({"parts": 1, "pause": 0, "before": 5}))
    assert (status(answer), took >= 5) == (200, True)


@pytest.mark.usefixtures("as_before")
def test_one_that_answers_nobody_while_it_computes_stays_in_service_for_as_long_as_was_said(host: Host) -> None:
    converged(health_timeout_s=1)
    host.check_output(f"systemctl kill --signal=STOP {ENGINE}")
    host.check_output(f"timeout 20 sh -c 'until {CONTROL} state | grep -q DOWN; do sleep 0.1; done'")
    host.check_output(f"systemctl kill --signal=CONT {ENGINE}")
    wait_until_serving(host)
    converged(health_timeout_s=60)
    host.check_output(f"systemctl kill --signal=STOP {ENGINE}")
    host.check_output("sleep 6")  # much longer than the one before had
    assert state(host)["slots"]["a"]["status"] == "UP"
    host.check_output(f"systemctl kill --signal=CONT {ENGINE}")
    assert status(ask(host, post({"parts": 1, "pause": 0}))[1]) == 200


@pytest.mark.usefixtures("as_before")
def test_statuses_that_count_are_those_that_were_said(host: Host) -> None:
    have_it_load_for(host, 600)
    host.check_output(f"systemctl restart {ENGINE}")
    assert_refused("slot a does not answer /health with 200")
    converged(health_statuses=[200, 503])
    assert state(host)["slots"]["a"]["status"] == "UP"


@pytest.mark.usefixtures("as_before")
def test_another_configuration_cuts_nothing_and_is_the_one_that_runs(host: Host) -> None:
    process = host.check_output(f"systemctl show --value -p MainPID {UNIT}")
    became = counted(host, lambda: converged(parallel=5), 8080, "numbered")
    assert set(became) == {"whole", "slowest"}, became
    assert host.check_output(f"systemctl show --value -p MainPID {UNIT}") == process
    # The process before still has its requests when the new one begins to pass its own on.
    assert 5 <= seen_by_the_engine(host)["most"] <= PARALLEL + 5


def test_a_new_process_knows_what_is_out_of_service(host: Host) -> None:
    host.check_output(f"{CONTROL} drain a --within 10")
    host.check_output(f"systemctl reload {UNIT}")
    host.check_output("sleep 2")
    assert state(host)["slots"]["a"]["status"] == "DRAIN"
    host.check_output(f"{CONTROL} ready a")
    wait_until_serving(host)


def reload_again_and_again(host: Host) -> None:
    """Hand over to a new process many times."""
    for _ in range(RELOADS):
        host.check_output(f"systemctl reload {UNIT}")
        host.check_output("sleep 0.3")


def test_no_request_on_a_connection_that_is_kept_is_lost_over_reloads(host: Host) -> None:
    """A process that hands over closes connections that are idle, at whatever moment that is."""
    became = kept(host, lambda: reload_again_and_again(host), 8080, "/v1/models")
    assert (became["lost"], set(became)) == (0, {"answered", "lost"}), became
    assert became["answered"] > 100 * RELOADS


@pytest.mark.usefixtures("as_before")
def test_where_an_answer_does_not_end_its_connection_some_are_lost(host: Host) -> None:
    host.check_output(f"sed -i 's/option httpclose/option http-server-close/' {CONFIG} && systemctl reload {UNIT}")
    became = kept(host, lambda: reload_again_and_again(host), 8080, "/v1/models")
    assert became["lost"] > 0, became


def test_who_waits_while_it_is_reloaded_is_answered(host: Host) -> None:
    """A process that is to end looks at no engine's health: who waited in it was never answered."""
    host.check_output(f"{CONTROL} drain a --within 10")
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(ask(host, post({"parts": 2, "pause": 0}))), daemon=True)
    waiting.start()
    wait_for(host, "waiting", 1)
    assert host.run(f"timeout 3 systemctl reload {UNIT}").rc == 124, "the reload waits as well"
    host.check_output(f"{CONTROL} ready a")
    waiting.join(PATIENCE_S)
    took, answer = answers[0]
    assert (status(answer), took < 15) == (200, True)
    is_active = f"systemctl show -p ActiveState {UNIT} | grep -qx ActiveState=active"
    host.check_output(f"timeout 20 sh -c 'until {is_active}; do sleep 0.1; done'")
    wait_until_serving(host)


def test_nobody_has_to_wait_for_a_reload(host: Host) -> None:
    """Where nobody waits it is reloaded at once, and an engine that starts then is told to the new process."""
    host.check_output(f"systemctl stop {ENGINE}")
    host.check_output(f"timeout 10 systemctl reload {UNIT}")
    host.check_output(f"systemctl start {ENGINE}")
    wait_until_serving(host)


@pytest.mark.usefixtures("as_before")
def test_another_engine_serves_in_its_place_while_it_is_exchanged(host: Host) -> None:
    """No request waits where one is told to stand in; looks go to it while the engine is away."""
    have_it_load_for(host, LOADS_S)
    unit = "systemd-run --quiet --unit stands-in python3 /usr/local/lib/engine.py --port 28123 --loads 0"
    host.check_output(unit)
    host.check_output(f"{CONTROL} ready b --port 28123")
    host.check_output(
        "timeout 20 sh -c %s", f'until {CONTROL} state | grep -q \'"b": {{"status": "UP\'; do sleep 0.1; done'
    )
    host.check_output(f"systemctl reload {UNIT}")

    def exchange() -> None:
        host.check_output(f"systemctl stop {ENGINE}")
        assert status(ask(host, get("/health"))[1]) == 200
        host.check_output(f"systemctl start {ENGINE}")
        wait_until_serving(host)
        host.check_output(f"{CONTROL} leave b --within 60")
        host.check_output("systemctl stop stands-in")
        assert status(ask(host, get("/health"))[1]) == 200

    try:
        became = counted(host, exchange, 8080, "numbered")
    finally:
        host.check_output(f"systemctl start {ENGINE}; systemctl stop stands-in 2> /dev/null || true")
    assert set(became) == {"whole", "slowest"}, became
    assert became["slowest"] < LOADS_S, "nobody waited for the engine"
    assert state(host)["slots"]["b"] == {"status": "MAINT", "running": 0}


def test_a_port_that_cannot_be_is_told(host: Host) -> None:
    told = host.run(f"{CONTROL} ready b --port 70000")
    assert (told.rc, "does not lead answers/b to port 70000" in told.stderr) == (1, True)


@contextmanager
def answering(host: Host, parts: int) -> Iterator[list[str]]:
    """The engine gives an answer of so many parts meanwhile; it is in the list afterwards."""
    answers: list[str] = []
    question = post({"parts": parts, "pause": 0.1})
    asking = threading.Thread(target=lambda: answers.append(raw_answer(host, question)), daemon=True)
    asking.start()
    wait_for(host, "running", 1)
    yield answers
    asking.join(PATIENCE_S)


def test_it_finishes_its_answers_before_it_stops(host: Host) -> None:
    with answering(host, 30) as answers:
        host.check_output(f"systemctl restart {UNIT}")
    assert '"finish_reason": "stop"' in answers[0]
    wait_until_serving(host)


def test_an_engine_is_not_stopped_while_a_process_that_has_handed_over_still_answers(host: Host) -> None:
    """The new process knows nothing of that one's requests."""
    with answering(host, 50) as answers:
        host.check_output(f"systemctl reload {UNIT}")
        host.check_output(f"systemctl restart {ENGINE}")
    assert '"finish_reason": "stop"' in answers[0]
    wait_until_serving(host)


def test_an_answer_that_takes_too_long_is_named(host: Host) -> None:
    with answering(host, 30):
        told = host.run(f"{CONTROL} drain a --within 0")
        assert (told.rc, told.stderr) == (0, "Not drained within 0 s, and ended all the same: 1 answers.\n")
    host.check_output(f"{CONTROL} ready a")
    wait_until_serving(host)


@pytest.mark.usefixtures("as_before")
def test_its_proof_fails_without_an_engine(host: Host) -> None:
    host.check_output(f"systemctl stop {ENGINE}")
    assert_refused("slot a does not answer /health with 200")


@pytest.mark.usefixtures("as_before")
def test_its_proof_fails_with_another_configuration_than_the_file_has(host: Host) -> None:
    host.check_output(f"sed -i 's/description .*/description another/' {CONFIG} && systemctl reload {UNIT}")
    assert_refused("runs with another configuration than its file has")


@pytest.mark.usefixtures("as_before")
@pytest.mark.parametrize(
    "done",
    [
        f"sed -i '/server hold/d' {CONFIG} && systemctl reload {UNIT}",
        f"python3 -c '{TELL}' {SOCKET} 'set server answers/hold state maint'",
    ],
    ids=["missing", "closed"],
)
def test_its_proof_fails_where_requests_could_not_wait(host: Host, done: str) -> None:
    host.check_output(done)
    assert_refused("Unable to have requests wait in the switch before engine")


@pytest.mark.usefixtures("as_before")
def test_its_proof_fails_where_it_does_not_run(host: Host) -> None:
    host.check_output(f"systemctl stop {UNIT}")
    assert_refused("Unable to ask the switch before engine how it stands")
    assert host.run(f"{CONTROL} drain a --within 10").rc == 0  # nobody is served by it


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"engine_port": 8080}, "port 8080 is that of the engine, too"),
        ({"engine_port": 65536}, "`engine_port` (65536) must be 1 or more and 65535 or less"),
        ({"queue": "15"}, "`queue` (15) must be a duration"),
        ({"queue": "8GiB"}, "`queue` (8GiB) must be a duration"),
        ({"hold": "2h"}, "`hold` (2h) must be a duration"),
        ({"drain": "2h"}, "`drain` (2h) must be a duration"),
        ({"answers": ["/v1/../slots"]}, "must be paths"),
        ({"answers": ["/**"]}, "must be paths, whose last part may be * or **"),
        ({"looks": ["/v1/**/models"]}, "must be paths"),
        ({"looks": ["/v1/***"]}, "must be paths"),
        ({"health_statuses": [200, 0]}, "`health_statuses` (200, 0) must be 100 or more"),
        ({"health_timeout_s": 0}, "must be 1 or more"),
        ({"looks": ["/v1/models } use_backend x"]}, "must be paths"),
        ({"health": "/health ver"}, "must be a path"),
        ({"name": "engine;x"}, "must be lower-case letters"),
        ({"listen": "127.0.0.1:1\nbind *"}, "must be an address"),
        ({"parallel": 0}, "must be 1 or more"),
        (
            {"former_keys": [{"sha256": ["0" * 64 + " } or {"], "until": 0}]},
            "must be 64 hexadecimal digits",
        ),
    ],
)
def test_what_it_could_not_do_is_refused_before_anything_is_touched(
    host: Host, options: dict[str, Any], words: str
) -> None:
    before = host.file(CONFIG).sha256sum
    answer = run_playbook("converge.yml", **options)
    shown = " ".join((answer.stdout + answer.stderr).split())
    assert answer.returncode != 0
    assert words in shown, shown
    assert host.file(CONFIG).sha256sum == before


def test_it_takes_little_memory(host: Host) -> None:
    pages = host.check_output("ps -o rss= -C haproxy").split()
    assert sum(int(kib) for kib in pages) < 64 * 1024


def cost(host: Host, pairs: int) -> dict[str, float]:
    """What the switch costs (see ``cost.py``)."""
    put(host, "/run/cost.py", (SCENARIO / "cost.py").read_text(encoding="utf-8"))
    return dict(json.loads(host.check_output(f"python3 /run/cost.py {pairs} 18080 8080")))


@pytest.mark.usefixtures("as_before")
def test_the_first_token_comes_as_soon_as_without_it(host: Host) -> None:
    assert cost(host, 50)["added_ms"] < MOST_ADDED_MS
    host.check_output(f"sed -i '/http-no-delay/d' {CONFIG} && systemctl reload {UNIT}")
    assert cost(host, 5)["added_ms"] > MOST_ADDED_MS
