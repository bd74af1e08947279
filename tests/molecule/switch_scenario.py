"""What tests of the switch's scenario do to it and ask it, and how they see how it stands."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from testinfra.host import Host

from tests.processes import completed

SCENARIO = Path(__file__).resolve().parents[2] / "molecule" / "switch"
UNIT, ENGINE = "switch-engine.service", "engine.service"
CONFIG = "/etc/switch-engine.cfg"
SOCKET = "/run/switch-engine/control.sock"
CONTROL = f"python3 -IS /usr/local/lib/switch/control.py --socket {SOCKET}"
DROP_IN = f"/run/systemd/system/{ENGINE}.d"
RAW = """
import socket, sys, time
connection = socket.create_connection(("127.0.0.1", 8080))
connection.settimeout(60)
began = time.monotonic()
connection.sendall(bytes.fromhex(sys.argv[1]))
answer = connection.recv(65536)
print(round(time.monotonic() - began, 1))
connection.settimeout(20)
try:
    while part := connection.recv(65536):
        answer += part
except OSError:
    pass  # HAProxy 3.0 closes late, or hard, where the request was not read to its end
print(answer.decode())
"""


def run_playbook(playbook: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run one of the scenario's playbooks on its container, with other options than the scenario's."""
    command = ["ansible-playbook", "--inventory", os.environ["MOLECULE_INVENTORY_FILE"], str(SCENARIO / playbook)]
    named = {f"switch_{option}": value for option, value in options.items()}
    return completed([*command, "--extra-vars", json.dumps(named)], timeout_s=600)


def converged(**options: Any) -> None:
    """The role with other options than the scenario's."""
    done = run_playbook("converge.yml", **options)
    assert done.returncode == 0, done.stdout + done.stderr


def put(host: Host, path: str, text: str) -> None:
    """Write a file into the container."""
    content = base64.b64encode(text.encode()).decode()
    host.check_output(f"echo {content} | base64 --decode > {path}")


def ask(host: Host, request: str) -> tuple[float, str]:
    """How long one request waited for its answer, on a connection of its own, and all that was answered."""
    put(host, "/run/raw.py", RAW)
    took, _, answer = host.check_output("python3 /run/raw.py %s", request.encode().hex()).partition("\n")
    return float(took), answer


def raw_answer(host: Host, request: str) -> str:
    """All that was answered to one request, as it is written."""
    return ask(host, request)[1]


def get(path: str) -> str:
    """A look."""
    return f"GET {path} HTTP/1.1\r\nHost: engine\r\nConnection: close\r\n\r\n"


def post(body: dict[str, Any] | str, *headers: str) -> str:
    """A request for an answer."""
    text = body if isinstance(body, str) else json.dumps(body)
    lines = ["POST /v1/chat/completions HTTP/1.1", "Host: engine", "Connection: close", *headers]
    return "\r\n".join([*lines, f"Content-Length: {len(text)}", "", text])


def status(answer: str) -> int:
    """The status of an answer."""
    return int(answer.split()[1])


def seen_by_the_engine(host: Host) -> dict[str, Any]:
    """What the engine that runs now has seen."""
    answer = host.check_output(
        "python3 -c %s", "import urllib.request as r; print(r.urlopen('http://127.0.0.1:18080/').read().decode())"
    )
    return dict(json.loads(answer))


def state(host: Host) -> dict[str, Any]:
    """How the switch stands."""
    return dict(json.loads(host.check_output(f"{CONTROL} state")))


def wait_until_serving(host: Host) -> None:
    """Until the engine is in service again."""
    serves = f'{CONTROL} state | grep -q \'"a": {{"status": "UP\''
    host.check_output("timeout 60 sh -c %s", f"until {serves}; do sleep 0.2; done")


def wait_for(host: Host, what: str, count: int) -> None:
    """Until the switch says so many."""
    said = f"'\"{what}\": {count}\\b'"
    host.check_output("timeout 20 sh -c %s", f"until {CONTROL} state | grep -q {said}; do sleep 0.1; done")


def assert_refused(words: str) -> None:
    """The proof fails, for the reason that ``words`` name."""
    answer = run_playbook("verify_only.yml")
    shown = " ".join((answer.stdout + answer.stderr).split())
    assert answer.returncode != 0
    assert words in shown, shown
