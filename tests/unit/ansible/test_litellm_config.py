"""The configuration that role ``litellm`` writes, as data, and what its preflight refuses, as Ansible works it out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from provisioner.inside.request_limits import Limits
from provisioner.lab.aliases import routed_aliases
from provisioner.services import knowledge_of
from provisioner.values.plain_data import yaml_value
from provisioner.values.state import Secret
from tests.plays import rendered, rescued, run_cases
from tests.routed_engines import routed_engine

ROOT = Path(__file__).resolve().parents[3]
TEMPLATES = {"config.yaml": "config", "secrets.env": "env", "guard.json": "guard"}
CASES = {file.stem: file for file in sorted((ROOT / "tests" / "cases" / "litellm").glob("*.yml"))}
KEY = "canary-key"
WITHOUT_VENV = "Unable to find litellm's venv"
"""What preflight says next on this machine when it takes the options."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, str]]:
    """Return what preflight said to a case by its name, and the configuration and file of keys, where it has them."""
    preflight = {"include_role": {"name": "litellm", "tasks_from": "preflight"}}

    @cache
    def of_case(name: str) -> dict[str, str]:
        files: list[dict[str, Any]] = []
        for template, end in TEMPLATES.items():
            if end in _case(name) or (end == "env" and "config" in _case(name)):
                text = rendered(ROOT / f"roles/litellm/templates/{template}.j2")
                files.append({"set_fact": {end: text}, "no_log": True})
        folder, cases = tmp_path_factory.mktemp("play"), {name: _variables(_case(name))}
        return run_cases(ROOT, folder, "litellm", cases, [rescued(preflight), *files])[name]

    return of_case


def _variables(case: Any) -> dict[str, Any]:
    """The case's own variables."""
    # As in a lab, where nothing is built in the machine itself.
    own = {"litellm_master_key": f"sk-{KEY}", "litellm_artifact_path": "/opt/litellm/nothing"}
    return {**own, **_options(case)}


def _options(case: Any) -> dict[str, Any]:
    """The role's variables: engines and aliases joined to routes, of which the case may replace parts."""
    options = dict(case["options"])
    engines = [routed_engine(engine) for engine in options.pop("engines")]
    routes = {**knowledge_of("litellm").routes(routed_aliases(options["aliases"]), engines), **case.get("routes", {})}
    written = {**options, "routes": _with_values(routes)}
    return {f"litellm_{name}": value for name, value in written.items()}


def _with_values(value: Any) -> Any:
    """The value with the secrets in clear, as Ansible has it once it has looked them up."""
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, dict):
        return {key: _with_values(inner) for key, inner in value.items()}
    return [_with_values(inner) for inner in value] if isinstance(value, list) else value


def _case(name: str) -> Any:
    return yaml_value(CASES[name].read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", CASES)
def test_case(written: Callable[[str], dict[str, str]], name: str) -> None:
    case = _case(name)
    said = " ".join(written(name)["said"].split())
    assert case.get("refused", WITHOUT_VENV) in said
    assert KEY not in said
    if "config" in case:
        config = yaml_value(written(name)["config"])
        for part, expected in case["config"].items():
            assert config[part] == expected, json.dumps(config[part], indent=1)


def test_the_guard_passes_on_what_is_listed_within_the_limits(written: Callable[[str], dict[str, str]]) -> None:
    for name in CASES:
        wanted = _case(name).get("guard")
        if wanted:
            page = json.loads(written(name)["guard"])
            assert {part: page[part] for part in wanted} == wanted
            limits = Limits(**wanted["limits"])
            assert limits.body == _case(name)["options"]["max_body"]
    assert [name for name in CASES if "guard" in _case(name)]


@pytest.mark.parametrize("page", ["roles/litellm/README.md", "docs/litellm.md"])
def test_the_pages_list_what_answers_without_a_key(written: Callable[[str], dict[str, str]], page: str) -> None:
    listed = json.loads(written("limits-and-paths")["guard"])["open"]
    line = next(line for line in (ROOT / page).read_text(encoding="utf-8").split("\n\n") if "without a key:" in line)
    assert re.findall(r"`(/[a-z/]+)`", line.partition("without a key:")[2].partition(".")[0]) == listed


def test_keys_are_in_the_file_of_keys_alone(written: Callable[[str], dict[str, str]]) -> None:
    with_key = [name for name in CASES if KEY in CASES[name].read_text(encoding="utf-8")]
    assert with_key
    for name in with_key:
        assert KEY not in written(name)["config"]
        lines = written(name)["env"].splitlines()
        keys = [line for line in lines if line.startswith(("ENGINE_", "SPEECH_"))]
        options = _case(name)["options"]
        told = [*options.get("engines", ()), *options.get("speech", ())]
        assert len(keys) == len([one for one in told if "api_key" in one])
        assert all(KEY in line for line in keys)
