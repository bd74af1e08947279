"""Calls: what is sent, what is repeated, how many connections it takes."""

from __future__ import annotations

import http.server
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from provisioner.hosts.proxmox import failures, session
from provisioner.hosts.proxmox.access import Access
from provisioner.hosts.proxmox.api import Client
from provisioner.hosts.proxmox.failures import PveError, UnreachableError
from provisioner.values.state import Secret
from tests.doubles.proxmox import Double, double
from tests.doubles.proxmox.permissions import Grant
from tests.doubles.proxmox.world import PASSWORD, TEMPLATE, World
from tests.http_servers import HERE, QuietHandler, served
from tests.waiting import PATIENCE_S

Made = Callable[..., Client]


@contextmanager
def soon(act: Callable[[], object], seconds: float = 0.4) -> Iterator[None]:
    timer = threading.Timer(seconds, act)
    timer.start()
    yield
    timer.join(PATIENCE_S)


def test_importing_the_driver_imports_no_library_of_requests() -> None:
    code = "import provisioner.hosts.proxmox; import sys; print(*sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    ).stdout.split()
    assert "provisioner.hosts.proxmox.api" in found
    assert not {"requests", "urllib3", "proxmoxer"} & set(found)


def test_the_node_is_the_one_that_answers_unless_the_file_names_one(pve: Double, client_of: Made) -> None:
    assert client_of().node == "pve1"
    assert client_of(url=pve.url_of("pve2")).node == "pve2"
    assert client_of(node="pve3").node == "pve3"
    with double(World(nodes=1)) as single:
        assert client_of(url=single.url, ca=single.ca, token_secret=None, password=Secret("p", PASSWORD)).node == "pve1"


def test_the_only_node_needs_no_right_to_be_found(client_of: Made) -> None:
    """``/cluster/status`` needs Sys.Audit, ``/nodes`` nothing."""
    with double(World(nodes=1)) as single:
        single.world.access.add_user("joe@pve", PASSWORD)
        assert client_of(
            url=single.url, ca=single.ca, user="joe@pve", token_secret=None, password=Secret("p", PASSWORD)
        ).node


def test_a_token_without_rights_cannot_tell_nodes_apart(pve: Double, client_of: Made) -> None:
    secret = pve.world.access.add_token("root@pam", "poor")
    with pytest.raises(PveError) as caught:
        _ = client_of(token_id="poor", token_secret=Secret("t", secret)).node
    advice = failures.resolution(caught.value)
    assert "root@pam!poor needs Sys.Audit on /." in advice
    assert "pveum acl modify / --tokens 'root@pam!poor'" in advice
    pve.world.access.permissions.grants.add(Grant("/", "root@pam!poor", "PVEAuditor", propagate=True))
    assert client_of(token_id="poor", token_secret=Secret("t", secret)).node == "pve1"


def test_parts_of_a_path_may_hold_anything(client: Client) -> None:
    volume = f"local:vztmpl/{TEMPLATE}"
    assert client.get("nodes", "pve1", "storage", "local", "content", volume)["format"] == "tzst"


def test_booleans_are_numbers_and_none_is_left_out(pve: Double, client: Client) -> None:
    """Facts: ``True`` sent as text is refused; 1 is not."""
    guest = pve.world.add_guest(105, "pve1")
    client.put("nodes", "pve1", "lxc", 105, "config", onboot=True, protection=False, memory=256, hostname=None)
    assert (guest.config["onboot"], guest.config["memory"], guest.config["hostname"]) == ("1", "256", "CT105")
    assert client.get("nodes", "pve1", "lxc", 105, "config", current=True)["onboot"] == 1


def test_find_tells_missing_from_failed(pve: Double, client: Client) -> None:
    assert client.find("nodes", "pve1", "lxc", 999, "config") is None
    assert client.find("pools", "nosuch") is None
    assert client.find("nodes", "pve1", "storage", "nosuch", "status") is None
    pve.take_down("pve2")
    with pytest.raises(PveError):
        client.find("nodes", "pve2", "lxc", 999, "config")


def test_an_error_has_all_that_was_said(client: Client) -> None:
    with pytest.raises(PveError) as caught:
        client.post("nodes", "pve1", "lxc", vmid=5, hostname="a b")
    error = caught.value
    assert (error.status, error.reason) == (400, "Parameter verification failed.")
    assert error.errors["vmid"] == "invalid format - value does not look like a valid VM ID"
    assert "\nvmid: invalid format" in error.message
    assert "\nostemplate: property is missing" in error.message


def test_a_text_beyond_ascii_is_read_as_it_was_meant(client: Client) -> None:
    with pytest.raises(PveError) as caught:
        client.get("nodes", "nö", "status")
    assert caught.value.reason.startswith("hostname lookup 'nö' failed")
    assert "Is there a node nö in this cluster?" in failures.resolution(caught.value)


