"""The proof of a card against a vLLM that computes on the processor: each signal that says otherwise is refused.

The server is the real one, built for the processor, with a model of 680 MB; torch of its stack measures the processor.
What only a card could give is played around them: nvidia-smi's line of CSV, and the words of a unit of its own, which
are those of vLLM 0.33 (``v1/worker/gpu_model_runner.py``). The tests of this module build on each other, in their
order.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from provisioner.models import tiny_hf
from provisioner.reconcile.gather import probe
from provisioner.values.address import Address
from provisioner.values.facts import Verdict, by_address
from provisioner.values.paths import cache
from provisioner.values.state import Instance, Service
from tests import vllm_wheels
from tests.integration.role_box import RoleBox
from tests.integration.up.bridged_files import files_on_bridge
from tests.integration.up.drift_lab import DriftLab
from tests.lab.incus import Lab as Incus

pytestmark = [pytest.mark.incus, pytest.mark.network, pytest.mark.slow]

NAME = "vllmcard"
HUB = f"{NAME}-hub"
KEY = "CANARY2-of-vllm-0123456789"
MIRROR_PORT = 18431
"""As in the other test of vLLM: the address is among what decides about the venv."""
WHEELS = cache() / "tests/vllm"
FILE = f"""
name: {NAME}
models:
  large: {{ source: "dir:large" }}
containers:
  {HUB}:
    memory: 7GiB
    services:
      vllm:
        {{ model: large, stack: {vllm_wheels.NAME}, mirror: "MIRROR", api_key: !secret vllm_key, max_model_len: 512 }}
"""
LARGE = {"EMBEDDING": 1024, "HEADS": 16, "KEY_VALUE_HEADS": 8, "HEAD": 64, "FEED_FORWARD": 8192, "LAYERS": 12}
UUID = "GPU-3b1a0b36-7a4e-5d2a-9d0e-2f1f4c1d8a11"
CARD = {"vendor": "nvidia", "pci": "0000:01:00.0", "uuid": UUID, "name": "NVIDIA GeForce RTX 3060"}
SMI = f"""#!/bin/sh
echo "{UUID}, 00000000:01:00.0, NVIDIA GeForce RTX 3060, $(cat /srv/used)"
"""
WORDS = "/srv/words"
UNIT = f"""[Service]
ExecStartPre=/bin/sh -c '{{ echo "$$INVOCATION_ID"; nvidia-smi; }} > /run/played.card'
ExecStart=/bin/sh -c 'cat {WORDS}; exec sleep infinity'
"""
SAID = "device_config=cuda\nModel loading took 0.64 GiB memory and 3.100000 seconds\n"


def write_large(folder: Path) -> None:
    """The folder of ``builtin:tiny-hf`` with larger layers, whose numbers repeat."""
    with pytest.MonkeyPatch.context() as patched:
        for name, value in LARGE.items():
            patched.setattr(tiny_hf, name, value)
        files = {name: make() for name, make in tiny_hf._MAKERS.items() if not name.endswith(".safetensors")}
        shapes = {tensor.name: tensor.shape for tensor in tiny_hf._tensors()}
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    table: dict[str, Any] = {}
    end = 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * math.prod(shape)
        table[name] = {"dtype": "BF16", "shape": shape, "data_offsets": (begin, end)}
    head = json.dumps(table).encode()
    some = b"".join(struct.pack("<f", (number / 127.5 - 1) * 0.02)[2:] for number in range(256))
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        for shape in shapes.values():
            count = math.prod(shape)
            file.write(b"\x80\x3f" * count if len(shape) == 1 else (some * (count // 256 + 1))[: 2 * count])


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DriftLab]:
    """The lab, up, with vLLM for the processor."""
    vllm_wheels.filled(WHEELS)
    lab = DriftLab(tmp_path_factory.mktemp("card"), incus_lab.environment, "debian/12", "debian/12", name=NAME)
    write_large(lab.folder / "large")
    with files_on_bridge(lab, WHEELS, MIRROR_PORT) as mirror:
        lab.write(FILE.replace("MIRROR", mirror))
        vllm_wheels.write_page(lab.folder / "stacks", WHEELS)
        (lab.folder / "secrets.env").write_text(f"vllm_key={KEY}\n", encoding="utf-8")
        with lab.gone_afterwards():
            lab.succeeded("lock", "--from", str(WHEELS))
            first = lab.up()
            assert first.code == 0, first.out[-4000:] + first.err[-4000:]
            yield lab


@pytest.fixture(scope="module")
def box(lab: DriftLab, tmp_path_factory: pytest.TempPathFactory) -> RoleBox:
    """The server's container, with what plays a card in it."""
    box = RoleBox(lab.effects.providers["local"], HUB, tmp_path_factory.mktemp("play"))  # type: ignore[arg-type]
    box.run(f"cat > /usr/local/bin/nvidia-smi <<'END'\n{SMI}END\nchmod 755 /usr/local/bin/nvidia-smi")
    box.run(f"cat > /etc/systemd/system/played.service <<'END'\n{UNIT}END\nsystemctl daemon-reload; echo 5 > /srv/used")
    return box


