"""Two real llama-servers that share a card: ``up`` proves each in its turn, and later none of its runs is needed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from tests.integration.up.quickstart_lab import MASTER_KEY, Lab, sh
from tests.lab.incus import Lab as Incus

pytestmark = [pytest.mark.incus]

CHAT, CODE, GATEWAY = "turns-chat", "turns-code", "turns-gateway"
BOTH = (CHAT, CODE)
FILE = f"""
name: turns
hosts:
  box: {{{{ incus: local{{share}} }}}}
models:
  small: {{{{ source: "builtin:tiny", context: 512 }}}}
  other: {{{{ source: "builtin:tiny", context: 512 }}}}
containers:
  {CHAT}:
    services:
      llama_cpp: {{{{ model: small, hold: 3s, queue: 5m{{options}} }}}}
  {CODE}:
    services:
      llama_cpp: {{{{ model: other, hold: 3s, queue: 5m }}}}
  {GATEWAY}:
    services:
      litellm: {{{{ master_key: !secret master_key, aliases: {{{{ chat: [small], code: [other] }}}} }}}}
"""
SHARE = f", share: [[{CHAT}/llama_cpp, {CODE}/llama_cpp]]"
UNIT = "llama-server"
KEY = "share-box-key-that-nobody-may-see"
ASK = """
import collections, http.client, json, sys, threading, time
seen = collections.Counter()
def ask(model):
    messages = [{"role": "user", "content": "Hello."}]
    body = json.dumps({"model": model, "messages": messages, "max_tokens": 8, "ignore_eos": True})
    heads = {"Content-Type": "application/json", "Authorization": "Bearer " + key}
    connection = http.client.HTTPConnection("127.0.0.1", 4000, timeout=300)
    connection.request("POST", "/v1/chat/completions", body, heads)
    answer = connection.getresponse()
    said = json.loads(answer.read())
    seen[model, answer.status, said["choices"][0]["finish_reason"] if answer.status == 200 else str(said)] += 1
key = sys.stdin.readline().strip()
threads = []
for number in range(int(sys.argv[1])):
    threads.append(threading.Thread(target=ask, args=(("chat", "code")[number % 2],)))
    threads[-1].start()
    time.sleep(0.5)
for thread in threads:
    thread.join()
print(json.dumps([[*key, count] for key, count in sorted(seen.items())]))
"""


def file(share: str = SHARE, options: str = "") -> str:
    """The lab's file."""
    return FILE.format(share=share, options=options)


@pytest.fixture
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab before its first run."""
    environment = {**incus_lab.environment, "PROVISION_SECRET_SHARE_BOX": KEY}
    lab = Lab(tmp_path_factory.mktemp("turns"), environment, "debian/12", "debian/12", name="turns")
    lab.write(file())
    with lab.gone_afterwards():
        yield lab


def made(lab: Lab, text: str) -> str:
    """Have the lab as this file says; what was told meanwhile."""
    lab.write(text)
    ran = lab.succeeded("up", "--yes")
    assert KEY not in ran.out + ran.err
    return ran.out


def active(lab: Lab) -> list[str]:
    """The containers whose engines run."""
    return [name for name in BOTH if sh(lab, name, f"systemctl is-active {UNIT} || true").strip() == "active"]


def runs(lab: Lab) -> list[tuple[float, float]]:
    """From when to when engines ran, of both together, the earliest first."""
    found: list[tuple[float, float]] = []
    for name in BOTH:
        told = sh(lab, name, f"journalctl --quiet --output json --unit {UNIT}.service").splitlines()
        mine: list[tuple[float, float]] = []
        for line in map(json.loads, told):
            moment, words = int(line["__REALTIME_TIMESTAMP"]) / 1e6, str(line["MESSAGE"])
            if words.startswith("Started "):
                mine.append((moment, float("inf")))
            elif mine and words.startswith("Stopped "):
                mine[-1] = (mine[-1][0], moment)
        found += mine
    return sorted(found)


def asked(lab: Lab, count: int) -> list[list[Any]]:
    """What became of so many requests to both, through the gateway."""
    program = f"umask 077; cat > /run/ask.py <<'EOF'\n{ASK}EOF\ncat > /run/key <<'EOF'\n{MASTER_KEY}\nEOF\n"
    return list(json.loads(sh(lab, GATEWAY, f"{program}python3 /run/ask.py {count} < /run/key; rm /run/key")))


def test_two_engines_take_turns_without_a_run(lab: Lab) -> None:
    made(lab, file())
    assert len(active(lab)) <= 1
    assert asked(lab, 20) == [["chat", 200, "length", 10], ["code", 200, "length", 10]]
    ran = runs(lab)
    assert len(ran) > 3, "they have taken turns"
    assert [one for one, other in pairwise(ran) if other[0] < one[1]] == [], "two at once"
    serving = active(lab)
    assert len(serving) == 1
    assert lab.provision("plan", "--detailed-exitcode").code == 0
    status = lab.provision("status")
    asleep = CODE if serving == [CHAT] else CHAT
    assert f"{asleep}/llama_cpp: asleep since " in status.out, status.out
    assert "No changes" in lab.provision("up", "--yes").out
    assert active(lab) == serving
    lab.succeeded("verify", "--wake")
    for name in BOTH:
        assert KEY not in sh(lab, name, "ps axww -o args=; journalctl --quiet; cat /etc/switch-llama-server.cfg")

    changed = made(lab, file(options=", parallel: 2"))
    assert CODE not in changed.partition("Plan:")[0], "only the one that is changed"
    assert len(active(lab)) == 1
    assert asked(lab, 4) == [["chat", 200, "length", 2], ["code", 200, "length", 2]]
    ran = runs(lab)
    assert [one for one, other in pairwise(ran) if other[0] < one[1]] == [], "two at once"

    made(lab, file(share="").replace("hold: 3s, ", ""))
    assert active(lab) == [*BOTH]
    left = "ls /etc/systemd/system/llama-server.service.d/turns.conf /etc/switch-llama-server.turns-key 2>&1 || true"
    assert sh(lab, CHAT, left).count("No such file") == 2
    assert lab.provision("plan", "--detailed-exitcode").code == 0
