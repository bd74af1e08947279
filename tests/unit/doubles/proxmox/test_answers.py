"""The double answers as PVE does on the wire. Each test cites the fact that it holds."""

from __future__ import annotations

import time

import pytest
from proxmoxer import ResourceException

from tests.doubles.proxmox import Double, double
from tests.doubles.proxmox.client import Hand, csrf, proxmoxer, root, with_token

FAILED = "Parameter verification failed."


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


def test_a_text_beyond_ascii_is_a_reason_phrase_too(pve: Double) -> None:
    reply = root(pve).ask("GET", "/nodes/n%C3%B6/status")
    assert reply.reason.encode("latin-1").decode().startswith("hostname lookup 'nö' failed")


def test_proxmoxer_reads_the_reason_and_the_errors(pve: Double) -> None:
    """Facts: ``content`` is the reason, ``errors`` the dictionary."""
    with pytest.raises(ResourceException) as caught:
        proxmoxer(pve).nodes("pve1").lxc.post(vmid=100)
    assert caught.value.status_code == 400
    assert caught.value.content == FAILED
    assert caught.value.errors == {"ostemplate": "property is missing and it is not optional"}


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


def test_a_ticket_is_renewed_with_itself(pve: Double) -> None:
    """Facts: ``POST /access/ticket`` with the old ticket as password renews it; the keys of the answer."""
    ticket = pve.world.access.ticket("root@pam")
    data = Hand(pve).ask("POST", "/access/ticket", username="root@pam", password=ticket).json["data"]
    assert set(data) == {"username", "ticket", "CSRFPreventionToken", "cap", "clustername"}
    assert data["username"] == "root@pam"
    assert data["cap"]["vms"]["VM.Allocate"] == 1


@pytest.mark.parametrize("headers", [{}, {"CSRFPreventionToken": "6B006547:00"}])
def test_a_ticket_changes_nothing_without_its_csrf_token(pve: Double, headers: dict[str, str]) -> None:
    """Facts: POST/PUT/DELETE with ticket but no/wrong CSRF: empty 401."""
    cookie = {"Cookie": f"PVEAuthCookie={pve.world.access.ticket('root@pam')}"}
    reply = Hand(pve, {**cookie, **headers}).ask("POST", "/pools", poolid="a-pool")
    assert (reply.line, reply.body) == ("401 Permission denied - invalid csrf token", b"")
    assert not pve.world.pools
    assert Hand(pve, {**cookie, **csrf(pve, "root@pam")}).ask("POST", "/pools", poolid="a-pool").line == "200 OK"


def test_the_csrf_token_of_another_user_is_none(pve: Double) -> None:
    pve.world.access.add_user("eve@pve", "secret")
    cookie = {"Cookie": f"PVEAuthCookie={pve.world.access.ticket('root@pam')}"}
    assert Hand(pve, {**cookie, **csrf(pve, "eve@pve")}).ask("POST", "/pools", poolid="a").status == 401


def test_a_token_needs_no_csrf_token(pve: Double) -> None:
    assert with_token(pve).ask("POST", "/pools", poolid="a-pool").line == "200 OK"


@pytest.mark.parametrize(
    "given", [("root@pam", "wrong"), ("no@pam", "secret"), ("root@none", "secret"), ("root", "secret")]
)
def test_a_login_that_fails_says_nothing_of_why(pve: Double, given: tuple[str, str]) -> None:
    """Facts: bad password, user, realm, no realm: 401 with a body, unlike all other 401s."""
    reply = Hand(pve).ask("POST", "/access/ticket", username=given[0], password=given[1])
    assert reply.line == "401 authentication failure"
    assert reply.json == {"data": None, "message": "authentication failure\n"}


def test_a_login_without_a_password_is_incomplete(pve: Double) -> None:
    """Facts: ticket request without password: 400."""
    reply = Hand(pve).ask("POST", "/access/ticket", username="root@pam")
    assert reply.line == f"400 {FAILED}"
    assert reply.json["errors"] == {"password": "property is missing and it is not optional"}


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


def test_bodies_may_be_json(pve: Double) -> None:
    """Facts: bodies may be JSON or form."""
    hand = with_token(pve)
    headers = {**hand.headers, "Content-Type": "application/json"}
    assert hand.send("POST", "/api2/json/pools", '{"poolid": "p1", "comment": "x"}', headers).line == "200 OK"
    assert pve.world.pools["p1"].comment == "x"
    guest = pve.world.add_guest(105, "pve1")
    body = '{"memory": 300, "onboot": true, "hostname": true}'
    errors = hand.send("PUT", "/api2/json/nodes/pve1/lxc/105/config", body, headers).json["errors"]
    assert errors == {"hostname": "type check ('string') failed - got JSON::PP::Boolean"}
    body = '{"memory": 300, "onboot": true}'
    assert hand.send("PUT", "/api2/json/nodes/pve1/lxc/105/config", body, headers).status == 200
    assert (guest.config["memory"], guest.config["onboot"]) == ("300", "1")


def test_each_node_answers_about_all(pve: Double) -> None:
    """Facts: proxied cross-node answers."""
    pve.world.add_guest(105, "pve2", hostname="there")
    for node in pve.world.nodes:
        assert root(pve, node).ask("GET", "/nodes/pve2/lxc/105/config").json["data"]["hostname"] == "there"
    assert root(pve).ask("GET", "/nodes/pve1/lxc/105/config").status == 500


def test_a_node_that_is_down_cannot_be_reached(pve: Double) -> None:
    """Facts: node or its daemons down: ``595 Connection refused``, empty."""
    pve.take_down("pve2")
    reply = root(pve).ask("GET", "/nodes/pve2/status")
    assert (reply.line, reply.body) == ("595 Connection refused", b"")
    with pytest.raises(ConnectionRefusedError):
        root(pve, "pve2").ask("GET", "/version")
    pve.bring_up("pve2")
    assert root(pve).ask("GET", "/nodes/pve2/status").status == 200
    assert root(pve, "pve2").ask("GET", "/version").status == 200


def test_a_node_that_is_not_there_cannot_be_found(pve: Double) -> None:
    """Facts: unknown node: 500 hostname lookup failed."""
    line = root(pve).ask("GET", "/nodes/nosuch/status").line
    assert line.startswith("500 hostname lookup 'nosuch' failed - failed to get address info for: nosuch: ")
