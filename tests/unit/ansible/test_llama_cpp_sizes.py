"""Which sizes of a prompt's parts the role chooses by itself, as Ansible works them out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from provisioner.values import paths
from tests.ansible_environment import ansible_environment

ROLE = paths.roles() / "llama_cpp"
CARD = {"llama_cpp_backend": "cuda", "llama_cpp_mmproj": "/srv/models/eye/eye.gguf"}
CASES: dict[str, tuple[dict[str, Any], int, int]] = {
    "text on the CPU": ({}, 2048, 512),
    "images on the CPU": ({"llama_cpp_mmproj": "/srv/models/eye/eye.gguf"}, 2048, 512),
    "images on a card of 8 GiB": ({**CARD, "__llama_cpp_devices": {"memory_mib": 8192}}, 128, 64),
    "images on a card of 12 GiB": ({**CARD, "__llama_cpp_devices": {"memory_mib": 12287}}, 2048, 512),
    "images on a card of unknown size": ({**CARD, "__llama_cpp_devices": {"memory_mib": 0}}, 2048, 512),
    "text on a card of 8 GiB": ({"llama_cpp_backend": "cuda", "__llama_cpp_devices": {"memory_mib": 8192}}, 2048, 512),
    "no layer on the card": (
        {**CARD, "llama_cpp_gpu_layers": 0, "__llama_cpp_devices": {"memory_mib": 8192}},
        2048,
        512,
    ),
    "a small batch": ({"llama_cpp_batch": 256}, 256, 256),
    "a large part": ({"llama_cpp_ubatch": 4096}, 4096, 4096),
    "written on a small card": ({**CARD, "llama_cpp_batch": 512, "__llama_cpp_devices": {"memory_mib": 4096}}, 512, 64),
}


def test_sizes_follow_the_card_and_what_is_written(tmp_path: Path) -> None:
    hosts = {f"h{number}": {"ansible_connection": "local", **case[0]} for number, case in enumerate(CASES.values())}
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text(encoding="utf-8"))
    # Role defaults yield to what a host says; play variables would not.
    inventory = {"all": {"vars": defaults, "hosts": hosts}}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")
    sizes = "{{ [inventory_hostname, __llama_cpp_batch | int, __llama_cpp_ubatch | int] | to_json }}"
    play = {
        "hosts": "all",
        "gather_facts": False,
        "vars_files": [str(ROLE / "vars/main.yml")],
        "tasks": [{"name": "Say", "ansible.builtin.debug": {"msg": f"SIZES={sizes}"}}],
    }
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]), encoding="utf-8")
    done = subprocess.run(
        [Path(sys.executable).parent / "ansible-playbook", "-i", tmp_path / "hosts.yml", tmp_path / "play.yml"],
        env=os.environ | ansible_environment(tmp_path) | {"ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.minimal"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = [line.partition("SIZES=")[2].rstrip('",').replace('\\"', '"') for line in done.stdout.splitlines()]
    found = {name: sizes for name, *sizes in (json.loads(one) for one in said if one)}
    wanted = {f"h{number}": list(case[1:]) for number, case in enumerate(CASES.values())}
    assert found == wanted
