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


def _play(file: Path) -> dict[str, Any]:
    """Write both texts of each gateway into the file, by the gateway's name.

    No gateway runs a module for it but one: ten files by Ansible's module for templates are thirty starts of Python.
    """
    texts = {
        end: f"{{{{ lookup('ansible.builtin.template', '{ROLE}/templates/{name}') }}}}"
        for end, name in TEMPLATES.items()
    }
    of_all = "dict(ansible_play_hosts | zip(ansible_play_hosts | map('extract', hostvars, 'texts')))"
    tasks = [
        {"ansible.builtin.include_vars": str(ROLE / "vars" / "main.yml")},
        {"ansible.builtin.set_fact": {"texts": texts}},
        {
            "ansible.builtin.copy": {"content": f"{{{{ {of_all} | to_json }}}}", "dest": str(file), "mode": "0600"},
            "run_once": True,
        },
    ]
    return {"hosts": "service_litellm", "gather_facts": False, "tasks": tasks}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Both texts of each case's gateway, which ansible-playbook made from the inventory that a run gives it."""
    folder = tmp_path_factory.mktemp("labs")
    gateways = [_gateway(name) for name in CASES]
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    inventory, playbook, secrets = folder / "hosts.yml", folder / "play.yml", folder / "secrets.json"
    text = render_inventory(gateways, {one.name: here for one in gateways}, paths.inventory_templates())
    inventory.write_text(text, encoding="utf-8")
    playbook.write_text(yaml.safe_dump([_play(folder / "texts.json")]), encoding="utf-8")
    secrets.write_text(json.dumps(_values(gateways)), encoding="utf-8")
    # A product's task may take a day. One that hangs here is named by Ansible, which is ended before the test is.
    limits = {"ANSIBLE_TASK_TIMEOUT": "120"}
    done = subprocess.run(
        [str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(inventory), str(playbook)],
        env=os.environ | ansible_environment(secrets) | {"ANSIBLE_NOCOLOR": "1"} | limits,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    texts: dict[str, dict[str, str]] = json.loads((folder / "texts.json").read_text(encoding="utf-8"))
    return texts


def _values(gateways: list[Instance]) -> Mapping[str, str]:
    found: dict[str, Secret] = {}
    for gateway in gateways:
        for service in gateway.services:
            found |= secrets_of(service.variables)
    return {name: secret.reveal() for name, secret in found.items()}


@pytest.mark.parametrize("end", TEMPLATES)
@pytest.mark.parametrize("name", CASES)
def test_the_file_is_the_same_as_ever(written: dict[str, dict[str, str]], name: str, end: str) -> None:
    assert written[name][end] == read_case(CASES[name])[end]
