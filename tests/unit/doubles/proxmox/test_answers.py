"""The double answers as PVE does on the wire. Each test cites the fact that it holds."""

from __future__ import annotations

import time

import pytest

from tests.doubles.proxmox import Double, double
from tests.doubles.proxmox.client import Hand, csrf, root


def test_who_answers_and_in_what(pve: Double) -> None:
    """Facts: always ``Server: pve-api-daemon/3.0``, JSON ``application/json;charset=UTF-8``."""
    reply = root(pve).ask("GET", "/version")
    assert reply.line == "200 OK"
    assert (reply.headers["Server"], reply.headers["Content-Type"]) == (
        "pve-api-daemon/3.0",
        "application/json;charset=UTF-8",
    )
    assert set(reply.json["data"]) == {"release", "repoid", "version"}


def test_the_error_is_the_reason_phrase_and_the_message(pve: Double) -> None:
    """Facts: the text is in the reason phrase and, with a line feed, in ``message``; ``data`` is null."""
    reply = root(pve).ask("GET", "/nodes/pve1/lxc/999/config")
    text = "Configuration file 'nodes/pve1/lxc/999.conf' does not exist"
    assert reply.line == f"500 {text}"
    assert reply.json == {"data": None, "message": f"{text}\n"}


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({}, "No ticket"),
        ({"Authorization": "Basic cm9vdDpzZWNyZXQ="}, "No ticket"),
        ({"Cookie": "PVEAuthCookie=garbage"}, "Authentication failed!"),
        ({"Cookie": "PVEAuthCookie=PVE:root@pam:6B006547::00"}, "Authentication failed!"),
        ({"Authorization": "PVEAPIToken=root@pam!none=00000000"}, "Authentication failed!"),
        ({"Authorization": "PVEAPIToken=nonsense"}, "Authentication failed!"),
    ],
)
def test_whoever_is_not_known_gets_an_empty_401(pve: Double, headers: dict[str, str], reason: str) -> None:
    """Facts: no credentials (even for ``/version``), a wrong scheme, forged or garbage: empty 401s."""
    reply = Hand(pve, headers).ask("GET", "/version")
    assert (reply.line, reply.body) == (f"401 {reason}", b"")
    assert "Content-Type" not in reply.headers


def test_a_ticket_lives_for_two_hours(pve: Double) -> None:
    """Facts: ticket life 2 h; an expired one is ``Authentication failed!``."""
    for age, line in ((7100, "200 OK"), (7300, "401 Authentication failed!")):
        ticket = pve.world.access.ticket("root@pam", age_s=age)
        assert Hand(pve, {"Cookie": f"PVEAuthCookie={ticket}"}).ask("GET", "/version").line == line


@pytest.mark.parametrize("headers", [{}, {"CSRFPreventionToken": "6B006547:00"}])
def test_a_ticket_changes_nothing_without_its_csrf_token(pve: Double, headers: dict[str, str]) -> None:
    """Facts: POST/PUT/DELETE with ticket but no/wrong CSRF: empty 401."""
    cookie = {"Cookie": f"PVEAuthCookie={pve.world.access.ticket('root@pam')}"}
    reply = Hand(pve, {**cookie, **headers}).ask("POST", "/pools", poolid="a-pool")
    assert (reply.line, reply.body) == ("401 Permission denied - invalid csrf token", b"")
    assert not pve.world.pools
    assert Hand(pve, {**cookie, **csrf(pve, "root@pam")}).ask("POST", "/pools", poolid="a-pool").line == "200 OK"


def test_every_401_takes_its_time() -> None:
    """Facts: 401s are delayed by 3 s."""
    with double() as pve:
        assert pve.world.auth_delay_s == 3
        pve.world.auth_delay_s = 0.4
        login = {"username": "a@pam", "password": "b"}
        for verb, path, given in (("GET", "/version", {}), ("POST", "/access/ticket", login)):
            began = time.monotonic()
            assert Hand(pve).ask(verb, path, **given).status == 401
            assert time.monotonic() - began >= 0.4


@pytest.mark.parametrize(("verb", "path"), [("GET", "/nosuch"), ("DELETE", "/version")])
def test_what_there_is_not_is_501(pve: Double, verb: str, path: str) -> None:
    """Facts: ``501 Method 'GET /nosuch' not implemented``, the message without a line feed."""
    reply = root(pve).ask(verb, path)
    assert reply.line == f"501 Method '{verb} {path}' not implemented"
    assert reply.json["message"] == f"Method '{verb} {path}' not implemented"


def test_what_the_double_does_not_know_is_not_taken_for_pve(pve: Double) -> None:
    assert (
        root(pve).ask("GET", "/cluster/ha/resources").line == "501 the double does not answer GET /cluster/ha/resources"
    )
    assert pve.world.unanswered == ["GET /cluster/ha/resources"]
