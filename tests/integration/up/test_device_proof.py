"""The proof of a GPU against a server that lies: it lists a card, says that the card has all layers, and uses the CPU.

The server and llama-bench are the real ones, built for the CPU, with a model of 540 MB. What only a card could give is
played around them: the list of devices, the words in the journal, nvidia-smi's line of CSV, the name in ``gpu_info``.
Each signal that says otherwise is refused by the role itself. The tests of this module build on each other, in their
order.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from provisioner.models import tiny as tiny_model
from provisioner.reconcile.gather import probe
from provisioner.reconcile.judge import processor
from provisioner.services.base import Processor
from provisioner.values.address import Address
from provisioner.values.facts import UnitState, Verdict, by_address
from provisioner.values.state import Instance, Service
from tests.integration.role_box import RoleBox
from tests.integration.up.drift_lab import DriftLab
from tests.integration.up.quickstart_lab import ENGINE_KEY
from tests.lab.incus import Lab as Incus
from tests.lab_files import lab_text

pytestmark = [pytest.mark.incus]

NAME = "proof"
ENGINE = f"{NAME}-engine"
ADDRESS = f"{ENGINE}/llama_cpp"
FILE = lab_text("device_proof")
LARGE = {"EMBEDDING": 1024, "FEED_FORWARD": 4096, "LAYERS": 8, "HEADS": 8}
UUID = "GPU-3b1a0b36-7a4e-5d2a-9d0e-2f1f4c1d8a11"
CARD = {"vendor": "nvidia", "pci": "0000:01:00.0", "uuid": UUID, "name": "NVIDIA GeForce RTX 3060"}
PLAYED = {
    "/srv/played/bin/llama-server": r"""#!/bin/bash
case " $* " in
*" --list-devices "*)
  printf 'Available devices:\n'
  if [ -e /srv/no-card ]; then printf '  (none)\n'
  else printf '  CUDA0: NVIDIA GeForce RTX 3060 (12288 MiB, 11900 MiB free)\n'; fi
  exit 0 ;;
*" --help "*) exec /opt/llama_cpp/*/bin/llama-server "$@" ;;
esac
words=()
while [ $# -gt 0 ]; do
  case $1 in --device | --gpu-layers) shift 2 ;; *) words+=("$1"); shift ;; esac
done
echo 'load_tensors: offloaded 9/9 layers to GPU' >&2
exec /opt/llama_cpp/*/bin/llama-server "${words[@]}"
""",
    "/srv/played/bin/llama-bench": r"""#!/bin/bash
