"""``vllm`` in a lab's file, up on a real host: real vLLM on the processor, behind its switch and a gateway.

Its wheels are a third party's build, for tests alone (``tests/vllm_wheels.py``). The tests build on each other, in
their order.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from provisioner.values.paths import cache
from tests import vllm_wheels
from tests.integration.up.bridged_files import files_on_bridge
from tests.integration.up.quickstart_lab import MASTER_KEY, Lab
from tests.lab.incus import Lab as Incus
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.incus, pytest.mark.network, pytest.mark.slow]

NAME = "e2evllm"
KEY = "CANARY2-of-vllm-0123456789"
PORT, BEHIND = 8000, 18000
MIRROR_PORT = 18431
"""The same each time: the address is among what decides about the venv, which is kept between runs."""
WHEELS = cache() / "tests/vllm"
FILE = f"""
name: {NAME}
models:
  tiny: {{ source: "builtin:tiny-hf" }}
containers:
  hub:
    memory: 6GiB
    services:
      vllm:
        {{ model: tiny, stack: {vllm_wheels.NAME}, mirror: "MIRROR", api_key: !secret vllm_key, max_model_len: LENGTH }}
  gateway: {{ services: {{ litellm: {{ master_key: !secret master_key, aliases: {{ fast: [tiny] }} }} }} }}
"""


@pytest.fixture(scope="module")
def wheels() -> Path:
    """The folder of all wheels and of the lock, kept between runs."""
    vllm_wheels.filled(WHEELS)
    return WHEELS


@pytest.fixture(scope="module")
def mirror(wheels: Path, incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where containers reach the wheels: on the host's end of their bridge."""
    asking = Lab(tmp_path_factory.mktemp("asking"), incus_lab.environment, "debian/12", "debian/12")
    with files_on_bridge(asking, wheels, MIRROR_PORT) as address:
        yield address


class VllmLab(Lab):
    """The lab, with the file of a certain length of context."""

    mirror = ""

    def write_length(self, length: int) -> None:
        """Write the file, its stack and its secrets."""
        self.write(FILE.replace("MIRROR", self.mirror).replace("LENGTH", str(length)))
        vllm_wheels.write_page(self.folder / "stacks", WHEELS)
        with (self.folder / "secrets.env").open("a", encoding="utf-8") as file:
            file.write(f"vllm_key={KEY}\n")

    def asked(self, path: str, body: dict[str, Any], key: str | None = KEY) -> http.client.HTTPResponse:
        """The answer of the service's port, whose body is still to be read."""
        connection = http.client.HTTPConnection(self.address("hub"), PORT, timeout=300)
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        connection.request("POST", path, json.dumps(body), headers)
        return connection.getresponse()


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, wheels: Path, mirror: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmLab]:
    """The lab, up: the first run is its lock, the second its first ``up``."""
    lab = VllmLab(tmp_path_factory.mktemp("vllm"), incus_lab.environment, "debian/12", "debian/12", name=NAME)
    lab.mirror = mirror
    lab.write_length(512)
    with lab.gone_afterwards():
        lab.succeeded("lock", "--from", str(wheels))
        lab.succeeded("up", "--yes", "--json")
        yield lab


def test_it_is_proved_and_the_next_run_has_nothing_to_do(lab: VllmLab) -> None:
    assert lab.runs[1].checks == {"hub/vllm": True, "gateway/litellm": True}
    lab.succeeded("plan", "--detailed-exitcode")
    lab.succeeded("verify")


def test_the_gateway_answers_by_it(lab: VllmLab) -> None:
    answer = lab.ask("gateway", 4000, "fast", MASTER_KEY)
    assert answer.status == 200
    assert answer.body["choices"][0]["finish_reason"] in ("stop", "length")
    assert answer.text.strip()


def test_what_it_answers_to_everybody_inside_is_closed_outside(lab: VllmLab) -> None:
    body = {"model": "tiny", "prompt": "Hello", "max_tokens": 1}
    for path in ("/invocations", "/tokenize", "/v1/load_lora_adapter"):
        assert lab.asked(path, body, key=None).status == 404
    assert lab.asked("/v1/completions", body, key=None).status == 401
    ask = f"import urllib.request as r; print(r.urlopen('http://127.0.0.1:{BEHIND}/metrics').status)"
    assert lab.incus("exec", "hub", "--", "python3", "-c", ask).strip() == "200"


