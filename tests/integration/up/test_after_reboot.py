"""``verify --after-reboot`` on a real container: what was only started by hand is found, what was set up comes up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.up.quickstart_lab import Lab
from tests.lab.incus import Lab as Incus

pytestmark = [pytest.mark.incus]

ENGINE, UNIT = "reboot-engine", "llama-server.service"
FILE = f"""
name: reboot
models:
  tiny: {{ source: "builtin:tiny", context: 512 }}
containers:
  {ENGINE}: {{ services: {{ llama_cpp: {{ model: tiny, api_key: !secret engine_key }} }} }}
"""


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """An engine that works."""
    lab = Lab(tmp_path_factory.mktemp("reboot"), incus_lab.environment, "debian/12", "debian/12", name="reboot")
    lab.write(FILE)
    with lab.brought_up():
        yield lab


def booted(lab: Lab) -> str:
    """A word for the container's present run: the id of its first process on the host."""
    return str(next(one["state"]["pid"] for one in lab.made() if one["name"] == ENGINE))


def test_what_is_set_up_proves_itself_after_a_start(lab: Lab) -> None:
    before = booted(lab)
    ran = lab.succeeded("verify", "--after-reboot", "--json")
    done = [(one["action"], one["target"]) for one in ran.lines if one["type"] == "apply_complete"]
    assert done == [("stop", ENGINE), ("start", ENGINE)]
    assert booted(lab) != before


def test_what_was_only_started_by_hand_is_found(lab: Lab) -> None:
    lab.incus("exec", ENGINE, "--", "systemctl", "disable", UNIT)
    assert lab.provision("verify").code == 0
    ran = lab.provision("verify", "--after-reboot")
    assert ran.code == 3, ran.out + ran.err
    assert f"unit {UNIT} is inactive" in ran.out
    lab.incus("exec", ENGINE, "--", "systemctl", "enable", "--now", UNIT)


def test_a_name_that_is_not_in_the_file_stops_nothing(lab: Lab) -> None:
    before = booted(lab)
    assert lab.provision("verify", "--after-reboot", "no-such-container").code == 64
    assert booted(lab) == before
