"""The proof on a real graphics card; where there is none, every test says so and is skipped."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from provisioner.ansible.modules.provision_card_memory import MIB, QUERY, of_nvidia, uses_in
from provisioner.gpus.cards import Card
from provisioner.gpus.look import SCRIPT, cards_in
from provisioner.models import tiny as tiny_model
from tests.integration.up.drift_lab import DriftLab
from tests.integration.up.test_device_proof import LARGE, repeated
from tests.lab.incus import Lab as Incus
from tests.lab_files import lab_text
from tests.processes import awaited_at_end

pytestmark = [pytest.mark.gpu]

NAME = "card"
ENGINE = f"{NAME}-engine"
FILE = lab_text("real_card")
TAKEN_MIB = 700
TAKE = f"""
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
device, context, place = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
for step in (
    lambda: cuda.cuInit(0),
    lambda: cuda.cuDeviceGet(ctypes.byref(device), 0),
    lambda: cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device),
    lambda: cuda.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t({TAKEN_MIB} << 20)),
):
    code = step()
    assert code == 0, code
print("taken", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def card() -> Card:
    """The first card of this machine that containers can be given."""
    said = subprocess.run(["sh", "-c", SCRIPT], capture_output=True, text=True, check=False, timeout=60).stdout
    cards = cards_in(said)
    usable = [one for one in cards if one.is_usable]
    if not usable:
        found = ", ".join(f"{one.title}: {one.obstacle()}" for one in cards) or "none"
        pytest.skip(f"this machine has no graphics card that containers could be given; found: {found}")
    return usable[0]


def said_of_nvidia() -> str:
    if not shutil.which(QUERY[0]):
        pytest.skip("there is no nvidia-smi on this machine")
    return subprocess.run(QUERY, capture_output=True, text=True, check=True, timeout=60).stdout


def test_memory_that_a_process_takes_is_seen_to_grow() -> None:
    """Any NVIDIA card will do, without containers: what the driver really prints is read, and means what we think."""
    before = said_of_nvidia()
    first = uses_in(before)[0]
    with awaited_at_end(
        subprocess.Popen([sys.executable, "-c", TAKE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    ) as taker:
        assert taker.stdout
        assert taker.stdin
        assert taker.stdout.readline() == "taken\n"
        found = of_nvidia(said_of_nvidia(), before, {}, [first.name])
        taker.stdin.close()
    assert found.problem == ""
    assert TAKEN_MIB * MIB <= found.grown < 4 * TAKEN_MIB * MIB
    assert found.used >= found.grown


@pytest.fixture(scope="module")
def lab(card: Card, incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DriftLab]:
    """A lab with an engine on the card, up."""
    folder = tmp_path_factory.mktemp(NAME)
    with pytest.MonkeyPatch.context() as patched:
        for name, value in LARGE.items():
            patched.setattr(tiny_model, name, value)
        patched.setattr(tiny_model._Tensor, "content", property(repeated))
        (folder / "large.gguf").write_bytes(tiny_model.tiny_model())
    lab = DriftLab(folder, incus_lab.environment, "debian/13", "debian/13", name=NAME)
    lab.write(FILE.replace("PCI", card.pci))
    with lab.brought_up():
        yield lab


def service(lab: DriftLab) -> dict[str, str]:
    lines = lab.provision("status", "--json").lines
    (container,) = (one for one in lines if one["type"] == "container")
    # The user space of its card stands before it.
    return dict(next(one for one in container["services"] if one["processor"]))


@pytest.mark.incus
@pytest.mark.network
@pytest.mark.slow
def test_an_engine_on_the_card_is_proved_and_status_says_why(lab: DriftLab) -> None:
    assert service(lab)["processor"] == "GPU"
    assert re.search(r"holds [\d,]+ MiB for [\d,]+ MiB; .* tokens/s where the CPU makes", service(lab)["why"])
    assert lab.provision("verify").code == 0


@pytest.mark.incus
@pytest.mark.network
@pytest.mark.slow
def test_the_same_engine_without_a_layer_on_the_card_is_refused(lab: DriftLab) -> None:
    unit = "/etc/systemd/system/llama-server.service"
    lab.sh(ENGINE, f'cp -a {unit} /root/ && sed -i \'s/"--gpu-layers" "all"/"--gpu-layers" "0"/\' {unit}')
    lab.sh(ENGINE, f"touch -r /root/llama-server.service {unit}; systemctl daemon-reload")
    lab.sh(ENGINE, "systemctl restart llama-server")
    try:
        ran = lab.provision("verify")
        assert ran.code == 3
        assert "offloaded 0/" in ran.out + ran.err
        assert service(lab)["processor"] == "device named, unproven"
    finally:
        lab.sh(
            ENGINE, f"cp -a /root/llama-server.service {unit}; systemctl daemon-reload; systemctl restart llama-server"
        )


SWEEPS = {
    "gpu_layers": ("0", "99"),
    "depth": ("0", "1024"),
    "ubatch": ("256", "1024"),
    "batch": ("512", "2048"),
    "threads": ("1", "4"),
    "cache_k": ("f16", "q8_0"),
}
"""What was swept by hand on a card of 16 GB, from its first surprise to its last."""
WORDS = {"gpu_layers": "ngl", "depth": "d", "ubatch": "ub", "batch": "b", "threads": "t", "cache_k": "ctk"}
READ = 512


@pytest.mark.incus
@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize("name", SWEEPS)
def test_what_is_swept_by_hand_is_swept_on_the_card(lab: DriftLab, name: str) -> None:
    values = SWEEPS[name]
    sweep = f"{name}={','.join(values)}"
    asked = ("bench", ENGINE, "--kind", "engine", "--yes", "--json", "--trials", "10", "--tokens", str(READ), "64")
    found = lab.succeeded(*asked, "--sweep", sweep, "--refuse")
    result = found.result
    assert [one["options"][WORDS[name]] for one in result["results"]] == list(values)
    reads = []
    for one in result["results"]:
        figures = {figure["name"]: figure for figure in one["figures"]}
        (read,) = [figure["median"] for called, figure in figures.items() if called.startswith(f"pp{READ}")]
        assert all(figure["median"] > 0 for figure in figures.values())
        reads.append(read)
    if name == "gpu_layers":
        assert reads[1] > 2 * reads[0], "the card reads a prompt no faster than the processor"
    if name == "depth":
        assert reads[1] < 1.1 * reads[0], "behind other tokens a prompt is read no faster"
