"""A lab is changed while people ask its gateway without a pause: no answer is cut, lost or refused."""

from __future__ import annotations

import base64
import itertools
import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from provisioner.models import tiny
from tests.integration.up.killing import killed_after
from tests.integration.up.quickstart_lab import MASTER_KEY, Lab, Ran, sh
from tests.lab.incus import Lab as Incus

pytestmark = pytest.mark.incus

ROOT = Path(__file__).resolve().parents[3]
LOAD = ROOT / "molecule" / "shared" / "load.py"
CLIENTS = 8
MOST_S = 200
"""So long the last answers may take."""
QUEUE_S = 120
FIRST_KILL_S, KILL_STEP_S, LEAST_KILLS = 3.0, 1.0, 5
"""Ansible begins after three seconds; a whole change takes ten to twenty."""
ENGINE, GATEWAY = "asked-engine", "asked-gateway"
PARTS = {"model": "builtin:tiny", "engine": "", "gateway": "", "aliases": "fast: [small]"}
FILE = f"""
name: asked
models:
  small: {{{{ source: "{{model}}", context: 512 }}}}
containers:
  {ENGINE}:
    services:
      llama_cpp: {{{{ model: small, api_key: !secret engine_key{{engine}} }}}}
  {GATEWAY}:
    services:
      litellm: {{{{ master_key: !secret master_key{{gateway}}, aliases: {{{{ {{aliases}} }}}} }}}}
"""
REFUSING = (
    "{% if messages[0]['content'] == 'Say hello.' %}{{ raise_exception('not to this') }}{% endif %}"
    "{% for message in messages %}{{ message['content'] }}{% endfor %}"
)
DEAF = f', extra_arguments: ["--chat-template", "{REFUSING}"]'
"""With it llama-server is healthy, and answers no completion that its proof asks for."""


def file(**parts: str) -> str:
    """The lab's file with these parts in place of the usual ones."""
    return FILE.format(**{**PARTS, **parts})


CHANGES: tuple[tuple[str, dict[str, str], bool], ...] = (
    ("another model under the same name", {"model": "file:other.gguf"}, True),
    ("an option of the engine", {"model": "file:other.gguf", "engine": ", batch: 256"}, True),
    ("an engine that answers no completion", {"model": "file:other.gguf", "engine": DEAF}, False),
    ("an alias", {"aliases": "fast: [small], slow: [small]"}, True),
    ("an option of the gateway", {"gateway": ", num_retries: 1"}, True),
    ("how long requests wait", {"engine": ", queue: 3m", "gateway": ", queue: 3m"}, True),
)
"""What is changed, the file's parts by then, and whether that succeeds."""


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab as it is before the first change; beside its file lies another model."""
    lab = Lab(tmp_path_factory.mktemp("asked"), incus_lab.environment, "debian/12", "debian/12", name="asked")
    lab.write(file())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny, "SPREAD", tiny.SPREAD * 0.9)
        (lab.folder / "other.gguf").write_bytes(tiny.tiny_model())
    lab.provision("destroy", "--prune", "--yes", "--lab", "asked")  # what an interrupted run of this test left
    first = lab.provision("up", "--yes")
    assert first.code == 0, first.out[-4000:] + first.err[-4000:]
    yield lab
    ended = lab.provision("destroy", "--prune", "--yes", "--lab", "asked")
    assert ended.code == 0, ended.out + ended.err


def while_asked(lab: Lab, happening: Callable[[], object]) -> dict[str, Any]:
    """What became of all answers that the gateway was asked for meanwhile, as ``molecule/shared/load.py`` says it."""
    content = base64.b64encode(LOAD.read_bytes()).decode()
    sh(lab, GATEWAY, f"rm -f /run/load.*; echo {content} | base64 --decode > /run/load.py")
    key = base64.b64encode(MASTER_KEY.encode()).decode()
    sh(lab, GATEWAY, f"umask 077; echo {key} | base64 --decode > /run/load.key")
    unit = "systemd-run --quiet --unit load --collect --property=StandardOutput=file:/run/load.told"
    sh(lab, GATEWAY, f"{unit} python3 /run/load.py 4000 {CLIENTS} /run/load.stop model /run/load.key fast")
    try:
        happening()
    finally:
        sh(lab, GATEWAY, "touch /run/load.stop")
    sh(lab, GATEWAY, f"timeout {MOST_S} sh -c 'while systemctl is-active --quiet load; do sleep 0.1; done'")
    return dict(json.loads(sh(lab, GATEWAY, "cat /run/load.told; rm -f /run/load.*")))


def mounted(lab: Lab) -> set[str]:
    """The models that are mounted in the engine's container."""
    devices = next(one for one in lab.made() if one["name"] == ENGINE)["devices"].values()
    return {device["source"] for device in devices if device.get("path", "").startswith("/srv/models/")}


