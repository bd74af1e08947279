"""The configuration that the gateway of a whole lab gets, byte by byte: what differs restarts gateways that run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.catalog import load_catalog
from provisioner.inventory import render_inventory
from provisioner.lab import ModelFile, desired_fleet, problems, resolve
from provisioner.labfile.parsing import parse_spec
from provisioner.runner import ansible_environment
from provisioner.values import paths
from provisioner.values.state import Instance, Secret, secrets_of
from tests.case_files import read_case

ROLE = paths.roles() / "litellm"
FOLDER = Path(__file__).resolve().parents[2] / "cases" / "gateway"
CASES = {file.stem: file for file in sorted(FOLDER.glob("*.yml"))}
TEMPLATES = {"config": "config.yaml.j2", "secrets": "secrets.env.j2"}


def _gateway(name: str) -> Instance:
    """The container of the case's gateway, named for the case, with nothing in it but the gateway."""
    parsed = parse_spec({"name": "lab", **read_case(CASES[name])["file"]}, load_catalog())
    assert parsed.spec is not None, parsed.problems
    lab = resolve(parsed.spec, load_catalog())
    assert problems(lab) == []
    files = {model: ModelFile(f"/models/{model}.gguf", f"{model}.gguf", "a" * 64) for model in parsed.spec.models}
    gateway = next(one for one in desired_fleet(lab, files).instances if one.name == "g")
    return replace(gateway, name=name, services=tuple(one for one in gateway.services if one.role == "litellm"))


def _play(folder: Path) -> dict[str, Any]:
    """Write both files of each gateway below the folder, named for the gateway."""
    written = [
        {
            "ansible.builtin.template": {
                "src": str(ROLE / "templates" / template),
                "dest": f"{folder}/{{{{ inventory_hostname }}}}.{end}",
                "mode": "0600",
            }
        }
        for end, template in TEMPLATES.items()
    ]
    inner = {"ansible.builtin.include_vars": str(ROLE / "vars" / "main.yml")}
    return {"hosts": "service_litellm", "gather_facts": False, "tasks": [inner, *written]}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which ansible-playbook wrote both files of each case, from the inventory that a run gives it."""
    folder = tmp_path_factory.mktemp("labs")
    gateways = [_gateway(name) for name in CASES]
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    inventory, playbook, secrets = folder / "hosts.yml", folder / "play.yml", folder / "secrets.json"
    text = render_inventory(gateways, {one.name: here for one in gateways}, paths.inventory_templates())
    inventory.write_text(text, encoding="utf-8")
    playbook.write_text(yaml.safe_dump([_play(folder)]), encoding="utf-8")
    secrets.write_text(json.dumps(_values(gateways)), encoding="utf-8")
    done = subprocess.run(
        [str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(inventory), str(playbook)],
        env=os.environ | ansible_environment(secrets) | {"ANSIBLE_NOCOLOR": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder


def _values(gateways: list[Instance]) -> Mapping[str, str]:
    found: dict[str, Secret] = {}
    for gateway in gateways:
        for service in gateway.services:
            found |= secrets_of(service.variables)
    return {name: secret.reveal() for name, secret in found.items()}


@pytest.mark.parametrize("end", TEMPLATES)
@pytest.mark.parametrize("name", CASES)
def test_the_file_is_the_same_as_ever(written: Path, name: str, end: str) -> None:
    assert (written / f"{name}.{end}").read_text(encoding="utf-8") == read_case(CASES[name])[end]