def test_root_in_person_may_what_its_token_may_not(pve: Double, client_of: Made) -> None:
    """Facts: ``dev[n]`` only for root@pam with a ticket, never for its tokens."""
    pve.world.add_guest(105, "pve1")
    path = ("nodes", "pve1", "lxc", 105, "config")
    with pytest.raises(PveError) as caught:
        client_of().put(*path, as_root=True, dev0="/dev/fuse")
    assert "only allowed for root@pam" in caught.value.message
    assert "give its `password:`, or `ssh:`" in failures.resolution(caught.value)
    both = client_of(password=Secret("p", PASSWORD))
    with pytest.raises(PveError):
        both.put(*path, dev0="/dev/fuse")
    both.put(*path, as_root=True, dev0="/dev/fuse")
    assert both.get(*path)["dev0"] == "/dev/fuse"


def test_a_question_is_asked_again_when_the_connection_drops(pve: Double, client: Client) -> None:
    pve.world.faults.drop("GET", "/version", times=3)
    assert client.get("version")["release"] == "9.2"
    pve.world.faults.drop("GET", "/version", times=3, done=True)
    assert client.get("version")["release"] == "9.2"


@pytest.mark.parametrize("done", [False, True])
def test_a_change_whose_answer_was_lost_is_not_made_twice(pve: Double, client: Client, *, done: bool) -> None:
    pve.world.faults.drop("POST", "/pools", done=done)
    with pytest.raises(PveError) as caught:
        client.post("pools", poolid="a")
    assert caught.value.lost
    assert not failures.is_transient(caught.value)
    assert list(pve.world.pools) == (["a"] if done else [])
    assert "not known" in failures.resolution(caught.value)


def test_whether_there_is_a_host_is_said_at_once(pve: Double, client: Client) -> None:
    pve.take_down("pve1")
    began = time.monotonic()
    with pytest.raises(UnreachableError, match=r"no connection to 127\.0\.0\.1:.*: Connection refused") as caught:
        client.get("version")
    assert time.monotonic() - began < 1
    assert "does pveproxy run there" in failures.resolution(caught.value)


def test_a_host_that_was_there_is_waited_for(pve: Double, client: Client) -> None:
    """Updates of Proxmox restart pveproxy; nothing was sent, so that a change may be asked for again."""
    client.get("version")
    pve.take_down("pve1")
    with soon(lambda: pve.bring_up("pve1")):
        client.post("pools", poolid="a")
    assert list(pve.world.pools) == ["a"]
    pve.take_down("pve1")
    client.patience_s = 0.5
    with pytest.raises(UnreachableError):
        client.get("version")
    client.patience_s, began = 60.0, time.monotonic()
    with pytest.raises(UnreachableError):
        client.get("version")
    assert time.monotonic() - began < 1, "once is enough"


def test_a_node_that_is_down_is_named(pve: Double, client: Client) -> None:
    """Facts: 595 Connection refused, without a body."""
    pve.take_down("pve2")
    with pytest.raises(PveError, match="Node pve2 cannot be reached by the others: Connection refused") as caught:
        client.get("nodes", "pve2", "status")
    assert caught.value.status == 595
    assert "Is that node on" in failures.resolution(caught.value)


@pytest.mark.parametrize("status", [595, 596])
def test_a_read_of_our_own_node_is_asked_again_when_that_gives_up_once(
    pve: Double, client: Client, status: int
) -> None:
    """Facts: a GET that waits for a container that hangs ends with 596; the next one may answer."""
    pve.world.add_guest(105, "pve1")
    path = "/nodes/pve1/lxc/105/config"
    assert client.node == "pve1"
    client.get("nodes", "pve1", "lxc")
    pve.world.faults.give_up("GET", path, status, times=2)
    assert client.get("nodes", "pve1", "lxc", 105, "config")["hostname"] == "CT105"
    client.patience_s = 0.3
    pve.world.faults.give_up("GET", path, status, times=100)
    with pytest.raises(PveError, match=r"Node pve1 .*: Connection timed out") as caught:
        client.get("nodes", "pve1", "lxc", 105, "config")
    assert ("lxc/105/config" in caught.value.message) == (status == 596)
    assert "does no container of it hang" in failures.resolution(caught.value)


def test_another_node_is_asked_once(pve: Double, client: Client) -> None:
    client.get("nodes", client.node, "lxc")
    pve.take_down("pve2")
    began = time.monotonic()
    with pytest.raises(PveError, match="Node pve2"):
        client.get("nodes", "pve2", "lxc")
    assert time.monotonic() - began < 1


@pytest.mark.parametrize(("status", "done", "lost"), [(596, True, True), (596, False, True), (595, False, False)])
def test_a_change_that_a_node_gave_up_may_have_been_made(
    pve: Double, client: Client, status: int, *, done: bool, lost: bool
) -> None:
    pve.world.add_guest(105, "pve1")
    pve.world.faults.give_up("PUT", "/nodes/pve1/lxc/105/config", status, done=done)
    with pytest.raises(PveError) as caught:
        client.put("nodes", "pve1", "lxc", 105, "config", memory=300)
    assert caught.value.lost is lost
    assert ("Whether it was done is not known" in failures.resolution(caught.value)) is lost
    assert (pve.world.guests[105].config.get("memory") == "300") is done


