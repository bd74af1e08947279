"""The program that asks a service for what it has to refuse."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from typing import Any

import pytest

from provisioner.inside import http_probe
from tests.http_servers import HERE, QuietHandler, served

CANARY = "sk-canary"


class Handler(QuietHandler):
    """Refuses as it should."""

    def do_GET(self) -> None:
        """By key and path."""
        right = self.headers["authorization"] == f"Bearer {CANARY}"
        self.send_response(200 if right and self.path == "/v1/models" else 404 if right else 401)
        self.end_headers()

    def do_POST(self) -> None:
        """By what is announced; the body is not waited for."""
        self.send_response(413 if int(self.headers["content-length"]) > 10 else 200)
        self.end_headers()


@pytest.fixture
def port() -> Iterator[int]:
    """A service that refuses."""
    with served(ThreadingHTTPServer(HERE, Handler)) as server:
        yield server.server_port


def asked(name: str, method: str, path: str, **headers: str) -> dict[str, Any]:
    """One request."""
    return {"name": name, "method": method, "path": path, "headers": headers}


def test_each_status_is_told_by_its_requests_name(port: int) -> None:
    right = f"Bearer {CANARY}"
    requests = [
        asked("right", "GET", "/v1/models", Authorization=right),
        asked("elsewhere", "GET", "//ui/", Authorization=right),
        asked("wrong", "GET", "/v1/models", Authorization="Bearer sk-wrong"),
        asked("large", "POST", "/v1/models", **{"Content-Length": "11"}),
    ]
    command = [sys.executable, http_probe.__file__]
    text = json.dumps({"port": port, "timeout_s": 10, "asked": requests})
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True, timeout=30)
    assert json.loads(done.stdout) == {"right": 200, "elsewhere": 404, "wrong": 401, "large": 413}
    assert CANARY not in done.stdout + done.stderr


def test_nobody_is_a_status_as_well() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert http_probe.statuses({"port": port, "timeout_s": 0.2, "asked": [asked("late", "GET", "/")]}) == {
            "late": 0
        }
    assert http_probe.statuses({"port": port, "timeout_s": 5, "asked": [asked("gone", "GET", "/")]}) == {"gone": 0}
