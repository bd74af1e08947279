"""Upstream's Pipelines server, or its stand-in, behind the launcher of role ``pipelines`` as its unit runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from provisioner.values import paths
from tests.processes import ended_at_end, free_port
from tests.waiting import wait_until

ROLE = paths.roles() / "pipelines"
KEY = "key-of-the-pipelines"
INSTALL_S, START_S, ANSWER_S, FETCH_S = 900, 120, 60, 120


def pipelines_venv(folder: Path) -> Path:
    """The Python of a new venv that has what the role's list says, each package by its hash."""
    python = folder / "bin/python"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=INSTALL_S)
    hashed = ["--require-hashes", "--no-deps", "--only-binary=:all:", "--requirement"]
    pip = [str(python), "-m", "pip", "install", "--quiet", *hashed, str(ROLE / "files/requirements.txt")]
    subprocess.run(pip, check=True, timeout=INSTALL_S)
    return python


@dataclass
class Server:
    """A server that serves; ``lines`` is what its process has written."""

    port: int
    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)

    def get(self, path: str, *, method: str = "GET", key: str | None = KEY, body: Any = None) -> tuple[int, str]:
        """Status and text of an answer."""
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        connection = HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_S)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def ask(self, model: str, question: str = "go", **more: Any) -> tuple[int, str]:
        """Status and text of an answer to a question."""
        body = {"model": model, "messages": [{"role": "user", "content": question}], **more}
        return self.get("/v1/chat/completions", method="POST", body=body)

    def proof(self, model: str) -> dict[str, Any]:
        """What the question of the role's proof says."""
        asked = {"port": self.port, "key": KEY, "model": model, "question": "Say hello.", "timeout_s": ANSWER_S}
        command = [sys.executable, str(ROLE / "programs/ask.py")]
        done = subprocess.run(
            command, input=json.dumps(asked), capture_output=True, text=True, check=True, timeout=2 * ANSWER_S
        )
        told: dict[str, Any] = json.loads(done.stdout)
        return told


def served_in(folder: Path, pipelines: Mapping[str, str]) -> Path:
    """A folder as the role has it, which nobody but root may write to."""
    served = folder / "served"
    served.mkdir(parents=True)
    for name, text in pipelines.items():
        (served / f"{name}.py").write_text(text, encoding="utf-8")
        (served / name).mkdir()
        (served / name / "valves.json").write_text("{}\n", encoding="utf-8")
    for path in (*served.rglob("*"), served):
        path.chmod(0o555 if path.is_dir() else 0o444)
    return served


@contextmanager
def pipelines_started(
    python: Path, source: Path, folder: Path, pipelines: Mapping[str, str], environment: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """The server as its process begins; as an account that may not write to its pipelines."""
    folder.mkdir(exist_ok=True)
    page = {
        "source": str(source),
        "folder": str(served_in(folder, pipelines)),
        "guard": {"body": 100_000},
        "drain_s": 5,
        "paths": ["/health", "/v1/models", "/v1/chat/completions", "/v1/pipelines"],
        "open": ["/health"],
    }
    file = folder / "pipelines.json"
    file.write_text(json.dumps(page), encoding="utf-8")
    port = free_port()
    command = [str(python), str(ROLE / "programs/launch.py"), str(file), "--port", str(port)]
    # Root writes wherever it wants to, but not with an empty set of capabilities.
    confined = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", *command]
    variables = {
        "PIPELINES_API_KEY": KEY,
        "PATH": os.environ["PATH"],
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        **(environment or {}),
    }
    with ended_at_end(confined if os.geteuid() == 0 else command, variables, START_S) as (process, lines):
        yield Server(port, process, lines)


@contextmanager
def pipelines_serving(
    python: Path, source: Path, folder: Path, pipelines: Mapping[str, str], environment: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """The server once it answers."""
    with pipelines_started(python, source, folder, pipelines, environment) as server:
        wait_until(lambda: _is_up(server), START_S)
        yield server


def _is_up(server: Server) -> bool:
    assert server.process.poll() is None, "\n".join(server.lines)
    try:
        return server.get("/health", key=None)[0] == 200
    except OSError:
        return False
