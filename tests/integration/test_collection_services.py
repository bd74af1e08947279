"""Further roles of the collection in plays of five lines: a stack of wheels, speech, and a desktop."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.plain_ansible import ansible
from tests.integration.plain_machine import PlainMachine, fill_folder, plain_machine
from tests.lab.incus import Lab
from tests.scenario_programs import module_at
from tests.torch_wheels import download_torch, wheels_in

__all__ = ["ansible"]

pytestmark = [pytest.mark.incus, pytest.mark.network, pytest.mark.slow]

PYTHON = (3, 11)
"""That of debian/12: its wheels are downloaded by the Python that runs this."""
SPEECH = Path(__file__).resolve().parents[2] / "molecule/kokoro"
BUILD_TIMEOUT_S = 1800.0
KEY = "canary-of-a-desktop"
COMPUTES = (
    "/opt/torch_stack/current/bin/python -c 'import torch; print((torch.ones(4, 4) @ torch.ones(4, 4)).sum().item())'"
)
SPEAKS = """python3 - <<'END'
import json, urllib.request
question = {"model": "kokoro", "voice": "af_heart", "input": "Hello there.", "response_format": "wav"}
asked = urllib.request.Request("http://127.0.0.1:8880/v1/audio/speech", json.dumps(question).encode())
asked.add_header("Content-Type", "application/json")
print(urllib.request.urlopen(asked, timeout=50).read()[:4].decode())
END
"""


def play_of(role: str, variables: dict[str, Any]) -> str:
    """The text of a play of that role, as somebody would write it."""
    roles = ["provisioner.inference.base", f"provisioner.inference.{role}"]
    return yaml.safe_dump([{"hosts": "plain", "vars": variables, "roles": roles}], sort_keys=False)


@pytest.fixture(scope="module")
def folder(ansible: Path, incus_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of somebody who has the collection alone."""
    assert incus_lab
    folder = tmp_path_factory.mktemp("user")
    fill_folder(ansible, folder)
    return folder


@pytest.fixture(scope="module")
def debian_12(ansible: Path, folder: Path) -> Iterator[PlainMachine]:
    """A machine with the Python that wheels are downloaded for."""
    if sys.version_info[:2] != PYTHON:
        pytest.skip(f"wheels are downloaded for this Python, and debian/12 has {'.'.join(map(str, PYTHON))}")
    with plain_machine(ansible, folder, "debian/12") as machine:
        yield machine


def test_a_stack_of_wheels_computes_and_then_nothing_changes(
    debian_12: PlainMachine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    wheels = tmp_path_factory.mktemp("wheels")
    download_torch(wheels)
    debian_12.push(wheels, "/srv/wheels")
    options = {
        "torch_stack_name": "real",
        "torch_stack_mirror": "/srv/wheels",
        "torch_stack_packages": wheels_in(wheels),
    }
    debian_12.play_twice(play_of("torch_stack", options))
    assert debian_12.ssh(COMPUTES).strip() == "64.0"


def test_speech_builds_its_program_speaks_and_then_nothing_changes(
    debian_12: PlainMachine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    made = tmp_path_factory.mktemp("made")
    with module_at(SPEECH / "artifact.py").offered(made) as options:
        module_at(SPEECH / "repository.py").main(SPEECH / "files", made / "voices", made)
        commit = json.loads((made / "commits.json").read_text(encoding="utf-8"))["newer"]
        debian_12.push(made / "standin.git", "/srv/kokoro/standin.git")
        given = {**options, "source": "file:///srv/kokoro/standin.git", "commit": commit}
        play = play_of("kokoro", {f"kokoro_{name}": value for name, value in given.items()})
        first = debian_12.play_twice(play, BUILD_TIMEOUT_S)
    assert "kokoro : build | Install the packages, each with its hash" in first
    assert debian_12.ssh(SPEAKS).strip() == "RIFF"


def test_a_desktop_is_logged_in_to_and_then_nothing_changes(ansible: Path, folder: Path) -> None:
    play = play_of("desktop", {"desktop_user": "penny", "desktop_password": KEY})
    with plain_machine(ansible, folder, "debian/13") as machine:
        first = machine.play_twice(play, BUILD_TIMEOUT_S)
        assert "provisioner.inference.desktop : verify | " in first
        assert KEY not in first
        assert machine.ssh("systemctl is-active xrdp").strip() == "active"
