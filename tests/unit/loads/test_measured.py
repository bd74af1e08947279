"""What engines took of their cards is kept by what decided their sums."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from provisioner.loads.measured import digest_of, measured, remember
from provisioner.loads.placing import Placing
from provisioner.loads.terms import MIB, Load
from provisioner.values import paths
from tests.unit.loads.models import NINE, mixture

ADDRESS = "llama/llama_cpp"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the lab keeps what it has learned."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "provisioner" / "homelab"


def test_what_is_kept_is_nobody_else_s_to_read(folder: Path) -> None:
    assert measured("homelab") == {}
    remember("homelab", ADDRESS, [NINE], 7441 * MIB, 7102 * MIB)
    remember("homelab", "other/llama_cpp", [mixture()], 10, 12)
    assert (folder.stat().st_mode & 0o777, (folder / "fit.json").stat().st_mode & 0o777) == (0o700, 0o600)
    assert [one.name for one in folder.iterdir()] == ["fit.json"]
    found = measured("homelab")
    assert (found[ADDRESS].estimate, found[ADDRESS].measured) == (7441 * MIB, 7102 * MIB)
    assert found[ADDRESS].error == 339 * MIB
    assert found["other/llama_cpp"].error == -2
    assert measured("another") == {}


def test_a_new_run_takes_the_place_of_the_old_one() -> None:
    remember("homelab", ADDRESS, [NINE], 1, 2)
    remember("homelab", ADDRESS, [NINE], 3, 4)
    assert (measured("homelab")[ADDRESS].estimate, len(measured("homelab"))) == (3, 1)


@pytest.mark.parametrize(
    "other",
    [
        replace(NINE, context=4096),
        replace(NINE, keys="q8_0"),
        replace(NINE, weights=1),
        replace(NINE, placing=Placing(3)),
        replace(NINE, cache_on_card=False),
        replace(NINE, shape=replace(NINE.shape, layers=NINE.shape.layers[:4])),
    ],
)
def test_another_sum_is_another_measurement(other: Load) -> None:
    remember("homelab", ADDRESS, [NINE], 1, 2)
    found = measured("homelab")[ADDRESS]
    assert found.is_of([NINE])
    assert found.is_of([replace(NINE, name="called otherwise")])
    assert not found.is_of([other])
    assert not found.is_of([NINE, NINE])
    assert digest_of([mixture()]) == digest_of([mixture()])


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "3", '{"llama/llama_cpp": 3}', '{"llama/llama_cpp": {"digest": 1}}']
)
def test_what_cannot_be_read_is_measured_again(folder: Path, content: str) -> None:
    folder.mkdir(parents=True)
    (folder / "fit.json").write_text(content)
    assert measured("homelab") == {}
    remember("homelab", ADDRESS, [NINE], 1, 2)
    assert measured("homelab")[ADDRESS].measured == 2


def test_without_a_variable_it_lies_below_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_STATE_HOME")
    assert paths.state("homelab") == Path.home() / ".local" / "state" / "provisioner" / "homelab"
