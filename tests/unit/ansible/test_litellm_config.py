"""The configuration that role ``litellm`` writes, as data, and what its preflight refuses, by a real run of Ansible."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ansible_environment import run_tasks

ROOT = Path(__file__).resolve().parents[3]
CASES = {file.stem: file for file in sorted((ROOT / "tests" / "cases" / "litellm").glob("*.yml"))}
KEY = "canary-key"
WITHOUT_VENV = "Unable to find litellm's venv"
"""What preflight says next on this machine when it takes the options."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with a configuration and a file of keys for each case that has one, and what preflight said."""
    folder = tmp_path_factory.mktemp("play")
    assert KEY not in run_tasks(ROOT, folder, _tasks())
    return folder


def _tasks() -> Any:
    role = ROOT / "roles" / "litellm"
    inner = yaml.safe_load((role / "vars" / "main.yml").read_text(encoding="utf-8"))
    defaults = yaml.safe_load((role / "defaults" / "main.yml").read_text(encoding="utf-8"))
    for name in CASES:
        options = _case(name)["options"]
        given = {"litellm_master_key": f"sk-{KEY}", **{f"litellm_{key}": one for key, one in options.items()}}
        variables = {**inner, **defaults, **given}
        said = {"content": "{{ ansible_failed_result.msg }}", "dest": f"{{{{ folder }}}}/{name}.said", "mode": "0600"}
        preflight = {"include_role": {"name": "litellm", "tasks_from": "preflight"}, "vars": variables}
        yield {"block": [preflight], "rescue": [{"copy": said}]}
        for template, end in (("config.yaml", "config"), ("secrets.env", "env")):
            source = {
                "src": f"{role}/templates/{template}.j2",
                "dest": f"{{{{ folder }}}}/{name}.{end}",
                "mode": "0600",
            }
            if "config" in _case(name):
                yield {"template": source, "vars": variables, "no_log": True}


def _case(name: str) -> Any:
    return yaml.safe_load(CASES[name].read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", CASES)
def test_case(written: Path, name: str) -> None:
    case = _case(name)
    said = " ".join((written / f"{name}.said").read_text(encoding="utf-8").split())
    assert case.get("refused", WITHOUT_VENV) in said
    if "config" in case:
        config = yaml.safe_load((written / f"{name}.config").read_text(encoding="utf-8"))
        for part, expected in case["config"].items():
            assert config[part] == expected, json.dumps(config[part], indent=1)


def test_keys_are_in_the_file_of_keys_alone(written: Path) -> None:
    with_key = [name for name in CASES if KEY in CASES[name].read_text(encoding="utf-8")]
    assert with_key
    for name in with_key:
        assert KEY not in (written / f"{name}.config").read_text(encoding="utf-8")
        lines = (written / f"{name}.env").read_text(encoding="utf-8").splitlines()
        keys = [line for line in lines if line.startswith("ENGINE_")]
        assert len(keys) == len([one for one in _case(name)["options"]["engines"] if "api_key" in one])
        assert all(KEY in line for line in keys)
