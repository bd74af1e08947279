"""How LiteLLM's module joins aliases with their engines: data cases in ``tests/cases/routes``, and Molecule's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from provisioner.lab.aliases import routed_aliases
from provisioner.services import Knowledge, knowledge_of
from provisioner.services.gateway_routes import RoutedEngine
from provisioner.values.state import Secret, secrets_of
from tests.case_files import read_case
from tests.routed_engines import routed_engine

ROOT = Path(__file__).resolve().parents[3]
CASES = {file.stem: file for file in sorted((ROOT / "tests" / "cases" / "routes").glob("*.yml"))}


def _routes(aliases: Any, engines: list[RoutedEngine]) -> dict[str, Any]:
    return dict(knowledge_of("litellm").routes(routed_aliases(aliases), engines))


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    case = read_case(CASES[name])
    assert _routes(case["aliases"], [routed_engine(engine) for engine in case["engines"]]) == case["routes"]


def test_a_key_that_was_not_looked_up_stays_a_secret_and_stands_nowhere_else() -> None:
    key = Secret("cloud", None)
    routes = _routes({"fast": ["cloud"]}, [RoutedEngine("cloud", "groq/m", is_ours=False, api_key=key)])
    assert [engine["api_key"] for engine in routes["engines"]] == [key]
    assert secrets_of(routes) == {"cloud": key}
    assert secrets_of(routes["deployments"]) == {}


def test_a_service_without_a_module_routes_nothing() -> None:
    assert Knowledge().routes(routed_aliases({"fast": ["m"]}), []) == {}


def test_the_scenario_of_molecule_has_the_routes_that_the_module_makes() -> None:
    told = read_case(ROOT / "molecule" / "litellm" / "vars.yml")
    routes = told["litellm_routes"]
    by_name = {one["model_name"]: one for one in routes["deployments"] if "order" not in one}
    engines = []
    for entry in routes["engines"]:
        server = by_name[entry["name"]]
        key = Secret(entry["name"], entry["api_key"]) if "api_key" in entry else None
        engines.append(RoutedEngine(entry["name"], server["model"], entry["local"], server["api_base"], key))
    aliases = {alias.name: alias for alias in routed_aliases(told["litellm_aliases"])}
    made = knowledge_of("litellm").routes([aliases[name] for name in routes["aliases"]], engines)
    for entry in made["engines"]:
        if "api_key" in entry:
            entry["api_key"] = entry["api_key"].reveal()
    assert made == routes
