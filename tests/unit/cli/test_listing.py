"""A lab as an inventory of Ansible's: what stands in it, and what does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.eject.inventory import Listing, listing
from provisioner.lab.opening import open_lab
from provisioner.values.state import Secret, secrets_of
from tests.unit.cli.conftest import FILE, World

WITH_THE_KEY = f"plugin: provisioner.inference.lab\n{FILE}"


def listed(world: World, file: Path = Path("homelab.yml")) -> Listing:
    """What Ansible is told of the lab at this moment."""
    return listing(open_lab(file, needs="none"), {"box": world.host})


def test_containers_stand_in_the_groups_of_what_they_are(up: World) -> None:
    found = listed(up)
    assert found.groups == {
        "containers": ("gateway", "llama"),
        "lab_homelab": ("gateway", "llama"),
        "host_box": ("gateway", "llama"),
        "service_llama_cpp": ("llama",),
        "service_litellm": ("gateway",),
    }
    assert found.missing == ()
    llama = found.variables["llama"]
    assert llama["ansible_connection"] == "fake"
    assert llama["provision_address"] == up.host.network.address("llama")
    assert llama["llama_cpp_context"] == 4096


def test_secrets_are_none_of_its_values(up: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ENGINE_KEY", "GATEWAY_KEY"):
        monkeypatch.delenv(f"PROVISION_SECRET_{name}")
    found = listed(up)
    assert isinstance(found.variables["llama"]["llama_cpp_api_key"], Secret)
    assert set(secrets_of([dict(found.variables)])) == {"engine_key", "gateway_key"}
    assert "canary" not in repr(found)


def test_a_container_that_is_not_there_is_told_and_nothing_of_it_made_up(world: World) -> None:
    never = listed(world)
    assert (never.variables, never.missing) == ({}, ("gateway", "llama"))
    assert never.groups == {"containers": (), "not_there": ("gateway", "llama")}
    assert world.command("up", "--yes", "llama").code == 0
    half = listed(world)
    assert half.missing == ("gateway",)
    assert half.groups["not_there"] == ("gateway",)
    assert [name for name, members in half.groups.items() if "gateway" in members] == ["not_there"]


def test_the_key_by_which_ansible_knows_the_file_is_nobody_else_s_business(up: World) -> None:
    Path("homelab.yml").write_text(WITH_THE_KEY, encoding="utf-8")
    assert up.command("plan", "--detailed-exitcode").code == 0
    Path("homelab.yml").write_text(WITH_THE_KEY.replace("inference.lab", "inference.other"), encoding="utf-8")
    assert up.command("validate").ended(64) == up.snapshot
