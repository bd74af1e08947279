"""The hook for pre-commit: its words are taken by the command line, and its pattern finds the labs' files."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from tests.unit.cli.conftest import FILE, World

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def hook() -> dict[str, str]:
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert [hook["id"] for hook in hooks] == ["provision-validate"]
    only: dict[str, str] = hooks[0]
    return only


@pytest.fixture
def arguments(hook: dict[str, str]) -> list[str]:
    program, *arguments = shlex.split(hook["entry"])
    assert program == "provision"
    return arguments


def test_a_good_file_passes_without_secrets(
    world: World, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ENGINE_KEY", "GATEWAY_KEY"):
        monkeypatch.delenv(f"PROVISION_SECRET_{name}")
    answer = world.command(*arguments, "homelab.yml")
    assert (answer.code, answer.err) == (0, "")


def test_a_broken_file_beside_a_good_one_fails_with_its_line(world: World, arguments: list[str]) -> None:
    Path("other").mkdir()
    Path("other/homelab.yaml").write_text(FILE + "nmae: x\n", encoding="utf-8")
    assert world.command(*arguments, "homelab.yml", "other/homelab.yaml").ended(64) == world.snapshot


@pytest.mark.parametrize("path", ["homelab.yml", "homelab.yaml", "labs/one/homelab.yml"])
def test_the_pattern_finds_a_lab(hook: dict[str, str], path: str) -> None:
    assert re.search(hook["files"], path)


@pytest.mark.parametrize("path", ["my-homelab.yml", "homelab.yml.bak", "homelabXyml", "homelab.yml/x", "homelab.lock"])
def test_the_pattern_leaves_other_files(hook: dict[str, str], path: str) -> None:
    assert not re.search(hook["files"], path)
