"""A llama.cpp built for Vulkan, and Mesa's llvmpipe, on which it would compute: refused, as it is no card.

llama.cpp leaves devices of that kind (a processor that plays a card) alone unless GGML_VK_VISIBLE_DEVICES names them.
The tests of this module build on each other, in their order. A first run builds the program, a quarter of an hour.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.up.drift_lab import DriftLab
from tests.lab.incus import Lab as Incus

pytestmark = [pytest.mark.incus, pytest.mark.network, pytest.mark.slow]

NAME = "vulkan"
ENGINE = f"{NAME}-engine"
VISIBLE = 'environment: { GGML_VK_VISIBLE_DEVICES: "0" }'
FILE = f"""
name: {NAME}
models:
  tiny: {{ source: "builtin:tiny", context: 512 }}
containers:
  {ENGINE}:
    image: debian/13
    memory: 3GiB
    services:
      llama_cpp: {{ model: tiny, backend: vulkan, api_key: !secret engine_key, {VISIBLE} }}
"""
PLAYED = "Vulkan0 is llvmpipe (LLVM "
NO_NODE = "There is no /dev/dri/renderD* in the container. Give it its GPU (`gpu: any`)."


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DriftLab]:
    """The lab, not up yet."""
    lab = DriftLab(tmp_path_factory.mktemp(NAME), incus_lab.environment, "debian/13", "debian/13", name=NAME)
    lab.write(FILE)
    with lab.gone_afterwards():
        yield lab


def processor(lab: DriftLab) -> str:
    """What ``status`` says that the engine computes on."""
    lines = lab.provision("status", "--json").lines
    return str(next(one for one in lines if one["type"] == "container")["services"][0]["processor"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (VISIBLE, PLAYED),
        (f"device: Vulkan0, gpu_layers: all, {VISIBLE}", PLAYED),
        (f"device: Vulkan1, {VISIBLE}", "there is no Vulkan1, it finds Vulkan0"),
        ("environment: {}", "there is no Vulkan0, it finds none"),
    ],
)
def test_a_processor_that_plays_a_card_is_refused_however_it_is_asked_for(
    lab: DriftLab, options: str, words: str
) -> None:
    lab.write(FILE.replace(VISIBLE, options))
    ran = lab.up()
    assert ran.code != 0
    assert words in ran.out + ran.err, ran.out + ran.err
    assert NO_NODE in ran.out + ran.err
    assert processor(lab) != "GPU"


def test_the_program_itself_would_have_taken_it(lab: DriftLab) -> None:
    lab.write(FILE)
    seen = lab.sh(ENGINE, "GGML_VK_VISIBLE_DEVICES=0 /opt/llama_cpp/*/bin/llama-server --list-devices")
    assert PLAYED.replace(" is", ":") in seen, "the test looks at another device"
    assert lab.provision("verify").code == 3
    assert processor(lab) != "GPU"


def test_a_program_for_the_cpu_is_another_artifact_and_needs_no_device(lab: DriftLab) -> None:
    lab.write(FILE.replace("backend: vulkan", "backend: cpu"))
    ran = lab.up()
    assert ran.code == 0, ran.out + ran.err
    assert processor(lab) == "CPU"
