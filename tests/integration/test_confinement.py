"""What the rules of a real Incus outside of a container keep it from, whoever it is that asks in it.

A kernel that follows no connections on bridges refuses such rules: it is told what is noted then, and the rest is
skipped with what the kernel said.
"""

from __future__ import annotations

import json
import secrets
import socket
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from provisioner.hosts.incus import IncusProvider
from provisioner.hosts.incus.network import name_of
from provisioner.values.state import Instance
from tests.waiting import wait_until

pytestmark = pytest.mark.incus

METADATA = "169.254.169.254"
LISTEN = """
import http.server, socket, sys
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
Server(("::", int(sys.argv[1])), http.server.SimpleHTTPRequestHandler).serve_forever()
"""
ASK = """
import json, socket, sys
reached = []
for host, port in json.load(sys.stdin):
    try:
        socket.create_connection((host, port), timeout=2).close()
        reached.append([host, port])
    except OSError:
        pass
print(json.dumps(reached))
"""
Place = tuple[str, int]


def incus(*arguments: str) -> str:
    """The output of Incus' own command."""
    done = subprocess.run(["incus", *arguments], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def bridge() -> str:
    """The bridge that containers are on."""
    return incus("profile", "device", "get", "default", "eth0", "network").strip()


class Listener(socketserver.ThreadingTCPServer):
    """A port of the host on all of its addresses."""

    address_family = socket.AF_INET6
    daemon_threads = True


class World:
    """An image's container, an engine beside it, and a container of another lab, all up; what they listen on."""

    def __init__(self, lab: str) -> None:
        self.provider = IncusProvider("box")
        self.lab = lab
        self.web, self.engine, self.other = (
            Instance(f"{lab}-{name}", "box", owner, "debian/13")
            for name, owner in (("web", lab), ("engine", lab), ("other", f"{lab}x"))
        )
        self.held = replace(self.web, reaches=(f"{self.engine.name}.incus:8080",))

    def start(self) -> None:
        """Bring them up."""
        three = (self.web, self.engine, self.other)
        for one in three:
            self.provider.create(one)
            self.provider.start(one)
        for one in three:
            ready = self.provider.wait_until_ready(one)
            for port in ("8080", "8081"):
                command = ["systemd-run", "--quiet", "python3", "-c", LISTEN, port]
                assert self.provider.execute(one.name, command).returncode == 0
            assert ready.address

    def address(self, one: Instance) -> str:
        """Where a container is."""
        seen = self.provider.observe(one.lab).instance(one.name)
        assert seen is not None
        return str(seen.address)

    @property
    def seen(self) -> Instance:
        """The image's container as it is observed."""
        seen = self.provider.observe(self.lab).instance(self.web.name)
        assert seen is not None
        return seen

    def near(self, one: Instance) -> str:
        """The address of the link that a container has."""
        program = "ip -6 -json address show dev eth0 scope link"
        told = json.loads(self.provider.execute(one.name, ["sh", "-c", program]).stdout)
        return f"{told[0]['addr_info'][0]['local']}%eth0"

    def reached(self, *places: Place) -> list[Place]:
        """Which of the places root in the image's container reaches."""
        asked = json.dumps(places).encode()
        done = self.provider.execute(self.web.name, ["python3", "-c", ASK], stdin=asked, timeout_s=120)
        return [(host, port) for host, port in json.loads(done.stdout)]

    def delete(self) -> None:
        """Delete them."""
        for one in (self.web, self.engine, self.other):
            self.provider.delete(one)


@pytest.fixture(scope="module")
def world(incus_lab: object) -> Iterator[World]:
    assert incus_lab
    world = World(f"t{secrets.token_hex(4)}")
    try:
        world.start()
        yield world
    finally:
        world.delete()
        assert name_of(world.lab, world.web.name) not in incus("network", "acl", "list", "--format", "csv")


@pytest.fixture
def port() -> Iterator[int]:
    """A port on which the host answers, also at the address where clouds tell machines their secrets."""
    link = ["ip", "address", "{}", f"{METADATA}/32", "dev", "lo"]
    with Listener(("::", 0), socketserver.BaseRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        subprocess.run([word.format("replace") for word in link], check=True, timeout=10)
        try:
            yield server.server_address[1]
        finally:
            subprocess.run([word.format("del") for word in link], check=True, timeout=10)
            server.shutdown()


def test_what_it_is_held_to_is_read_back_and_what_somebody_changed_is_not(world: World) -> None:
    refusal = world.provider.network.confine(world.held)
    acl = name_of(world.lab, world.web.name)
    assert world.seen.reaches == world.held.reaches
    assert bool(world.seen.refused_by) == bool(refusal)
    incus("network", "acl", "rule", "add", acl, "egress", "action=allow", "destination=10.0.0.0/8")
    assert world.seen.reaches is None
    world.provider.network.confine(world.held)
    assert world.seen.reaches == world.held.reaches
    copy = world.provider.clone(world.seen, f"{world.lab}-copy")
    try:
        assert acl not in incus("config", "show", copy.name)
    finally:
        world.provider.delete(copy)
    assert world.reached((world.address(world.engine), 8080)), "it has its network still"


def test_root_in_it_reaches_nothing_but_what_the_file_connects(world: World, port: int) -> None:
    gateway = incus("network", "get", bridge(), "ipv4.address").partition("/")[0]
    engine, other = world.address(world.engine), world.address(world.other)
    places = [
        *((gateway, number) for number in (port, 53)),
        *((engine, number) for number in (8080, 8081)),
        *((world.near(world.engine), number) for number in (8080, 8081)),
        (other, 8080),
        (world.near(world.other), 8080),
        (METADATA, port),
        *((address, port) for address in links_of_host()),
    ]
    world.provider.network.confine(world.web)
    wait_until(lambda: world.reached(*places) == places)
    refusal = world.provider.network.confine(world.held)
    if refusal:
        pytest.skip(f"the kernel of this machine follows no connections on bridges: {refusal[:200]}")
    world.provider.execute(world.web.name, ["sh", "-c", "nft flush ruleset; ip addr add 10.89.77.250/24 dev eth0"])
    kept = [(gateway, 53), (engine, 8080)]
    assert world.reached(*places) == kept
    world.provider.stop(world.web)
    world.provider.start(world.web)
    world.provider.wait_until_ready(world.web)
    assert world.reached(*places) == kept, "also from its first packet on"
    assert answers(world), "who asks it is answered"
    world.provider.network.confine(world.web)
    assert world.reached(*places) == places


def links_of_host() -> list[str]:
    """The host's addresses of the link, as containers write them; a bridge without IPv6 has none."""
    command = ["ip", "-6", "-json", "address", "show", "dev", bridge(), "scope", "link"]
    told = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=10).stdout)
    return [f"{one['local']}%eth0" for found in told for one in found.get("addr_info", ()) if "local" in one]


def answers(world: World) -> bool:
    """Whether the image's container answers its host and a neighbour."""
    command = ["systemd-run", "--quiet", "python3", "-c", LISTEN, "8080"]
    assert world.provider.execute(world.web.name, command).returncode == 0
    here = (world.address(world.web), 8080)
    asked = json.dumps([here]).encode()

    def heard() -> bool:
        beside = world.provider.execute(world.engine.name, ["python3", "-c", ASK], stdin=asked)
        return bool(json.loads(beside.stdout) == [list(here)])

    wait_until(heard)
    with socket.create_connection(here, timeout=5):
        return True
