"""What role ``gpu_host`` is told about the machine."""

from __future__ import annotations

import json
from typing import Any

import pytest

from provisioner.ansible.modules import provision_gpu_facts
from provisioner.gpus import health, look
from tests.unit.gpus.test_cards import ONE, nodes, nvidia

UNDRIVEN = nvidia("0000:01:00.0", 0, driver="nouveau")
LACKING = "\n".join([nvidia("0000:01:00.0", 0), nodes("nvidiactl c3 ff")])


def told(monkeypatch: pytest.MonkeyPatch, cards: str, driver: str = "") -> dict[str, Any]:
    """What the module answers on a host that says this."""
    answers = {look.SCRIPT: cards, health.SCRIPT: driver}
    found: dict[str, Any] = {}

    class Module:
        def __init__(self, **_: Any) -> None:
            pass

        def get_bin_path(self, _name: str) -> None:
            return None

        def exit_json(self, **answer: Any) -> None:
            found.update(json.loads(json.dumps(answer)))

    monkeypatch.setattr(provision_gpu_facts, "AnsibleModule", Module)
    monkeypatch.setattr(provision_gpu_facts, "_said", lambda _module, script: answers[script])
    provision_gpu_facts.main()
    return found


def test_a_card_with_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    found = told(monkeypatch, ONE, "-\tunit\tprovision-gpu.service enabled\n-\ttool\tnvidia-modprobe")
    assert [one["driver"] for one in found["cards"]] == ["nvidia"]
    assert (found["missing"], found["obstacles"]) == ([], [])
    assert (found["makers"], found["has_modprobe"], found["has_tools"]) == (["provision-gpu.service"], True, False)


def test_one_that_lacks_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, LACKING)["missing"] == ["/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]


def test_one_without_its_driver_lacks_that_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    found = told(monkeypatch, UNDRIVEN)
    assert found["missing"] == []
    assert "its driver is nouveau" in found["obstacles"][0]


def test_no_card(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, "")["cards"] == []
