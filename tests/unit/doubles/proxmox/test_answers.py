"""The double answers as PVE does on the wire, and checks parameters against PVE's own schema, in PVE's own words."""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import time
from contextlib import closing
from typing import Any

import pytest

from tests.case_files import read_cases
from tests.doubles.proxmox import Double, double, formats, schema, server
from tests.doubles.proxmox.call import handlers
from tests.doubles.proxmox.client import Hand, csrf, root, with_token


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


def opened(pve: Double) -> http.client.HTTPSConnection:
    """A connection to the first node."""
    host, _, port = pve.address.partition(":")
    context = ssl.create_default_context(cafile=str(pve.ca))
    return http.client.HTTPSConnection(host, int(port), context=context, timeout=10)


def asked(pve: Double, connection: http.client.HTTPConnection, path: str = "/version") -> http.client.HTTPResponse:
    """One answer over it."""
    connection.request("GET", f"/api2/json{path}", headers=dict(root(pve).headers))
    answer = connection.getresponse()
    answer.read()
    return answer


def test_one_that_is_silent_is_closed(pve: Double, monkeypatch: pytest.MonkeyPatch) -> None:
    """PVE does so after five seconds (``AnyEvent.pm``)."""
    assert server.Handler.timeout == 5
    monkeypatch.setattr(server.Handler, "timeout", 0.2)
    context = ssl.create_default_context(cafile=str(pve.ca))
    host, _, port = pve.address.partition(":")
    with (
        socket.create_connection((host, int(port)), 60) as raw,
        context.wrap_socket(raw, server_hostname=host) as secure,
    ):
        secure.settimeout(5)
        assert secure.recv(1) == b""


def test_what_goes_down_ends_them(pve: Double) -> None:
    with closing(opened(pve)) as connection:
        asked(pve, connection)
        kept = connection.sock
        assert kept is not None
        pve.take_down("pve1")
        assert kept.recv(1) == b""


CASES = read_cases("doubles/proxmox/parameters")

TEMPLATE = "local:vztmpl/debian-12-standard_12.7-1_amd64.tar.zst"


@pytest.mark.parametrize(("name", "value", "text"), CASES["what a parameter is refused with"])
def test_what_a_parameter_is_refused_with(pve: Double, name: str, value: str, text: str) -> None:
    """Facts: 400, ``errors`` by parameter, with the texts of the type, limit and format checks."""
    reply = root(pve).ask("POST", "/nodes/pve1/lxc", **{"vmid": 105, "ostemplate": TEMPLATE, name: value})
    assert reply.line == "400 Parameter verification failed."
    assert reply.json["message"] == "Parameter verification failed.\n"
    if text:
        assert reply.json["errors"][name].startswith(text)
    else:
        assert reply.json["errors"] == {"restore": "missing property required by 'unique'"}
    assert not pve.world.guests


def test_a_malformed_node_is_a_matter_of_permission_first(pve: Double) -> None:
    """Facts: malformed node name: ``403 Permission check failed (, Sys.Audit)``."""
    assert with_token(pve).ask("GET", "/nodes/a%20b/status").line == ("403 Permission check failed (, Sys.Audit)")


def test_a_parameter_that_contradicts_the_path(pve: Double) -> None:
    errors = root(pve).ask("GET", "/nodes/pve1/lxc/105/config", vmid=106).json["errors"]
    assert errors == {"vmid": "duplicate parameter (already defined in URI) with conflicting values!"}


def options() -> list[tuple[str, dict[str, Any]]]:
    """Every option of every method that the double answers, and the parts of property strings."""
    found = []
    for key in handlers():
        for name, option in schema.methods()[key].page["parameters"].items():
            form = option.get("format")
            found += [(f"{key} {name}", option)]
            found += [(f"{key} {name}.{part}", one) for part, one in form.items()] if isinstance(form, dict) else []
    return found


def test_the_double_knows_every_format_and_pattern_that_it_meets() -> None:
    for name, option in options():
        form = option.get("format", "string")
        assert isinstance(form, dict) or form.removesuffix("-list") in formats.FORMATS, name
        re.compile(option.get("pattern", "").replace("(?^", "(?"))


def test_the_double_answers_only_what_pve_has() -> None:
    assert set(handlers()) <= set(schema.methods())


def test_the_schema_bears_no_prose() -> None:
    assert not re.findall(r'"(description|typetext|verbose_description|format_description)":"', schema.FILE.read_text())


PLACES = {"{node}": "pve1", "{vmid}": "105", "{storage}": "local", "{snapname}": "s1", "{poolid}": "p1"}
ASKED = {"feature": {"feature": "snapshot"}, "resources": {"type": "vm"}}
# what PVE shows beyond its own schema, as its source says
BEYOND = {
    "GET /cluster/firewall/options": {"digest"},
    "GET /nodes/{node}/lxc/{vmid}/firewall/options": {"digest"},
    "GET /nodes/{node}/lxc/{vmid}/snapshot": {"digest", "running"},
    "GET /nodes": {"id", "type", "disk", "maxdisk"},
    "GET /nodes/{node}/network": {"bridge_stp", "bridge_fd"},
    "GET /nodes/{node}/status": {"uptime", "wait", "idle", "kversion", "swap", "ksm"},
    "GET /nodes/{node}/lxc": {"pid", "type", "swap"},
    "GET /nodes/{node}/lxc/{vmid}/status/current": {"pid", "type", "swap"},
    "GET /nodes/{node}/lxc/{vmid}/config": {"parent"},
    "GET /nodes/{node}/storage/{storage}/content": {"content"},
}


def test_answers_have_no_members_that_pve_does_not_name(pve: Double) -> None:
    """Nothing may be in the double that real PVE does not do: each answer's members are in the schema."""
    pve.world.add_guest(105, "pve1", net0="name=eth0,bridge=vmbr0,ip=dhcp", tags="x").remember("s1", "")
    pve.world.containers.start(105, {})
    assert root(pve).ask("POST", "/pools", poolid="p1").status == 200
    for key in sorted(handlers()):
        verb, path = key.split(" ")
        for place, value in PLACES.items():
            path = path.replace(place, value)
        if verb != "GET" or "{" in path:
            continue
        reply = root(pve).ask(verb, path, **ASKED.get(path.rpartition("/")[2], {}))
        assert reply.status == 200, (key, reply.line)
        returns = schema.methods()[key].page["returns"]
        data = reply.json["data"]
        kind = returns.get("items", returns) if isinstance(data, list) else returns
        allowed = {re.sub(r"\[n\]", "0", name) for name in kind.get("properties", ())} | BEYOND.get(key, set())
        for entry in data if isinstance(data, list) else [data]:
            if kind.get("properties") and isinstance(entry, dict):
                assert set(entry) <= allowed, key
