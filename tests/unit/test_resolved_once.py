"""A run works out once what a file means, and again only where something new has become known."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from provisioner.catalog import load_catalog
from provisioner.gpus.cards import Card
from provisioner.lab.cards import choose_cards
from provisioner.lab.opening import look_at_models, open_lab, with_wheels
from provisioner.lab.resolved import resolve
from provisioner.labfile.spec import hosts_of
from provisioner.labfile.starter import write_starter
from tests.unit.cli.conftest import World

KEYS = {"LLAMA_KEY": "an-engine-key-of-its-own", "LITELLM_KEY": "sk-a-gateway-key-of-its-own"}
CARD = Card("0000:01:00.0", "nvidia", "RTX 3060", driver="nvidia", memory=12 * 2**30, capability="8.6", runtime=True)


@pytest.fixture
def quickstart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that ``init`` writes, in the folder that commands run in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name, key in KEYS.items():
        monkeypatch.setenv(f"PROVISION_SECRET_{name}", key)
    file, _ = write_starter(tmp_path / "homelab.yml", load_catalog())
    return file


@pytest.fixture
def world(quickstart: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """The lab's only host, on which everything is as the file says; it has a card."""
    made = World(monkeypatch)
    made.host.cards.there = (CARD,)
    assert made.command("up", str(quickstart), "--yes").code == 0
    return made


def counted(function: Callable[..., Any], patch: pytest.MonkeyPatch) -> list[str]:
    """A line for each call from here on, wherever the function was imported."""
    calls: list[str] = []

    def counting(*arguments: Any, **named: Any) -> Any:
        calls.append(function.__name__)
        return function(*arguments, **named)

    ours = [module for name, module in sys.modules.items() if name.partition(".")[0] == "provisioner"]
    for module in ours:
        for name, value in list(vars(module).items()):
            if value is function:
                patch.setattr(module, name, counting)
    return calls


def counts_of(world: World, *words: str) -> dict[str, int]:
    """How often a command works out what the file means, its hosts, and who gets which card."""
    with pytest.MonkeyPatch.context() as patch:
        calls = {function.__name__: counted(function, patch) for function in (resolve, hosts_of, choose_cards)}
        answer = world.command(*words)
    assert answer.code == 0, answer.err
    return {name: len(made) for name, made in calls.items()}


@pytest.mark.parametrize("verb", ["up", "plan", "status", "validate", "show"])
def test_a_command_resolves_the_quickstart_lab_once(world: World, verb: str) -> None:
    assert counts_of(world, verb) == {"resolve": 1, "hosts_of": 1, "choose_cards": 0}


@pytest.mark.parametrize("verb", ["up", "plan", "status"])
def test_with_a_card_it_is_resolved_twice_more(world: World, quickstart: Path, verb: str) -> None:
    quickstart.write_text(
        quickstart.read_text().replace("  homelab-llama:\n", "  homelab-llama:\n    gpu: any\n"), encoding="utf-8"
    )
    assert world.command("up", "--yes").code == 0
    assert counts_of(world, verb) == {"resolve": 3, "hosts_of": 3, "choose_cards": 1}


def test_nothing_new_is_the_same_lab(quickstart: Path) -> None:
    lab = open_lab(quickstart)
    assert lab.on_hosts() is lab.resolved
    assert lab.on_hosts({}, addresses={}, images={"homelab-llama": "debian/12"}) is lab.resolved
    assert look_at_models(lab, {})[0].resolved is lab.resolved
    assert with_wheels(lab, lab.resolved, {}) is lab.resolved


def test_what_hosts_tell_leaves_the_lab_as_it_was(quickstart: Path) -> None:
    lab = open_lab(quickstart)
    assert lab.on_hosts({"homelab-llama": CARD}).containers["homelab-llama"].card == CARD
    assert lab.on_hosts() is lab.resolved