def benched(lab: VllmLab, *options: str) -> dict[str, Any]:
    """One result of a benchmark of the service."""
    found = lab.succeeded("bench", "hub", *options, "--yes", "--json")
    (one,) = found.result["results"]
    return dict(one)


def test_what_its_clients_see_is_measured_and_says_what_served(lab: VllmLab) -> None:
    one = benched(lab, "--kind", "llm", "--trials", "3", "--tokens", "64", "16")
    figures = {figure["name"]: figure for figure in one["figures"]}
    assert {"first token", "pp64", "tg16"} <= figures.keys()
    assert all(figure["median"] > 0 for figure in figures.values())
    python = lab.incus("exec", "hub", "--", "systemctl", "cat", "vllm.service").partition("X-Python=")[2].split()[0]
    assert one["setting"]["build"] == python.rpartition("/")[2]
    assert (len(one["setting"]["build"]), len(one["setting"]["model"])) == (16, 64)


def test_what_many_clients_see_is_measured(lab: VllmLab) -> None:
    one = benched(lab, "--kind", "load", "--clients", "2", "--tokens", "64", "16", "--within", "30", "5")
    figures = {figure["name"]: figure["median"] for figure in one["figures"]}
    assert figures.keys() == {"first token @ c2", "each @ c2", "all @ c2"}
    assert min(figures.values()) > 0


def test_a_stream_is_finished_before_it_is_stopped(lab: VllmLab) -> None:
    """Ended at once, vLLM says ``abort`` and ``[DONE]`` with HTTP 200."""
    body = {"model": "tiny", "prompt": "Hello", "max_tokens": 400, "temperature": 0, "stream": True}
    answer = lab.asked("/v1/completions", body)
    assert answer.status == 200
    answer.readline()  # it has begun
    restarting = threading.Thread(
        target=lab.incus, args=("exec", "hub", "--", "systemctl", "restart", "vllm.service"), daemon=True
    )
    restarting.start()
    lines = [line.removeprefix(b"data: ").strip() for line in answer if line.startswith(b"data: ")]
    restarting.join(PATIENCE_S)
    assert lines[-1] == b"[DONE]"
    ends = [json.loads(line)["choices"][0]["finish_reason"] for line in lines[:-1] if json.loads(line)["choices"]]
    assert ends[-1] == "length"
    waited = lab.asked("/v1/completions", {**body, "max_tokens": 1, "stream": False})  # while it starts
    assert (waited.status, json.load(waited)["choices"][0]["finish_reason"]) == (200, "length")


def test_another_context_is_an_exchange_that_takes_effect(lab: VllmLab) -> None:
    lab.write_length(256)
    began = time.monotonic()
    lab.succeeded("up", "--yes")
    assert time.monotonic() - began < 900
    too_long = lab.asked("/v1/completions", {"model": "tiny", "prompt": "Hello", "max_tokens": 300})
    assert too_long.status == 400
    assert "256" in too_long.read().decode()


def test_the_longest_context_that_it_really_answers_is_found(lab: VllmLab) -> None:
    """Each try is a start of the real vLLM, a minute on two cores: three contexts, two of which have to be tried."""
    found = lab.succeeded("probe", "hub", "--from", "480", "--to", "512", "--yes", "--refuse", "--json")
    result = found.result
    assert {one["outcome"] for one in result["tried"]} == {"answered"}
    assert result["longest"] == 512
    assert lab.provision("plan", "--detailed-exitcode").code == 0
    lab.succeeded("verify")


def test_no_secret_was_seen(lab: VllmLab) -> None:
    lab.shows_none_of("CANARY", MASTER_KEY)
    journal = lab.incus("exec", "hub", "--", "journalctl", "--no-pager", "--all", "--quiet")
    assert "vllm" in journal
    assert KEY not in journal
