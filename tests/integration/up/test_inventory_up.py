"""A lab's file as Ansible's inventory, on a real host: a play of one's own reaches what ``up`` made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.up.quickstart_lab import ENGINE_KEY, Lab
from tests.lab.incus import Lab as Incus
from tests.processes import completed

pytestmark = [pytest.mark.incus, pytest.mark.network, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[3]
NAME, PLAY_S = "listed", 300
FILE = """
name: listed
models: { tiny: { source: "builtin:tiny", context: 512 } }
containers:
  listed-llama: { services: { llama_cpp: { model: tiny, api_key: !secret engine_key } } }
"""
MORE = """  listed-later: {}
"""
INVENTORY = "plugin: provisioner.inference.lab\nfile: homelab.yml\n"
PLAY = """
- hosts: service_llama_cpp
  gather_facts: false
  tasks:
    - ansible.builtin.slurp: {src: /etc/hostname}
      register: found
    - ansible.builtin.debug: {msg: "It is {{ found.content | b64decode | trim }}."}
    - ansible.builtin.uri:
        url: http://127.0.0.1:8080/v1/models
        headers: {Authorization: "Bearer {{ llama_cpp_api_key }}"}
      no_log: true
"""


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab, up, with a container in its file that is not there yet, and the collection beside it."""
    lab = Lab(tmp_path_factory.mktemp(NAME), incus_lab.environment, "debian/12", "debian/12", name=NAME)
    lab.write(FILE)
    with lab.brought_up():
        lab.write(FILE + MORE)
        (lab.folder / "inventory.yml").write_text(INVENTORY, encoding="utf-8")
        (lab.folder / "play.yml").write_text(PLAY, encoding="utf-8")
        build: list[str | Path] = [sys.executable, ROOT / ".ci/collection.py", lab.folder]
        subprocess.run(build, check=True, capture_output=True, timeout=PLAY_S)
        (file,) = lab.folder.glob("provisioner-inference-*.tar.gz")
        installed = ansible(lab, "ansible-galaxy", "collection", "install", "--offline", str(file), "-p", "collections")
        assert installed.returncode == 0, installed.stderr
        yield lab


def ansible(lab: Lab, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """What one of Ansible's programs says in the lab's folder."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    own = {"ANSIBLE_HOME": str(lab.folder / "home"), "ANSIBLE_COLLECTIONS_PATH": str(lab.folder / "collections")}
    command = [str(Path(sys.executable).parent / program), *words]
    environment = {**clean, **lab.environment, **own}
    return completed(command, cwd=lab.folder, env=environment, timeout_s=PLAY_S)


def test_groups_and_ways_in_are_those_of_the_lab_and_what_is_not_there_is_said(lab: Lab) -> None:
    listed = ansible(lab, "ansible-inventory", "-i", "inventory.yml", "--list")
    assert listed.returncode == 0, listed.stderr
    found = json.loads(listed.stdout)
    assert found["service_llama_cpp"]["hosts"] == ["listed-llama"]
    assert found["not_there"]["hosts"] == ["listed-later"]
    variables = found["_meta"]["hostvars"]
    way = {"__ansible_unsafe": "provisioner.inference.provision_incus"}  # what a lab says is never a template
    assert variables["listed-llama"]["ansible_connection"] == way
    assert "listed-later" not in variables
    # Behind a bridge it has no address in the LAN, and none is made up.
    assert not any("provision_address" in one for one in variables.values())
    assert "Container listed-later of" in listed.stderr
    assert ENGINE_KEY not in listed.stdout + listed.stderr


def test_a_play_of_ones_own_reaches_it_and_has_its_secrets_by_lookup(lab: Lab) -> None:
    played = ansible(lab, "ansible-playbook", "-i", "inventory.yml", "play.yml")
    assert played.returncode == 0, played.stdout + played.stderr
    assert "It is listed-llama." in played.stdout
    assert ENGINE_KEY not in played.stdout + played.stderr


def test_a_file_with_an_error_is_told_in_our_words(lab: Lab) -> None:
    lab.write(FILE.replace("model: tiny", "model: nobody"))
    listed = ansible(lab, "ansible-inventory", "-i", "inventory.yml", "--list")
    assert "homelab.yml:5" in listed.stderr
    assert "nobody" in listed.stderr
    lab.write(FILE)
