"""The lookup that joins aliases with engines for plays of one's own: as a lab's are joined, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleError
from ansible.plugins.loader import lookup_loader

from provisioner.values import paths
from tests.case_files import read_case

ROOT = Path(__file__).resolve().parents[3]
CASES = {file.stem: file for file in sorted((ROOT / "tests/cases/routes").glob("*.yml"))}
M = {"name": "m", "model": "openai/m", "api_base": "http://a:8080/v1"}


def joined(aliases: Any, engines: list[dict[str, Any]]) -> dict[str, Any]:
    """What the lookup gives."""
    lookup_loader.add_directory(str(paths.plugins() / "lookup"))
    plugin = lookup_loader.get("provision_litellm_routes")
    (found,) = plugin.run([aliases], engines=engines)
    return dict(found)


def in_clear(value: Any) -> Any:
    """The routes of a case as a play has them: keys are texts there."""
    if isinstance(value, dict):
        return {name: in_clear(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [in_clear(inner) for inner in value]
    return value.reveal() if hasattr(value, "reveal") else value


@pytest.mark.parametrize("name", CASES)
def test_a_play_s_aliases_are_joined_as_a_lab_s_are(name: str) -> None:
    case = read_case(CASES[name])
    aliases = case["aliases"]
    listed = [written if isinstance(written, list) else written["engines"] for written in aliases.values()]
    if {engine for names in listed for engine in names} & set(aliases):
        pytest.skip("an alias of an alias is a lab's alone")
    assert joined(aliases, case["engines"]) == in_clear(case["routes"])


@pytest.mark.parametrize(
    ("aliases", "engines", "words"),
    [
        ({"fast": ["m", "n"]}, [M], "alias 'fast': n is none of the engines"),
        ({"fast": []}, [M], "alias 'fast': it has no engine"),
        ({"fast": {"engines": ["m"], "context_window_fallbacks": ["x"]}}, [M], "x is none of the engines"),
        (["fast"], [M], "aliases are one mapping"),
        ({"fast": ["m"]}, [{"name": "m", "model": "m"}], "PROVIDER/MODEL"),
        ({"fast": ["m"]}, [{**M, "key": "canary-key"}], "of engine 'm' nobody knows key"),
        ({"fast": ["m"]}, [{**M, "answers": "songs"}], "answers 'songs'"),
    ],
)
def test_what_leads_nowhere_is_refused(aliases: Any, engines: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(AnsibleError) as refused:
        joined(aliases, engines)
    assert words in str(refused.value)
    assert "canary" not in str(refused.value)