@pytest.mark.parametrize("rounds", [1, pytest.param(7, marks=pytest.mark.slow)])
def test_no_answer_is_cut_lost_or_refused_over_changes(lab: Lab, rounds: int) -> None:
    ran: list[tuple[str, Ran, bool]] = []

    def change() -> None:
        for _ in range(rounds):
            for what, parts, succeeds in CHANGES:
                lab.write(file(**parts))
                ran.append((what, lab.provision("up", "--yes"), succeeds))

    before = mounted(lab)
    became = while_asked(lab, change)
    for what, answer, succeeds in ran:
        assert (answer.code == 0) is succeeds, (what, answer.out[-3000:], answer.err[-3000:])
    assert set(became) == {"whole", "slowest"}, became
    assert became["slowest"] < QUEUE_S
    assert became["whole"] > 50 * rounds
    assert len(ran) == rounds * len(CHANGES)
    assert mounted(lab) == before, "the last change has the first model again, and the other one is gone"
    assert lab.provision("verify").code == 0


@pytest.mark.slow
def test_a_failed_trial_leaves_everything_as_it_was(lab: Lab) -> None:
    lab.write(file())
    assert lab.provision("up", "--yes").code == 0
    seen = "systemctl show --value --property=MainPID llama-server; sha256sum /etc/systemd/system/llama-server.service"
    before = sh(lab, ENGINE, seen), mounted(lab)
    lab.write(file(model="file:other.gguf", engine=DEAF))
    answer = lab.provision("up", "--yes")
    assert answer.code == 3, answer.out + answer.err
    assert "tried beside the server that serves, the new one did not answer" in answer.err
    assert f"{ENGINE}: nothing was changed in it" in answer.err
    assert (sh(lab, ENGINE, seen), mounted(lab)) == before
    lab.write(file())
    assert lab.provision("plan", "--detailed-exitcode").code == 0, "what is there is what the file before says"


@pytest.mark.slow
def test_killed_at_any_moment_of_a_change_answers_go_on_and_one_engine_is_left(lab: Lab) -> None:
    """Each run is killed a second later than the one before, until one comes to its end first."""
    lab.write(file())
    assert lab.provision("up", "--yes").code == 0
    options = itertools.cycle([", batch: 256", ""])
    left = list[str]()

    def change() -> None:
        seconds = FIRST_KILL_S
        lab.write(file(engine=next(options)))
        while killed_after(lab, seconds, signal.SIGKILL):
            again = lab.provision("up", "--yes")
            assert again.code == 0, f"killed after {seconds} s: {again.out[-3000:]}{again.err[-3000:]}"
            left.append(sh(lab, ENGINE, "pgrep --count --exact llama-server").strip())
            lab.write(file(engine=next(options)))
            seconds += KILL_STEP_S

    became = while_asked(lab, change)
    assert len(left) > LEAST_KILLS
    assert set(left) == {"1"}
    assert set(became) == {"whole", "slowest"}, became


@pytest.mark.slow
def test_without_the_queue_the_same_changes_refuse_requests(lab: Lab) -> None:
    """The gate can fail: requests that may not wait are refused while the engine is exchanged."""
    lab.write(file(engine=", beside: false, queue: 0s", gateway=", num_retries: 0"))
    assert lab.provision("up", "--yes").code == 0

    def change() -> None:
        lab.write(file(engine=", beside: false, queue: 0s, batch: 128", gateway=", num_retries: 0"))
        assert lab.provision("up", "--yes").code == 0

    became = while_asked(lab, change)
    assert set(became) - {"whole", "slowest"}, became
