"""Who may take turns with an engine, as Ansible judges it: names and addresses become parts of configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.plays import refusals

ROOT = Path(__file__).resolve().parents[3]
ITSELF = {"name": "chat/engine", "url": "http://127.0.0.1:8080", "own": True}
ANOTHER = {"name": "code/engine", "url": "http://code.incus:8090"}
NAME, URL, KEY = "Each `name` must be another address", "Each `url` must be such as", "`share_key` must be set"
ALONE = "exactly one of several has to be itself"
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "two": ({"share": [ITSELF, ANOTHER]}, ""),
    "itself alone": ({"share": [ITSELF]}, ALONE),
    "two others": ({"share": [ANOTHER, {**ANOTHER, "name": "voice/kokoro"}]}, ALONE),
    "itself twice": ({"share": [ITSELF, {**ITSELF, "name": "code/engine"}]}, ALONE),
    "one name for two": ({"share": [ITSELF, {**ANOTHER, "name": ITSELF["name"]}]}, NAME),
    "no key": ({"share": [ITSELF, ANOTHER], "share_key": ""}, KEY),
    "a key of two lines": ({"share": [ITSELF, ANOTHER], "share_key": "key\nkey"}, KEY),
    "a key that ends a line": ({"share": [ITSELF, ANOTHER], "share_key": "key\n"}, KEY),
}
for number, url in enumerate(
    ("http://a:1\nbind *:1", "http://a:1\n", "http://a:1 resolvers x", "http://a", "https://a:1", "http://a:1/x", "a:1")
):
    CASES[f"address {number}"] = ({"share": [ITSELF, {**ANOTHER, "url": url}]}, URL)
for number, name in enumerate(("code", "code/engine --key /x", "code/engine\nUser=x", "code/engine\n", "code/%n", "")):
    CASES[f"name {number}"] = ({"share": [ITSELF, {**ANOTHER, "name": name}]}, NAME)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the role says to each case, nothing where it takes it."""
    usual = {"name": "engine", "port": 8080, "engine_port": 18080, "parallel": 1, "share_key": "key"}
    cases = {name: {**usual, **options} for name, (options, _) in CASES.items()}
    return refusals(ROOT, tmp_path_factory.mktemp("members"), "switch", "preflight_turns", cases)


@pytest.mark.parametrize("name", CASES)
def test_only_members_that_can_be_written_down_are_taken(told: dict[str, str], name: str) -> None:
    words = CASES[name][1]
    if words:
        assert words in told[name]
    else:
        assert name not in told
