"""llama-server ends when nobody asks it: no look wakes it, and the first token comes once it has loaded."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host

SCENARIO = Path(__file__).resolve().parents[1]
UNIT = "llama-server.service"
MARKER = "/run/switch-llama-server-keeper/asleep"
STARTS = "/var/lib/switch-llama-server-keeper/starts"
KEY_FILE = "/etc/llama-server.api-key"
FIRST_TOKEN = (SCENARIO.parent / "shared" / "first_token.py").read_text(encoding="utf-8")
SCRAPES = """
import http.client, time
for _ in range(30):
    for path in ("/health", "/metrics", "/v1/models", "/props"):
        connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=20)
        connection.request("GET", path)
        status = connection.getresponse().status
        assert status == (200 if path == "/health" else 503), (path, status)
        connection.close()
    time.sleep(0.1)
"""


def run_playbook(name: str, **variables: Any) -> None:
    """Run one of the scenario's playbooks on its container, with other variables than the scenario's."""
    command = ["ansible-playbook", "--inventory", os.environ["MOLECULE_INVENTORY_FILE"], str(SCENARIO / name)]
    named = {f"llama_cpp_{option}": value for option, value in variables.items()}
    done = subprocess.run(
        [*command, "--extra-vars", json.dumps(named)], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module", autouse=True)
def _idle(host: Host) -> Iterator[None]:
    """The server ends after three seconds of rest; later the scenario's own options hold again."""
    assert not host.file(MARKER).exists
    run_playbook("converge.yml", idle="3s")
    yield
    run_playbook("converge.yml")


def python(host: Host, program: str, *words: str) -> str:
    """What a program says in the container."""
    content = base64.b64encode(program.encode()).decode()
    host.check_output(f"echo {content} | base64 --decode > /run/program.py")
    return host.check_output(f"python3 /run/program.py {' '.join(words)}")


def fallen_asleep(host: Host) -> None:
    """Wait until the server has ended because nobody asked it."""
    is_over = f"test -e {MARKER} && [ $(systemctl is-active {UNIT}) = inactive ]"
    host.check_output(f"timeout 60 sh -c 'until {is_over}; do sleep 0.1; done'")


def starts(host: Host) -> int:
    """How often the server was started so far."""
    return int(host.check_output(f"journalctl --quiet --output cat --unit {UNIT} | grep -c '^Started '"))


def noted_start_s(host: Host) -> float:
    """How long its keeper says that the last start took; it hears of the answer a moment later than who asked."""
    host.check_output(f"timeout 10 sh -c 'until test -s {STARTS}; do sleep 0.1; done'")
    return float(host.check_output(f"cat {STARTS}").split()[-1])


def test_scrapes_do_not_wake_it_and_its_first_token_comes_as_soon_as_it_has_loaded(host: Host) -> None:
    fallen_asleep(host)
    host.check_output(f"rm -f {STARTS}")
    before = starts(host)
    python(host, SCRAPES)
    assert starts(host) == before
    told = json.loads(python(host, FIRST_TOKEN, "8080", "tiny", "<", KEY_FILE))
    start_s = noted_start_s(host)
    assert told["ended"] == "length"
    assert told["first"] <= start_s + 1, (told, start_s)
    assert starts(host) == before + 1
    fallen_asleep(host)


def test_its_proof_wakes_it_and_lets_it_end_again(host: Host) -> None:
    fallen_asleep(host)
    before = starts(host)
    run_playbook("verify_only.yml", idle="3s")
    assert starts(host) == before + 1
    fallen_asleep(host)


def test_the_role_starts_it_again_where_it_has_changed(host: Host) -> None:
    fallen_asleep(host)
    run_playbook("converge.yml", idle="3s", parallel=2)
    assert '"--parallel" "2"' in host.check_output(f"systemctl cat {UNIT}")
    fallen_asleep(host)
    assert json.loads(python(host, FIRST_TOKEN, "8080", "tiny", "<", KEY_FILE))["ended"] == "length"
