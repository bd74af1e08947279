"""The configuration that the gateway of a whole lab gets, byte by byte: what differs restarts gateways that run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from provisioner.catalog import load_catalog
from provisioner.lab import ModelFile, desired_fleet, problems, resolve
from provisioner.labfile.parsing import parse_spec
from provisioner.reconcile.inventory import render_inventory
from provisioner.values import paths
from provisioner.values.state import Instance, Secret, secrets_of
from tests.case_files import read_case
from tests.plays import HERE, rendered, run_play

ROOT = Path(__file__).resolve().parents[3]
ROLE = paths.roles() / "litellm"
FOLDER = ROOT / "tests" / "cases" / "gateway"
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


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Both files of each case, as Ansible renders them with the inventory that a run gives it."""
    folder = tmp_path_factory.mktemp("labs")
    gateways = [_gateway(name) for name in CASES]
    secrets = folder / "secrets.json"
    secrets.write_text(json.dumps(_values(gateways)), encoding="utf-8")
    files = {end: rendered(ROLE / "templates" / template) for end, template in TEMPLATES.items()}
    tasks = [{"include_vars": str(ROLE / "vars" / "main.yml")}, {"set_fact": files}]
    inventory = render_inventory(gateways, {one.name: HERE for one in gateways}, paths.inventory_templates())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROVISION_SECRETS_FILE", str(secrets))
        return run_play(ROOT, folder, {"hosts": "service_litellm", "tasks": tasks}, inventory)


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
