"""What the agent says of a real unit that computes for somebody, hangs, turns in circles, or is dead."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from provisioner.hosts.incus import IncusProvider
from provisioner.reconcile.gather import probe, reasons_to_run
from provisioner.reconcile.judge import judge
from provisioner.values.facts import BUSY, ContainerFact, Health, of_kind
from provisioner.values.state import Fleet, Instance, Service, Status
from tests.waiting import wait_until

pytestmark = [pytest.mark.incus]

PORT = 8880
BEHIND = 18880
"""Where one listens that has a switch before it."""
BLOCK_S = 60
UNIT = "busy.service"
SERVICE = Service("busy", "", "engine", {}, port=PORT, unit=UNIT, health="/health")
PROGRAM = f"""
import sys, threading, time
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer

def compute():
    end = time.monotonic() + {BLOCK_S}
    while time.monotonic() < end:
        sum(range(10000))

WORK = {{"/compute": compute, "/hang": lambda: time.sleep({BLOCK_S}), "/health": lambda: None}}

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        WORK[self.path]()
        self.send_response(200)
        self.end_headers()

kind = ThreadingHTTPServer if "slots" in sys.argv else HTTPServer  # its health page answers meanwhile, or does not
server = kind(("127.0.0.1", {BEHIND} if "behind" in sys.argv else {PORT}), Handler)
if "circles" in sys.argv:
    compute()
server.serve_forever()
"""
CLIENT = f"""
import socket, sys, time
link = socket.create_connection(("127.0.0.1", {PORT}))
link.sendall(b"GET " + sys.argv[1].encode() + b" HTTP/1.0\\r\\n\\r\\n")
time.sleep({BLOCK_S})
"""
TAKEN = f'awk \'$4 == "01" && $10 != 0 && $2 ~ /:{PORT:04X}$/ {{ print "taken" }}\' /proc/net/tcp'
"""Whether the server has taken a connection: one that waits to be taken has no inode."""
LISTENS = f'awk \'$4 == "0A" && $2 ~ /:{PORT:04X}$/ {{ print "listens" }}\' /proc/net/tcp'
"""Whether there is a server: links to one that is gone stand there for a while, too."""


@dataclass
class Box:
    """A container with the unit."""

    provider: IncusProvider
    instance: Instance

    def run(self, command: str) -> None:
        """Run a shell command, which has to end well."""
        done = self.provider.execute(self.instance.name, ["sh", "-c", command])
        assert done.returncode == 0, done.stderr.decode()

    def start(self, *words: str) -> None:
        """Start the unit anew."""
        self.run(f"systemctl stop {UNIT} 2>/dev/null; systemctl reset-failed {UNIT} 2>/dev/null; true")
        self.run(f"systemd-run --quiet --unit={UNIT} python3 /root/busy.py {' '.join(words)}")

    def asks(self, path: str) -> None:
        """Send a request whose answer nobody waits for, and have the server take it."""
        self.run(f"systemd-run --quiet python3 /root/ask.py {path}")
        wait_until(lambda: "taken" in self.said(TAKEN))

    def said(self, command: str) -> str:
        """What a shell command says."""
        return self.provider.execute(self.instance.name, ["sh", "-c", command]).stdout.decode()

    def facts(self, *late: str) -> tuple[ContainerFact, ...]:
        """What a look says; ``late``: services that have let a proof wait."""
        return probe([self.instance], {"box": self.provider}, late=late)

    def health(self, *late: str) -> object:
        """What it says of the service's health."""
        (found,) = [health.answer for health in of_kind(self.facts(*late), Health)]
        return found


@pytest.fixture(scope="module")
def box(provider: IncusProvider, container: str) -> Box:
    """The container, and the program in it."""
    provider.push(container, PROGRAM.encode(), "/root/busy.py")
    provider.push(container, CLIENT.encode(), "/root/ask.py")
    service = replace(SERVICE, container=container)
    lab = container.removesuffix("-one")
    return Box(provider, Instance(container, "box", lab, "debian/12", services=(service,), status=Status.RUNNING))


def findings(box: Box) -> list[str]:
    fleet = Fleet(box.instance.lab, (box.instance,))
    return [one.message for one in judge(fleet, fleet, box.facts())]


def test_one_that_computes_for_somebody_is_busy_and_no_finding(box: Box) -> None:
    box.start()
    wait_until(lambda: box.health() == 200)
    box.asks("/compute")
    assert box.health() == BUSY
    assert findings(box) == []
    reasons = reasons_to_run(box.instance, box.facts())
    assert not any("health" in why for whys in reasons.values() for why in whys)


def test_one_that_hangs_with_a_client_is_found(box: Box) -> None:
    box.start()
    wait_until(lambda: box.health() == 200)
    box.asks("/hang")
    assert box.health() == "timed out"
    assert findings(box) == [f"/health on port {PORT} answers timed out"]


@pytest.mark.parametrize(("path", "health"), [("/compute", BUSY), ("/hang", 200)])
def test_one_whose_health_page_answers_is_busy_only_where_it_computes_for_somebody(
    box: Box, path: str, health: object
) -> None:
    address = box.instance.services[0].address
    box.start("slots")
    wait_until(lambda: box.health() == 200)
    assert box.health(address) == 200, "nobody is there"
    box.asks(path)
    assert box.health() == 200
    assert box.health(address) == health


def test_one_that_turns_in_circles_for_nobody_is_found(box: Box) -> None:
    box.start("circles")
    wait_until(lambda: "listens" in box.said(LISTENS))
    assert box.health() == "timed out"


def test_a_dead_one_is_found(box: Box) -> None:
    box.run(f"systemctl stop {UNIT}")
    assert box.health() == "Connection refused"
    assert len(findings(box)) == 2


def test_one_behind_a_switch_is_busy_by_its_own_process(box: Box) -> None:
    """Who listens on the service's port is another unit, and hands on what it takes."""
    box.start("behind")
    relay = f"/lib/systemd/systemd-socket-proxyd 127.0.0.1:{BEHIND}"
    box.run(f"systemd-run --quiet --unit=relay --socket-property=ListenStream=127.0.0.1:{PORT} {relay}")
    (service,) = box.instance.services
    behind = replace(service, behind="switch")
    assert behind.own_port == BEHIND
    there = replace(box, instance=replace(box.instance, services=(behind,)))
    wait_until(lambda: there.health() == 200)
    box.run("systemd-run --quiet python3 /root/ask.py /compute")
    wait_until(lambda: there.health() == BUSY)
    assert box.health() == "timed out", "its port alone would say nothing of it"
    box.run("systemctl stop relay.socket relay.service")
