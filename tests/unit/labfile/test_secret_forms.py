"""A secret that a role's preflight would refuse is refused before anything is made, without a word of its value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from provisioner.catalog import load_catalog
from provisioner.lab import problems, resolve
from provisioner.labfile.parsing import parse_spec
from provisioner.values import paths
from provisioner.values.state import Problem, Secret
from tests.maximal_labs import LABS, Place, at, steps, with_value

SHAPES = (
    *("a", "sk-", "two words", "sk-two words", " sk-lead", "sk-trail ", "sk-a\n", "sk-a\nb", "sk-a\tb", "sk-a\x00b"),
    *(
        "sk-a\x7fb",
        "sk-\u00e9",
        "sk-\u2028x",
        "0123456789abcde",
        "0123456789abcdef",
        "sk-0123456789abcdef",
        "sk-{}!'\"$`",
        "sk-0123456789abcdef0",
        "sk-0123456789abcdef01",
    ),
)
_MATCH = re.compile(r"^(?P<variable>\w+) is match\((?P<argument>'[^']*'|\w+)\)$")


def _asserted(role: str) -> Iterator[tuple[str, str]]:
    """The variables that a role's preflight holds against a pattern, each with it."""
    folder = paths.roles() / role
    internal = yaml.safe_load((folder / "vars" / "main.yml").read_text(encoding="utf-8"))
    tasks = [
        task
        for file in sorted((folder / "tasks").glob("preflight*.yml"))
        for task in yaml.safe_load(file.read_text(encoding="utf-8"))
    ]
    for task in tasks:
        conditions: Any = task.get("ansible.builtin.assert", {}).get("that", [])
        rows = task.get("vars", {}).get("__checks", [])
        table = [part.strip() for row in rows for part in row["holds"].strip("{} ").split(" and ")]
        for condition in [*([conditions] if isinstance(conditions, str) else conditions), *table]:
            found = _MATCH.match(condition)
            if found is None:
                continue
            argument = found["argument"]
            literal = argument.strip("'").replace("\\\\", "\\") if argument.startswith("'") else internal[argument]
            yield found["variable"], literal


def _secrets_with_patterns() -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    for role, service in load_catalog().offered.items():
        for variable, pattern in _asserted(role):
            option = variable.removeprefix(f"{role}_")
            if option in service.options and service.options[option].secret:
                found.setdefault((role, option), []).append(pattern)
    return found


def test_each_pattern_of_a_preflight_is_known_before() -> None:
    found = _secrets_with_patterns()
    assert {role for role, _ in found} == {
        "door",
        "litellm",
        "llama_cpp",
        "ollama",
        "open_webui",
        "pipelines",
        "tabbyapi",
        "vllm",
    }
    for (role, option), patterns in found.items():
        form = load_catalog().services[role].secrets[option]
        for shape in SHAPES:
            is_taken = all(re.match(pattern, shape) for pattern in patterns)
            assert bool(re.fullmatch(form.pattern, shape, re.ASCII)) == is_taken, (role, option, shape)


def _keys() -> list[Place]:
    """The places of all secrets of a file that travel in a header."""
    lab = LABS["everything"]
    typed = ("password", "certificate_key")
    return [place for place in steps(lab) if isinstance(at(lab, place), Secret) and place[-1] not in typed]


def _found(place: Place, value: str) -> list[Problem]:
    parsed = parse_spec(with_value(LABS["everything"], place, Secret("name", value)), load_catalog())
    return [*parsed.problems, *(problems(resolve(parsed.spec, load_catalog())) if parsed.spec else ())]


@pytest.mark.parametrize("place", _keys(), ids=lambda place: ".".join(map(str, place)))
def test_no_key_has_a_space_or_a_control_character_and_none_is_shown(place: Place) -> None:
    for shape in (
        "sk-0123456789 abcdef",
        "sk-0123456789\nabcdef",
        "sk-0123456789abcdef\x7f",
        "sk-0123456789abcd\u00e9",
    ):
        found = _found(place, shape)
        assert [one.path for one in found] == [place], (shape, found)
        assert "0123456789" not in repr(found)
    assert _found(place, "sk-0123456789abcdefgh") == []
