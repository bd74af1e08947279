"""Requests without a key are refused before they wait; keys come to their end by themselves."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host

from tests.molecule.switch_scenario import (
    CONFIG,
    DROP_IN,
    ENGINE,
    UNIT,
    ask,
    converged,
    get,
    post,
    put,
    raw_answer,
    status,
    wait_for,
    wait_until_serving,
)

ATTACKER = Path(__file__).resolve().parents[3] / "tests/attackers/slow_bodies.py"
KEY = "key-of-the-engine-0123456789"
KEYS = "/etc/switch-engine.keys"
LITELLM_HEADERS = ("x-litellm-api-key", "api-key", "x-goog-api-key", "ocp-apim-subscription-key")
"""``KEY_HEADERS`` of its guard that other engines do not know."""
PARALLEL = 3
ATTACKERS, LASTS_S = 120, 20
DRIPS_S = 8
PROMPT_S = 5


def digest(key: str) -> str:
    """The checksum by which the switch knows a key."""
    return hashlib.sha256(key.encode()).hexdigest()


def send_slowly(host: Host, count: int, key: str, *headers: str) -> None:
    """Have so many clients send bodies that drip, for a while."""
    put(host, "/run/slow_bodies.py", ATTACKER.read_text(encoding="utf-8"))
    words = ["8080", str(count), str(LASTS_S), "900000", "127.0.1.1,127.0.1.2", f"Authorization: Bearer {key}"]
    output = "-p StandardOutput=truncate:/run/attacked"
    command = f"systemd-run --quiet --unit attack --collect {output} python3 /run/slow_bodies.py"
    host.check_output(command + " %s" * (len(words) + len(headers)), *words, *headers)


def attacked(host: Host) -> dict[str, int]:
    """Return how many of those got which status, once they have ended."""
    host.check_output(f"timeout {LASTS_S + 30} sh -c 'while systemctl is-active attack; do sleep 0.5; done'")
    return dict(json.loads(host.file("/run/attacked").content_string))


@pytest.fixture(scope="module", autouse=True)
def keyed(host: Host) -> Iterator[None]:
    """The scenario's engine with a key; afterwards the scenario's own options hold."""
    converged(key_sha256=[digest("another-key-0123456789"), digest(KEY)])
    yield
    host.check_output(f"rm -rf {DROP_IN} && systemctl daemon-reload && systemctl restart {ENGINE}")
    converged()


def with_key(host: Host, head: str) -> int:
    """Status of a request that carries this head."""
    return status(raw_answer(host, post({"parts": 1, "pause": 0}, head)))


def test_who_has_no_key_takes_no_place_and_no_turn_in_the_queue(host: Host) -> None:
    send_slowly(host, ATTACKERS, "wrong")
    became = [ask(host, post({"parts": 1, "pause": 0}, f"Authorization: Bearer {KEY}")) for _ in range(10)]
    assert [status(answer) for _, answer in became] == [200] * 10
    assert max(took for took, _ in became) < PROMPT_S
    became_of_them = attacked(host)
    assert became_of_them.pop("401") >= ATTACKERS / 2
    assert became_of_them.keys() <= {"none"}, "closed before its answer was read, or refused"


def test_a_body_that_drips_gives_its_place_back(host: Host) -> None:
    """Whoever waits behind as many as there are places is answered as soon as the time of a body is over."""
    assert "filter lua.bodies 100\n" in host.file(CONFIG).content_string, "less than who waits for a place may wait"
    host.check_output(f"sed -i 's/lua.bodies 100/lua.bodies {DRIPS_S}/' {CONFIG} && systemctl reload {UNIT}")
    try:
        send_slowly(host, PARALLEL, KEY)
        wait_for(host, "running", PARALLEL)
        took, answer = ask(host, post({"parts": 1, "pause": 0}, f"Authorization: Bearer {KEY}"))
        assert (status(answer), took < DRIPS_S + PROMPT_S) == (200, True), took
        assert attacked(host).keys() <= {"400", "none"}
    finally:
        converged(key_sha256=[digest(KEY)])


def test_an_answer_that_is_complete_gives_its_place_back_whatever_of_the_body_still_comes(host: Host) -> None:
    send_slowly(host, PARALLEL, KEY, "X-Answers-First: 1")
    wait_for(host, "running", PARALLEL)
    took, answer = ask(host, post({"parts": 1, "pause": 0}, f"Authorization: Bearer {KEY}"))
    assert (status(answer), took < PROMPT_S) == (200, True), took
    assert attacked(host).keys() == {"200"}


@pytest.mark.parametrize(
    ("head", "wanted"),
    [
        *((f"{name}: {scheme}{KEY}", 200) for name in ("Authorization", "X-Api-Key") for scheme in ("", "Bearer ")),
        (f"authorization: bearer {KEY}", 200),
        *((f"{name}: {KEY}", 200) for name in LITELLM_HEADERS),
        (f"x-admin-key: {KEY}", 200),
        *(
            (f"Authorization: Bearer {word}", 401)
            for word in ("", "wrong", KEY[:-1], f"{KEY}x", KEY.upper(), digest(KEY))
        ),
        (f"Cookie: {KEY}", 401),
        (f"Authorization: Bearer {KEY} wrong", 401),
    ],
)
def test_a_key_is_known_wherever_programs_take_it(host: Host, head: str, wanted: int) -> None:
    assert with_key(host, head) == wanted


def test_a_key_in_the_query_is_known(host: Host) -> None:
    for key, wanted in ((KEY, 200), ("wrong", 401)):
        asked = post({"parts": 1, "pause": 0}).replace("completions ", f"completions?key={key} ", 1)
        assert status(raw_answer(host, asked)) == wanted


def test_before_an_engine_that_asks_for_none_the_usual_two_places_are_known(host: Host) -> None:
    converged(key_sha256=[digest(KEY)], engine_asks=False)
    try:
        for name, wanted in (("Authorization", 200), ("X-Api-Key", 200), *((name, 401) for name in LITELLM_HEADERS)):
            assert with_key(host, f"{name}: {KEY}") == wanted, name
            look = get("/v1/models").replace("Host", f"{name}: {KEY}\r\nHost", 1)
            assert status(raw_answer(host, look)) == wanted, name
        assert [status(raw_answer(host, get(path))) for path in ("/v1/models", "/health")] == [401, 200]
        asked = get(f"/v1/models?key={KEY}")
        assert status(raw_answer(host, asked)) == 401
    finally:
        converged(key_sha256=[digest(KEY)])


def test_looks_are_for_the_engine_to_refuse(host: Host) -> None:
    assert status(raw_answer(host, get("/v1/models"))) == 200
    assert status(raw_answer(host, post("{}").replace("POST", "OPTIONS"))) == 405


def test_a_thousand_keys_are_known_without_a_restart(host: Host) -> None:
    before = host.check_output(f"systemctl show -P MainPID {UNIT}")
    converged(key_sha256=[digest(f"key-{number}") for number in range(999)] + [digest(KEY)])
    assert host.check_output(f"systemctl show -P MainPID {UNIT}") == before
    assert [with_key(host, f"X-Api-Key: {key}") for key in ("key-0", "key-998", KEY, "key-999")] == [200, 200, 200, 401]


def test_a_damaged_file_of_keys_lets_nobody_in(host: Host) -> None:
    converged(key_sha256=[digest(KEY)])
    host.check_output(f"printf 'nonsense\\n\\n%064d\\n' 0 > {KEYS} && systemctl reload {UNIT}")
    try:
        assert [with_key(host, f"X-Api-Key: {key}") for key in (KEY, "nonsense", "")] == [401, 401, 401]
    finally:
        converged(key_sha256=[digest(KEY)])
    wait_until_serving(host)
    assert with_key(host, f"X-Api-Key: {KEY}") == 200


def former(key: str, until_s: float) -> dict[str, Any]:
    """A key that comes to its end, as an engine's role tells the switch of it."""
    return {"sha256": [digest(key), digest(f"Bearer {key}")], "until": int(time.time() + until_s)}


def test_a_key_that_was_replaced_is_refused_once_its_time_is_over(host: Host) -> None:
    old, new = "the-key,-with-a-comma,-of-before", KEY
    converged(key_sha256=[digest(new)], former_keys=[former(old, 3600)])
    assert with_key(host, f"Authorization: Bearer {old}") == 200, "its time is not over"
    converged(key_sha256=[digest(new)], former_keys=[former(old, 0)])
    for head in ("Authorization: Bearer", "authorization:", "X-Api-Key:"):
        assert with_key(host, f"{head} {old}") == 401, head
        assert with_key(host, f"{head} {new}") == 200, head
    assert with_key(host, f"X-Api-Key: {new}\r\nAuthorization: Bearer {old}") == 401
    assert status(raw_answer(host, get("/v1/models").replace("Host", f"X-Api-Key: {old}\r\nHost"))) == 401


def test_its_time_ends_without_a_run(host: Host) -> None:
    ends_s = 20
    converged(key_sha256=[digest(KEY)], former_keys=[former("the-key-of-before", ends_s)])
    deadline = time.monotonic() + 2 * ends_s
    while with_key(host, "Authorization: Bearer the-key-of-before") != 401:
        assert time.monotonic() < deadline
