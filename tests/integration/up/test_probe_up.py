"""``provision probe`` on a real host: a real llama-server whose ceiling is that of its container's memory.

The tests of this module build on each other, in their order.
"""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from provisioner.models import tiny as tiny_model
from tests.integration.up.quickstart_lab import ENGINE_KEY, Lab
from tests.lab.incus import Lab as Incus

pytestmark = [pytest.mark.incus, pytest.mark.slow]

NAME = "ceiling"
ENGINE = f"{NAME}-engine"
FILE = f"""
name: {NAME}
models:
  deep: {{ source: "file:deep.gguf", context: 512 }}
containers:
  {ENGINE}:
    image: debian/12
    memory: 768MiB
    services:
      llama_cpp: {{ model: deep, context: 512, kv_cache: {{ k: f32, v: f32 }}, api_key: !secret engine_key }}
"""
DEEP = {"EMBEDDING": 512, "FEED_FORWARD": 64, "LAYERS": 32, "HEADS": 8, "CONTEXT": 8192}
"""128 KiB of cache for each token, and little to compute."""


def repeated(tensor: Any) -> bytes:
    """Weights of a tensor as large as no digest is long; those of a norm are ones."""
    count = 1
    for rows in tensor.shape:
        count *= rows
    if len(tensor.shape) == 1:
        return struct.pack(f"<{count}f", *[1.0] * count)
    some = struct.pack("<256f", *[(number / 127.5 - 1) * 0.05 for number in range(256)])
    return (some * (count // 256 + 1))[: 4 * count]


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab, up."""
    folder = tmp_path_factory.mktemp(NAME)
    with pytest.MonkeyPatch.context() as patched:
        for name, value in DEEP.items():
            patched.setattr(tiny_model, name, value)
        patched.setattr(tiny_model._Tensor, "content", property(repeated))
        (folder / "deep.gguf").write_bytes(tiny_model.tiny_model())
    lab = Lab(folder, incus_lab.environment, "debian/12", "debian/12", name=NAME)
    lab.write(FILE)
    lab.provision("destroy", "--prune", "--yes", "--lab", NAME)  # what an interrupted run of this test left
    first = lab.provision("up", "--yes")
    assert first.code == 0, first.out[-4000:] + first.err[-4000:]
    yield lab
    ended = lab.provision("destroy", "--prune", "--yes", "--lab", NAME)
    assert ended.code == 0, ended.out + ended.err


def test_the_ceiling_of_its_memory_is_found_and_whoever_asks_meanwhile_is_answered(lab: Lab) -> None:
    statuses: list[int] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            statuses.append(lab.ask(ENGINE, 8080, "deep", ENGINE_KEY).status)
            over.wait(1)

    asking = threading.Thread(target=ask)
    asking.start()
    found = lab.provision("probe", ENGINE, "--from", "512", "--to", "8192", "--yes", "--json")
    over.set()
    asking.join()
    assert found.code == 0, found.out + found.err
    (result,) = [line for line in found.lines if line["type"] == "result"]
    outcomes = {one["context"]: one["outcome"] for one in result["tried"]}
    longest = result["longest"]
    assert 512 <= longest < 8192
    assert outcomes[longest] == "answered"
    assert outcomes[longest + 256] == "no room"
    assert statuses
    assert {*statuses} == {200}


def test_nothing_of_it_is_left_and_the_engine_serves(lab: Lab) -> None:
    left = lab.incus("exec", ENGINE, "--", "sh", "-c", "ls /run/systemd/system/ | grep provision-trial || true")
    assert left == ""
    assert lab.provision("plan", "--detailed-exitcode").code == 0
    assert lab.provision("verify").code == 0


def test_the_next_run_knows_it(lab: Lab) -> None:
    again = lab.provision("probe", ENGINE, "--from", "512", "--to", "8192")
    assert again.code == 0, again.out + again.err
    assert f"for {ENGINE}/llama_cpp." in again.out


def test_no_secret_was_seen(lab: Lab) -> None:
    assert not lab.arguments_seen
    assert ENGINE_KEY not in json.dumps([run.out + run.err for run in lab.runs])