def test_a_lock_that_is_held_for_a_while_is_waited_for(pve: Double, client: Client) -> None:
    """Facts: 500 ``can't lock file … got timeout``."""
    guest = pve.world.add_guest(105, "pve1")
    held = pve.world.faults.hold_lock(105)
    held.__enter__()
    with soon(lambda: held.__exit__(None, None, None), 0.6):
        client.put("nodes", "pve1", "lxc", 105, "config", memory=256)
    assert guest.config["memory"] == "256"
    client.patience_s = 0.5
    with pve.world.faults.hold_lock(105), pytest.raises(PveError, match="can't lock file"):
        client.put("nodes", "pve1", "lxc", 105, "config", memory=300)


def test_a_task_that_failed_for_a_lock_is_started_again(pve: Double, client: Client) -> None:
    started = []

    def start() -> str:
        started.append(1)
        template = f"local:vztmpl/{TEMPLATE}"
        return str(client.post("nodes", "pve1", "lxc", vmid=105, ostemplate=template, storage="local-lvm"))

    held = pve.world.faults.hold_storage("pve1", "local-lvm")
    held.__enter__()
    with soon(lambda: held.__exit__(None, None, None), 0.8):
        client.run(start)
    assert len(started) > 1
    assert 105 in pve.world.guests
    with pytest.raises(PveError, match="already exists"):
        client.run(start)


def test_calls_at_once_keep_their_order(pve: Double, client: Client) -> None:
    pve.world.latency_s = 0.05
    began = time.monotonic()
    found = client.many([lambda n=n: (n, client.get("version")) for n in range(20)])  # type: ignore[misc]
    assert time.monotonic() - began < 0.8
    assert [number for number, _ in found] == list(range(20))
    assert client.many([]) == []


def test_one_of_many_that_fails_fails_all(client: Client) -> None:
    with pytest.raises(PveError, match="999"):
        client.many([lambda: client.get("version"), lambda: client.get("nodes", "pve1", "lxc", 999, "config")])


def test_calls_one_after_the_other_share_one_connection(pve: Double, client: Client) -> None:
    for _ in range(50):
        client.get("version")
    assert pve.connections == 1


def test_a_connection_that_pve_ends_is_followed_by_another(pve: Double, client: Client) -> None:
    """PVE keeps one for 100 requests, and none after an error."""
    for _ in range(101):
        client.get("version")
    assert pve.connections == 2
    assert client.find("pools", "nosuch") is None
    client.post("pools", poolid="a")
    assert pve.connections == 3


def test_a_hundred_calls_at_once_take_ten_connections_and_little_time(pve: Double, client: Client) -> None:
    pve.world.latency_s = 0.01
    began = time.monotonic()
    client.many([lambda: client.get("nodes", "pve1", "status")] * 100)
    assert time.monotonic() - began < 1.5
    assert pve.connections <= 10


def test_a_connection_is_not_used_when_pve_may_just_close_it(
    pve: Double, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "KEPT_OPEN_S", 0.2)
    client.post("pools", poolid="a")
    time.sleep(0.3)
    client.post("pools", poolid="b")
    assert pve.connections == 2


def test_both_identities_share_connections(pve: Double, client_of: Made) -> None:
    both = client_of(password=Secret("p", PASSWORD))
    both.post("pools", poolid="a")
    both.post("pools", poolid="b", as_root=True)
    assert pve.connections == 1


def test_a_host_that_does_not_answer_is_not_waited_for_for_ever(pve: Double, access: Access) -> None:
    client = Client(access, timeout_s=0.3)
    client.get("version")
    pve.world.latency_s = 1
    with pytest.raises(UnreachableError, match="gave no answer within") as caught:
        client.get("version")
    assert not caught.value.lost
    with pytest.raises(UnreachableError) as caught:
        client.post("pools", poolid="a")
    assert caught.value.lost


class _Page(QuietHandler):
    def do_GET(self) -> None:
        moved = self.path.endswith("/moved")
        self.send_response(302 if moved else 200)
        self.send_header("Location", "https://127.0.0.1:1/elsewhere")
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"<html>")

    def do_POST(self) -> None:
        self.do_GET()


def test_another_web_server_is_not_taken_for_proxmox(pve: Double, access: Access) -> None:
    page = http.server.ThreadingHTTPServer(HERE, _Page)
    page.socket = pve._first._context.wrap_socket(page.socket, server_side=True)
    with served(page) as server:
        client = Client(replace(access, url=f"https://127.0.0.1:{server.server_address[1]}"))
        for path, words in (("version", "not as Proxmox VE's API does"), ("moved", "an answer that is none")):
            with pytest.raises(UnreachableError, match=words) as caught:
                client.get(path)
            assert "https://192.168.1.10:8006" in caught.value.resolution
        with pytest.raises(UnreachableError, match="not as Proxmox VE's API does") as caught:
            Client(replace(client.access, token_secret=None, password=Secret("p", PASSWORD))).post("pools", poolid="a")
        assert not caught.value.lost
