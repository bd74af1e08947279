"""An engine that nobody asks ends in a whole lab: no verb, scrape or gateway wakes it, and the next request does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.up.quickstart_lab import MASTER_KEY, Lab, sh
from tests.lab.incus import Lab as Incus

pytestmark = [pytest.mark.incus]

ENGINE, GATEWAY = "idle-engine", "idle-gateway"
ADDRESS = f"{ENGINE}/llama_cpp"
FILE = f"""
name: idle
models:
  small: {{{{ source: "builtin:tiny", context: 512 }}}}
containers:
  {ENGINE}:
    services:
      llama_cpp: {{{{ model: small, idle: {{idle}}, queue: {{queue}} }}}}
{{more}}"""
WITH_GATEWAY = f"""
  {GATEWAY}:
    services:
      litellm: {{ master_key: !secret master_key, aliases: {{ fast: [small] }} }}
"""
UNIT = "llama-server"
STARTS = "/var/lib/switch-llama-server-keeper/starts"
SCRAPES = """
import http.client, sys, time
began = time.monotonic()
for number in range(240):
    for path in sys.argv[2:]:
        connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=20)
        connection.request("GET", path)
        connection.getresponse().read()
        connection.close()
    time.sleep(max(0, began + number + 1 - time.monotonic()))
"""
FIRST_TOKEN = Path(__file__).resolve().parents[3] / "molecule" / "shared" / "first_token.py"


def file(idle: str, queue: str = "2m", more: str = "") -> str:
    """The lab's file."""
    return FILE.format(idle=idle, queue=queue, more=more)


@pytest.fixture
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab before its first run."""
    lab = Lab(tmp_path_factory.mktemp("idle"), incus_lab.environment, "debian/12", "debian/12", name="idle")
    lab.write(file("1h"))
    with lab.gone_afterwards():
        yield lab


def made(lab: Lab, text: str) -> None:
    """Have the lab as this file says."""
    lab.write(text)
    lab.succeeded("up", "--yes")


def fallen_asleep(lab: Lab) -> None:
    """Wait until the engine has ended because nobody asked it."""
    marker = "/run/switch-llama-server-keeper/asleep"
    is_over = f"test -e {marker} && [ $(systemctl is-active {UNIT}) = inactive ]"
    sh(lab, ENGINE, f"timeout 120 sh -c 'until {is_over}; do sleep 0.2; done'")


def starts(lab: Lab) -> int:
    """How often the engine was started so far."""
    return int(sh(lab, ENGINE, f"journalctl --quiet --output cat --unit {UNIT} | grep -c '^Started '"))


def first_token_s(lab: Lab, container: str, port: int, model: str) -> float:
    """How long a client waits for the first token of a stream."""
    program = f"cat > /run/first.py <<'EOF'\n{FIRST_TOKEN.read_text(encoding='utf-8')}EOF\n"
    key = f"cat > /run/first.key <<'EOF'\n{MASTER_KEY}\nEOF\n"
    run = f"python3 /run/first.py {port} {model} < /run/first.key; rm /run/first.key"
    return float(json.loads(sh(lab, container, f"umask 077; {program}{key}{run}"))["first"])


def start_s(lab: Lab) -> float:
    """How long the last start took, as its keeper says."""
    sh(lab, ENGINE, f"timeout 20 sh -c 'until test -s {STARTS}; do sleep 0.1; done'")
    return float(sh(lab, ENGINE, f"cat {STARTS}").split()[-1])


def test_no_verb_wakes_it_but_verify_that_is_told_to(lab: Lab) -> None:
    made(lab, file("3s"))
    fallen_asleep(lab)
    before = starts(lab)
    assert lab.provision("plan", "--detailed-exitcode").code == 0
    status = lab.provision("status")
    assert f"{ADDRESS}: asleep since " in status.out, status.out
    assert "its start was not measured yet" in status.out or "starts in " in status.out
    verified = lab.provision("verify")
    assert (verified.code, f"idle {ADDRESS}: not asked: asleep since " in verified.out) == (0, True), verified.out
    assert "No changes" in lab.provision("up", "--yes").out
    assert starts(lab) == before
    woken = lab.provision("verify", "--wake")
    assert (woken.code, "everything works" in woken.out) == (0, True), woken.out + woken.err
    assert starts(lab) == before + 1
    fallen_asleep(lab)
    sh(lab, ENGINE, f"rm -f {STARTS}")
    waited = first_token_s(lab, ENGINE, 8080, "small")
    assert waited <= start_s(lab) + 1
    sh(lab, ENGINE, f"echo 30.5 > {STARTS}")
    lab.write(file("3s", "30s"))
    refused = lab.provision("plan")
    words = (
        "8: containers.idle-engine.services.llama_cpp.queue: its start took 30.5 s, and requests wait for it for 30s"
    )
    assert (refused.code, words in refused.err) == (64, True), refused.err
    made(lab, file("0s"))
    assert sh(lab, ENGINE, f"systemctl is-active {UNIT}").strip() == "active"
    gone = sh(lab, ENGINE, "systemctl show --value --property=LoadState switch-llama-server-keeper.service")
    assert gone.strip() == "not-found"


@pytest.mark.slow
def test_four_minutes_of_scrapes_and_a_gateway_do_not_wake_it(lab: Lab) -> None:
    made(lab, file("20s", more=WITH_GATEWAY))
    fallen_asleep(lab)
    before = starts(lab)
    program = f"cat > /run/scrapes.py <<'EOF'\n{SCRAPES}EOF\n"
    pages = {
        ENGINE: "8080 /health /metrics /v1/models",
        GATEWAY: "4000 /health/readiness /health/liveliness /v1/models",
    }
    for container, words in pages.items():
        sh(lab, container, f"{program} systemd-run --quiet --unit scrapes --collect python3 /run/scrapes.py {words}")
    for verb in (("plan", "--detailed-exitcode"), ("status",), ("verify",), ("up", "--yes")):
        lab.succeeded(*verb)
    for container in pages:
        sh(lab, container, "timeout 300 sh -c 'while systemctl is-active --quiet scrapes; do sleep 0.5; done'")
    assert starts(lab) == before
    sh(lab, ENGINE, f"rm -f {STARTS}")
    waited = first_token_s(lab, GATEWAY, 4000, "fast")
    told = {"first_token_s": waited, "start_s": start_s(lab)}
    assert told["first_token_s"] <= told["start_s"] + 1, json.dumps(told)
    assert starts(lab) == before + 1
