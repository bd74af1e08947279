"""Mistakes of newcomers, as ``tests/data/mistakes.yml`` lists them: each is answered with what to write."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from syrupy.assertion import SnapshotAssertion

from tests.unit.cli.conftest import provision

FILE = Path("homelab.yml")
MISTAKES: dict[str, dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parents[2] / "data/mistakes.yml").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_with_its_place_and_its_cure(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    mistake = MISTAKES[name]
    monkeypatch.chdir(tmp_path)
    FILE.write_bytes(mistake["text"].encode(mistake.get("encoding", "utf-8")))
    answer = provision(monkeypatch, *mistake.get("arguments", ("validate", FILE.name)))
    assert answer.ended(mistake.get("code", 64)) == snapshot
    named = {int(line) for line in re.findall(r"^\W*(?:Warning: )?homelab\.yml:(\d+):\d+: ", answer.err, re.MULTILINE)}
    assert sorted(named) == mistake["lines"]
    assert "canary" not in answer.printed
