"""A llama.cpp that computes on a device, for real: Vulkan, with Mesa's llvmpipe as the card.

llama.cpp leaves devices of that kind (a processor that plays a card) alone unless GGML_VK_VISIBLE_DEVICES names them.
The tests of this module build on each other, in their order. A first run builds the program, a quarter of an hour.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.drift_lab import DriftLab
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
LOG = "journalctl --quiet --no-pager --output=cat --unit llama-server.service"


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DriftLab]:
    """The lab, up."""
    lab = DriftLab(tmp_path_factory.mktemp(NAME), incus_lab.environment, "debian/13", "debian/13", name=NAME)
    lab.write(FILE)
    lab.provision("destroy", "--yes", "--lab", NAME)  # what an interrupted run of this test left
    first = lab.up()
    assert first.code == 0, first.out[-4000:] + first.err[-4000:]
    yield lab
    ended = lab.provision("destroy", "--yes", "--lab", NAME)
    assert ended.code == 0, ended.out + ended.err


def processor(lab: DriftLab) -> str:
    """What ``status`` says that the engine computes on."""
    lines = lab.provision("status", "--json").lines
    return str(next(one for one in lines if one["type"] == "container")["services"][0]["processor"])


def refused(lab: DriftLab, text: str, words: str) -> None:
    """``up`` with that file fails with these words, and what worked goes on."""
    lab.write(text)
    ran = lab.up()
    lab.write(FILE)
    assert ran.code != 0
    assert words in ran.out + ran.err, ran.out + ran.err
    assert processor(lab) == "GPU"


def test_every_layer_is_computed_by_the_device(lab: DriftLab) -> None:
    assert "offloaded 3/3 layers to GPU" in lab.sh(ENGINE, LOG)
    pid = lab.main_pid(ENGINE, "llama-server.service")
    assert "libvulkan_lvp.so" in lab.sh(ENGINE, f"cat /proc/{pid}/maps"), "the process does not use the driver"
    assert processor(lab) == "GPU"
    assert lab.provision("plan", "--detailed-exitcode").code == 0


def test_the_driver_keeps_what_it_compiled(lab: DriftLab) -> None:
    assert "shader cache" not in lab.sh(ENGINE, LOG)
    assert lab.sh(ENGINE, "stat --format '%U %a' /var/cache/llama-server").split() == ["llama-server", "700"]


def test_a_device_that_is_not_there_is_refused_before_the_server_is_touched(lab: DriftLab) -> None:
    refused(lab, FILE.replace(VISIBLE, "environment: {}"), "there is no Vulkan0, it finds none")
    refused(lab, FILE.replace(VISIBLE, f"device: Vulkan1, {VISIBLE}"), "there is no Vulkan1, it finds Vulkan0")


def test_a_library_that_was_removed_is_named_and_put_back(lab: DriftLab) -> None:
    lab.sh(ENGINE, "dpkg --remove --force-depends libvulkan1")
    ran = lab.provision("verify")
    assert ran.code == 3
    assert "libraries of its backend are missing: libvulkan.so.1" in ran.out + ran.err
    assert lab.up().code == 0
    assert processor(lab) == "GPU"


def test_a_server_that_has_no_layer_on_its_device_fails_its_proof(lab: DriftLab) -> None:
    unit = "/etc/systemd/system/llama-server.service"
    lab.sh(ENGINE, f'cp {unit} /root/ && sed -i \'s/"--gpu-layers" "auto"/"--gpu-layers" "0"/\' {unit}')
    lab.sh(
        ENGINE,
        "touch -r /root/llama-server.service " + unit + " && systemctl daemon-reload && systemctl restart llama-server",
    )
    try:
        ran = lab.provision("verify")
        assert ran.code == 3
        assert "offloaded 0/3 layers" in ran.out + ran.err
    finally:
        lab.sh(
            ENGINE, f"cp /root/llama-server.service {unit} && systemctl daemon-reload && systemctl restart llama-server"
        )


def test_a_program_for_the_cpu_is_another_artifact_and_needs_no_device(lab: DriftLab) -> None:
    lab.write(FILE.replace("backend: vulkan", "backend: cpu"))
    ran = lab.up()
    assert ran.code == 0, ran.out + ran.err
    assert processor(lab) == "CPU"
    lab.write(FILE)
    assert lab.up().code == 0
    assert processor(lab) == "GPU"
