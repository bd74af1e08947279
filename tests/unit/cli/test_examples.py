"""The example of a whole house: generated secrets are all that it lacks, and each of its services is planned."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.unit.cli.conftest import World

EXAMPLE = Path(__file__).resolve().parents[3] / "examples/full-stack.yml"
ROLES = {"engine": "llama_cpp", "voice": "kokoro", "gateway": "litellm", "chat": "open_webui", "door": "door"}
SERVICES = {f"full-stack-{name}/{role}" for name, role in ROLES.items()}


def test_a_whole_house_is_planned_from_its_file_and_generated_secrets(world: World) -> None:
    shutil.copy(EXAMPLE, "homelab.yml")
    world.done("init", "--secrets", "homelab.yml")
    planned = world.done("plan", "--json")
    changes = [json.loads(line) for line in planned.out.splitlines()]
    containers = {one["target"] for one in changes if one["type"] == "planned_change" and one["action"] == "create"}
    assert containers == {address.partition("/")[0] for address in SERVICES}
    listed = world.done("show", "--expanded", "--json")
    for address in SERVICES:
        assert address.partition("/")[2] in listed.out
