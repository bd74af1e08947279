"""What module `provision_unit` says of sockets, processes and files; asked of this very process where possible."""

from __future__ import annotations

import os
import socket
import time
from http.server import HTTPServer
from pathlib import Path

import pytest

from provisioner.ansible.modules import provision_unit
from tests.http_servers import HERE, QuietHandler, served


@pytest.fixture(params=[(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")], ids=["ipv4", "ipv6"])
def port(request: pytest.FixtureRequest) -> object:
    """A port on which this process listens."""
    family, address = request.param
    with socket.socket(family) as listening:
        listening.bind((address, 0))
        listening.listen()
        yield listening.getsockname()[1]


def test_the_process_that_listens_is_found(port: int) -> None:
    found = provision_unit.listeners(port)
    assert [one["pid"] for one in found] == [os.getpid()]
    assert found[0]["command"] == Path("/proc/self/comm").read_text().strip()


def test_a_port_that_nobody_listens_on_has_no_listener() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert provision_unit.listeners(bound.getsockname()[1]) == []


def test_a_connection_is_no_listener() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), 60) as client:
        assert provision_unit.listeners(client.getsockname()[1]) == []


def test_a_socket_whose_process_cannot_be_seen_is_no_free_port(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net/tcp").write_text(
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0\n"
    )
    assert [(one["pid"], one["unit"]) for one in provision_unit.listeners(8080, tmp_path)] == [(0, "")]


@pytest.mark.parametrize(
    ("groups", "unit"),
    [
        ("0::/system.slice/llama-server.service\n", "llama-server.service"),
        ("5:memory:/\n1:name=systemd:/system.slice/litellm.service\n", "litellm.service"),
        ("0::/user.slice/user-0.slice/session-1.scope\n", "session-1.scope"),
        ("0::/\n", ""),
    ],
)
def test_the_unit_is_read_from_either_layout_of_control_groups(tmp_path: Path, groups: str, unit: str) -> None:
    (tmp_path / "cgroup").write_text(groups)
    assert provision_unit.unit_of(tmp_path) == unit


def test_a_process_that_has_ended_is_nothing(tmp_path: Path) -> None:
    gone = tmp_path / "4711"
    assert provision_unit.held_sockets(gone) == set()
    assert provision_unit.unit_of(gone) == ""
    assert provision_unit.command_of(gone) == ""


def test_files_written_after_a_moment_are_named_and_missing_ones_are_not(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.touch()
    os.utime(old, (1000, 1000))
    new.touch()
    os.utime(new, (1002, 1002))
    assert provision_unit.newer_than([str(old), str(new), str(tmp_path / "missing")], 1001.0) == [str(new)]


def test_the_start_is_told_in_the_clock_of_files() -> None:
    state = {"ExecMainStartTimestampMonotonic": str(int((time.monotonic() - 60) * 1e6))}
    assert provision_unit.started_at(state) == pytest.approx(time.time() - 60, abs=0.5)


@pytest.fixture
def url() -> object:
    """A server that answers 503 first and 200 from then on."""
    answers = iter([503])

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            self.send_response(next(answers, 200))
            self.end_headers()

    with served(HTTPServer(HERE, Handler)) as server:
        yield f"http://127.0.0.1:{server.server_port}/health"


def test_a_probe_tells_the_status_or_what_kept_it_from_answering(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert [provision_unit.probe(url), provision_unit.probe(url)] == ["503", "200"]
    assert "refused" in provision_unit.probe("http://127.0.0.1:1/health")


def test_a_redirect_is_not_followed() -> None:
    class Handler(QuietHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(302)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

    asked: list[str] = []
    with served(HTTPServer(HERE, Handler)) as server:
        assert provision_unit.probe(f"http://127.0.0.1:{server.server_port}/health") == "302"
    assert asked == ["/health"]
