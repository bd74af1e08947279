"""Whatever is read from outside ends in an answer or in an error of ours, in time; the fuzz sees what does not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from provisioner.values.errors import ProvisionError
from tests.fuzz.harness import Target, failures_of
from tests.fuzz.mutations import changed_bytes, changed_text, changed_value
from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).parents[2]
LIMIT_S = 300
LONG_LIMIT_S = 6 * 3600


def _broken(count: int, limit_s: int, *targets: str) -> list[dict[str, Any]]:
    """What broke of so many inputs, in a process of its own: its memory is limited."""
    words = [sys.executable, "-m", "tests.fuzz", *targets, "--count", str(count)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=limit_s, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == (1 if found else 0), done.stderr
    assert all(f"{name}: " in done.stderr for name in targets or TARGETS) or found, done.stderr
    return found


@pytest.mark.parametrize("name", TARGETS)
def test_five_thousand_inputs_end_as_they_should(name: str) -> None:
    share = TARGETS[name].weight / sum(target.weight for target in TARGETS.values())
    assert _broken(round(5_000 * share), LIMIT_S, name) == []


@pytest.mark.slow
def test_two_hundred_thousand_inputs_end_as_they_should() -> None:
    assert _broken(200_000, LONG_LIMIT_S) == []


def _whys(read: Callable[[Any, Path], object], folder: Path, **limits: Any) -> list[str]:
    target = Target(lambda chance: chance.random(), read)
    return [one.why for one in failures_of("it", target, folder, seed=1, count=2, **limits)]


def _refuse(_given: Any, _folder: Path) -> None:
    raise ProvisionError("Unable to read it")


def _say_nothing(_given: Any, _folder: Path) -> None:
    raise ProvisionError("")


def _break(_given: Any, _folder: Path) -> None:
    raise KeyError("local")


def _swallow(_given: Any, _folder: Path) -> None:
    while True:
        try:
            sum(range(1000))
        except Exception:  # noqa: BLE001, S112  # what a reader may do, and what must not hide its time
            continue


def _fill(_given: Any, _folder: Path) -> bytes:
    return bytes(1 << 62)


def test_what_must_not_be_is_seen(tmp_path: Path) -> None:
    assert _whys(_refuse, tmp_path) == []
    assert _whys(_say_nothing, tmp_path) == ["an error without words"] * 2
    assert all("KeyError: 'local'" in why for why in _whys(_break, tmp_path))
    assert all("not done after 0.2 s" in why for why in _whys(_swallow, tmp_path, budget_s=0.2))
    assert all("MemoryError" in why for why in _whys(_fill, tmp_path))
    for broken in (_break, _swallow, _fill):
        assert len(_whys(broken, tmp_path, budget_s=0.2)) == 2


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_gives_the_same_inputs_again_and_many_that_differ(name: str) -> None:
    target = TARGETS[name]
    first, again = ([repr(target.make(Random(f"{number}"))) for number in range(20)] for _ in range(2))  # noqa: S311
    assert first == again
    assert len(set(first)) > 15


def test_changes_leave_what_they_change_as_it_was() -> None:
    value = {"a": [1, {"b": "c"}], "d": None}
    before = json.dumps(value)
    changed = {json.dumps(changed_value(Random(number), value)) for number in range(100)}  # noqa: S311
    assert json.dumps(value) == before
    assert len(changed) > 50
    assert len({changed_bytes(Random(number), b"0123456789") for number in range(100)}) > 50  # noqa: S311
    assert len({changed_text(Random(number), "a b\nc d\ne f") for number in range(100)}) > 20  # noqa: S311