set -o pipefail
/opt/llama_cpp/*/bin/llama-bench "$@" | python3 -c '
import json, os, sys
runs = json.load(sys.stdin)
for one in runs:
    one["gpu_info"] = "NVIDIA GeForce RTX 3060" if os.path.exists("/srv/seen-by-bench") else one["gpu_info"]
    one["samples_ts"] = [speed / (1000 if os.path.exists("/srv/slow-bench") else 1) for speed in one["samples_ts"]]
json.dump(runs, sys.stdout)'
""",
    "/usr/local/bin/nvidia-smi": f"""#!/bin/sh
case "$*" in *memory.free*) cat /srv/free; exit ;; esac
used=5
for unit in llama-server $([ -e /srv/first-alone ] || echo llama-server-beside); do
  [ -e /srv/grows ] && ! systemctl show --property MainPID $unit | grep -q '=0$' && used=$((used + 800))
done
echo "{UUID}, 00000000:01:00.0, NVIDIA GeForce RTX 3060, $used"
""",
}


def repeated(tensor: Any) -> bytes:
    """Weights of a tensor as large as no digest is long; those of a norm are ones."""
    count = 1
    for rows in tensor.shape:
        count *= rows
    if len(tensor.shape) == 1:
        return struct.pack(f"<{count}f", *[1.0] * count)
    some = struct.pack("<256f", *[(number / 127.5 - 1) * 0.02 for number in range(256)])
    return (some * (count // 256 + 1))[: 4 * count]


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DriftLab]:
    """The lab, up, with an engine for the CPU."""
    folder = tmp_path_factory.mktemp(NAME)
    with pytest.MonkeyPatch.context() as patched:
        for name, value in LARGE.items():
            patched.setattr(tiny_model, name, value)
        patched.setattr(tiny_model._Tensor, "content", property(repeated))
        (folder / "large.gguf").write_bytes(tiny_model.tiny_model())
    lab = DriftLab(folder, incus_lab.environment, "debian/12", "debian/12", name=NAME)
    lab.write(FILE)
    with lab.brought_up():
        yield lab


@pytest.fixture(scope="module")
def box(lab: DriftLab, tmp_path_factory: pytest.TempPathFactory) -> RoleBox:
    """The engine's container, with what plays a card in it."""
    box = RoleBox(lab.effects.providers["local"], ENGINE, tmp_path_factory.mktemp("play"))  # type: ignore[arg-type]
    box.run("mkdir -p /srv/played/bin && touch /srv/played/bin/libggml-cuda.so")
    for path, text in PLAYED.items():
        box.run(f"cat > {path} <<'END'\n{text}END\nchmod 755 {path}")
    box.run("cd /srv/played && sha256sum bin/* > MANIFEST.sha256")
    return box


def variables(box: RoleBox, **more: Any) -> dict[str, Any]:
    model = box.run('grep -o \'"--model" "[^"]*"\' /etc/systemd/system/llama-server.service | cut -d\'"\' -f4').strip()
    return {
        "llama_cpp_model": model,
        "llama_cpp_alias": "large",
        "llama_cpp_context": 512,
        "llama_cpp_api_key": ENGINE_KEY,
        "llama_cpp_backend": "cuda",
        "llama_cpp_cuda_architectures": ["86"],
        "llama_cpp_card": CARD,
        "llama_cpp_artifact_path": "/srv/played",
        **more,
    }


def role(box: RoleBox, **more: Any) -> str:
    """What a whole run of the role says."""
    return box.play({"roles": ["llama_cpp"]}, variables(box, **more))


def proof(box: RoleBox, **more: Any) -> str:
    """What the role's proof alone says."""
    task = {"name": "Prove", "ansible.builtin.include_role": {"name": "llama_cpp", "tasks_from": "verify"}}
    return box.play({"tasks": [task]}, variables(box, **more))


def refused(said: str, *words: str) -> None:
    flat = re.sub(r"\s+", " ", said)
    assert said.endswith("rc=2"), said
    assert [one for one in words if one not in flat] == [], said
    assert ENGINE_KEY not in said


def shown(box: RoleBox) -> tuple[str, str]:
    """What ``status`` would say of it: what computes, and why."""
    service = Service("llama_cpp", ENGINE, "engine", {}, port=8080, unit="llama-server.service")
    facts = probe([Instance(ENGINE, "local", NAME, "debian/12", services=(service,))], {"local": box.provider})
    address = Address(ADDRESS)
    runs, verdict = by_address(facts, UnitState)[address].is_active, by_address(facts, Verdict).get(address)
    return processor(verdict, Processor(is_device=True, why=""), runs=runs, healthy=runs)


def test_memory_that_does_not_grow_is_refused(box: RoleBox) -> None:
    assert shown(box) == ("device named, unproven", "not proved yet: provision verify")
    said = role(box)
    refused(
        said, "the memory in use on NVIDIA GeForce RTX 3060 (0000:01:00.0) has grown by 0 MiB", "MiB of weights need"
    )
    assert "has grown by 0 MiB" in shown(box)[1]
    assert box.run("stat -c %a /run/llama-server.card /var/lib/provisioner/proofs/llama_cpp.json").split() == [
        "600",
        "600",
    ]


def test_a_bench_that_sees_no_gpu_is_refused(box: RoleBox) -> None:
    box.run("touch /srv/grows && systemctl restart llama-server")
    refused(proof(box), "llama-bench, built with it, sees no GPU (its gpu_info is empty)")


def test_the_speed_of_the_cpu_is_refused(box: RoleBox) -> None:
    box.run("touch /srv/seen-by-bench")
    for _ in range(
        3
    ):  # where others compute while the CPU is measured, the server on that CPU may seem to be the faster
        box.run("rm -f /var/lib/provisioner/proofs/llama_cpp.speed.json")
        said = proof(box)
        if said.endswith("rc=2"):
            break
    refused(said, "it computes", "tokens/s of its answer", "and the CPU alone")
    assert shown(box)[0] == "device named, unproven"


def test_all_three_signals_make_a_gpu(box: RoleBox) -> None:
    box.run("touch /srv/slow-bench && rm -f /var/lib/provisioner/proofs/llama_cpp.speed.json")
    said = proof(box)
    assert said.endswith("rc=0"), said
    verdict, why = shown(box)
    assert verdict == "GPU"
    assert why.startswith("CUDA0 has 9 of 9 layers; NVIDIA GeForce RTX 3060 (0000:01:00.0) holds 800 MiB for 5")
    assert "where the CPU makes" in why


def test_a_verdict_ends_with_the_start_that_it_speaks_of(box: RoleBox) -> None:
    box.run("systemctl restart llama-server")
    assert shown(box) == ("device named, unproven", "it was started again since its proof: provision verify")
    assert proof(box).endswith("rc=0")
    assert shown(box)[0] == "GPU"


BESIDE = "llama-server-beside"
ROOM = 2000 * 2**20
"""Bytes that the server is reckoned to take of the card."""


def started_beside(box: RoleBox) -> int:
    """How often a server was started beside the one that serves."""
    return int(box.run(f"journalctl --quiet --output cat --unit {BESIDE} | grep -c '^Started ' || true"))


def serving(box: RoleBox) -> str:
    return box.run("systemctl show --property MainPID llama-server; cat /etc/systemd/system/llama-server.service")


def test_a_changed_one_takes_over_beside_where_the_card_has_room_for_both(box: RoleBox) -> None:
    box.run("echo 2001 > /srv/free")
    before = serving(box)
    said = role(box, llama_cpp_card_bytes=ROOM, llama_cpp_batch=256)
    assert said.endswith("rc=0"), said
    assert started_beside(box) == 1
    assert serving(box) != before
    assert shown(box)[0] == "GPU"
    assert box.run(f"ls -d /run/{BESIDE}* /run/systemd/system/{BESIDE}* 2> /dev/null || true") == ""


def test_one_that_does_not_lie_on_the_card_is_refused_beside_and_changes_nothing(box: RoleBox) -> None:
    box.run("touch /srv/first-alone")
    before = serving(box)
    said = role(box, llama_cpp_card_bytes=ROOM, llama_cpp_batch=512)
    box.run("rm /srv/first-alone")
    refused(said, "tried beside the server that serves, the new one failed its proof. That one was not touched")
    refused(said, "has grown by 0 MiB since before its start")
    assert started_beside(box) == 2
    assert serving(box) == before
    assert shown(box)[0] == "GPU", "what was noted of the one that serves counts still"


@pytest.mark.parametrize("free", ["1999", "[N/A]", ""])
def test_without_room_on_the_card_it_is_exchanged(box: RoleBox, free: str) -> None:
    box.run(f"echo '{free}' > /srv/free")
    before = serving(box)
    said = role(box, llama_cpp_card_bytes=ROOM, llama_cpp_batch=300 + len(free))
    assert said.endswith("rc=0"), said
    assert started_beside(box) == 2
    assert serving(box) != before


def test_where_nobody_knows_what_it_takes_of_the_card_it_is_exchanged(box: RoleBox) -> None:
    box.run("echo 9999 > /srv/free")
    said = role(box, llama_cpp_batch=512)
    assert said.endswith("rc=0"), said
    assert started_beside(box) == 2


def test_a_card_that_goes_away_takes_its_verdict_with_it(box: RoleBox) -> None:
    box.run("touch /srv/no-card")
    said = proof(box)
    box.run("rm /srv/no-card")
    refused(said, "Unable to prove that large is computed by CUDA0: the driver cannot be loaded: libcuda.so.1")
    assert shown(box)[0] == "device named, unproven"


def test_without_a_reading_from_before_the_start_nothing_is_proved(box: RoleBox) -> None:
    box.run("rm /var/lib/provisioner/proofs/llama_cpp.json /run/llama-server.card")
    refused(proof(box), "nobody measured the card before the server started")


def test_a_device_by_hand_whose_card_cannot_be_measured_is_unproven(box: RoleBox) -> None:
    box.run("rm /usr/local/bin/nvidia-smi")
    assert proof(box, llama_cpp_card={}).endswith("rc=0")
    verdict, why = shown(box)
    assert verdict == "device named, unproven"
    assert "its memory could not be measured: nvidia-smi" in why


def test_a_real_build_for_the_cpu_is_refused_before_the_server_is_touched(box: RoleBox) -> None:
    said = role(box, llama_cpp_artifact_path=box.run("echo /opt/llama_cpp/*").strip())
    refused(said, "the program is built for the CPU only, there is no cuda in it")