def played(box: RoleBox, used_mib: int, said: str = SAID) -> None:
    """Start the unit whose words are those of a server on a card, which then uses so much more."""
    box.run(f"systemctl stop played; echo 5 > /srv/used; printf '%s' '{said}' > {WORDS}; systemctl start played")
    box.run("until journalctl --unit played --grep device_config --quiet > /tmp/seen; do sleep 0.2; done")
    box.run(f"echo {used_mib} > /srv/used")


def proof(box: RoleBox, **more: Any) -> str:
    """What the part of the role's proof that is about a card says."""
    python = box.run("grep -o 'ExecStart=[^ ]*' /etc/systemd/system/vllm.service | cut -d= -f2").strip()
    folder = box.run("grep -o '\"/srv/models/[^\"]*\"' /etc/systemd/system/vllm.service | head -1 | tr -d '\"'").strip()
    told = {
        "vllm_model": Path(folder).name,
        "vllm_model_dir": str(Path(folder).parent),
        "vllm_api_key": KEY,
        "vllm_python": python,
        "vllm_backend": "cuda",
        "vllm_card": CARD,
        "__vllm_length": 128,  # shorter prompts: nothing here is fast
        "__vllm_provable_bytes": 2**40,  # speeds are measured where a test asks for it
        "__vllm_unit": "played.service",
        "__vllm_before_file": "/run/played.card",
    }
    task = {"name": "Prove", "ansible.builtin.include_role": {"name": "vllm", "tasks_from": "verify_device"}}
    return box.play({"tasks": [task]}, told | more)


def refused(said: str, *words: str) -> None:
    flat = re.sub(r"\s+", " ", said)
    assert said.endswith("rc=2"), said
    assert [one for one in words if one not in flat] == [], said
    assert KEY not in said


def shown(box: RoleBox) -> Verdict:
    """What is noted of it."""
    service = Service("vllm", HUB, "engine", {}, port=8000, unit="played.service")
    facts = probe([Instance(HUB, "local", NAME, "debian/12", services=(service,))], {"local": box.provider})
    return by_address(facts, Verdict)[Address(f"{HUB}/vllm")]


def test_a_server_that_says_that_it_computes_on_the_processor_is_refused(box: RoleBox) -> None:
    real = {"__vllm_unit": "vllm.service", "__vllm_before_file": "/run/vllm.card"}
    refused(proof(box, **real), "the server said that it computes on cpu. Another stack, or `environment`")


def test_memory_that_does_not_grow_is_refused(box: RoleBox) -> None:
    played(box, used_mib=5)
    refused(proof(box), "the memory in use on NVIDIA GeForce RTX 3060 (0000:01:00.0) has grown by 0 MiB")
    assert "has grown by 0 MiB" in shown(box).why


def test_a_server_that_is_no_faster_than_the_processor_is_refused(box: RoleBox) -> None:
    """Real vLLM is asked, and its processor is measured by its own torch."""
    played(box, used_mib=900)
    said = proof(box, __vllm_provable_bytes=2**29)
    refused(said, "tokens/s of a prompt, and the CPU alone", "A card that computes is 1.3 times as fast")
    found = re.search(r"it computes ([\d.]+) tokens/s .*? and ([\d.]+) tokens/s of", re.sub(r"\s+", " ", said))
    assert found is not None
    assert all(float(speed) > 0 for speed in found.groups())


def test_all_three_make_a_gpu_and_are_noted_for_this_start(box: RoleBox) -> None:
    """The speeds are given: nothing here is faster than the processor."""
    given = {
        "__vllm_timings": [{"prompt_per_second": 9000.0, "predicted_per_second": 90.0}],
        "__vllm_speeds": {"prompt": 90.0, "generated": 4.0},
    }
    said = proof(box, **given)
    assert said.endswith("rc=0"), said
    found = shown(box)
    assert (found.verdict, found.stale) == ("GPU", "")
    assert "cuda has 655 MiB of the model by its own word" in found.why
    assert "holds 895 MiB for 655 MiB" in found.why
    played(box, used_mib=900)
    assert shown(box).stale
