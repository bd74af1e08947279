"""The program of role ``agent_team``, run as its unit runs it, with engines that answer by a rule."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

from provisioner.values import paths
from tests.doubles.openai.rule_engine import RuleEngine
from tests.processes import ended_at_end, free_port
from tests.waiting import wait_until

PROGRAMS = paths.roles() / "agent_team/programs"
REQUIREMENTS = paths.roles() / "agent_team/files/requirements.txt"
KEY = "team-key"
INSTALL_S, START_S, ANSWER_S = 900, 120, 60
MODEL = "agent_team"


def team_venv(folder: Path) -> Path:
    """The Python of a new venv that has what the role's list says, each package by its hash."""
    python = folder / "bin/python"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=INSTALL_S)
    hashed = ["--require-hashes", "--no-deps", "--only-binary=:all:", "--requirement", str(REQUIREMENTS)]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *hashed], check=True, timeout=INSTALL_S)
    return python


@dataclass
class TeamServer:
    """A team that serves; ``lines`` is what its process has written."""

    port: int
    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)

    def send(self, question: Mapping[str, Any], key: str = KEY) -> HTTPConnection:
        """The connection on which a question was sent."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_S)
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(question), headers)
        return connection

    def open(self, question: Mapping[str, Any], key: str = KEY) -> tuple[HTTPConnection, HTTPResponse]:
        """The connection and the beginning of an answer."""
        connection = self.send(question, key)
        return connection, connection.getresponse()

    def ask(self, question: Mapping[str, Any], key: str = KEY) -> tuple[int, Any]:
        """Status and body of a whole answer."""
        connection, response = self.open(question, key)
        try:
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def stream(self, question: Mapping[str, Any]) -> list[Any]:
        """The events of a streamed answer."""
        connection, response = self.open({**question, "stream": True})
        try:
            text = response.read().decode()
        finally:
            connection.close()
        assert response.status == 200, text
        parts = [line.removeprefix("data: ") for line in text.split("\n\n") if line.startswith("data: ")]
        assert parts[-1] == "[DONE]"
        return [json.loads(part) for part in parts[:-1]]

    @property
    def hand_overs(self) -> list[dict[str, Any]]:
        """The lines of the transcript so far."""
        words = "transcript "
        return [json.loads(line.removeprefix(words)) for line in self.lines if line.startswith(words)]


def question(text: str = "go", **more: Any) -> dict[str, Any]:
    """What a client asks."""
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], **more}


def member_of(name: str, engine: RuleEngine, variable: str, **more: Any) -> dict[str, Any]:
    """What the role's page says of a member."""
    words = {"name": name, "instructions": f"You are the {name}.", "model": f"{name}-model", "base_url": engine.url}
    return {**words, "key_variable": variable if engine.key else "", **more}


@contextmanager
def team_serving(
    python: Path,
    folder: Path,
    engines: Sequence[tuple[str, RuleEngine]],
    *,
    most: Mapping[str, Any] | None = None,
    price: Mapping[str, float] | None = None,
    transcript: bool = True,
    sitecustomize: str = "",
    environment: Mapping[str, str] | None = None,
) -> Iterator[TeamServer]:
    """A team whose coordinator is the first of the engines; ``price`` is that of the members."""
    (first, coordinator), *others = engines
    keys = {f"ENGINE_{number}_KEY": engine.key for number, (_, engine) in enumerate(engines, 1) if engine.key}
    told = {"price": price} if price else {}
    members = [
        member_of(name, engine, f"ENGINE_{number}_KEY", **told) for number, (name, engine) in enumerate(others, 2)
    ]
    page = {
        "guard": {"body": 100_000},
        "drain_s": 5,
        "paths": ["/health", "/v1/models", "/v1/chat/completions"],
        "open": ["/health"],
        "key_variable": "AGENT_TEAM_API_KEY",
        "name": MODEL,
        "coordinator": member_of(first, coordinator, "ENGINE_1_KEY"),
        "members": members,
        "most": {"turns": 12, "tokens": 40000, "seconds": 30, "cost": None, **(most or {})},
        "transcript": transcript,
    }
    file = folder / "team.json"
    file.write_text(json.dumps(page), encoding="utf-8")
    (folder / "sitecustomize.py").write_text(sitecustomize, encoding="utf-8")
    port = free_port()
    command = [str(python), str(PROGRAMS / "launch.py"), str(file), "--port", str(port)]
    variables = {
        "AGENT_TEAM_API_KEY": KEY,
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
        **keys,
        **(environment or {}),
    }
    with ended_at_end(command, variables, START_S) as (process, lines):
        server = TeamServer(port, process, lines)
        wait_until(lambda: _is_up(server), START_S)
        yield server


def _is_up(server: TeamServer) -> bool:
    assert server.process.poll() is None, "\n".join(server.lines)
    try:
        connection = HTTPConnection("127.0.0.1", server.port, timeout=ANSWER_S)
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
