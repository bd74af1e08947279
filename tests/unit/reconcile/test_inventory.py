"""The inventory: read back by Ansible itself, every string is what was written, and never a template."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from provisioner.reconcile.gather import inputs_of
from provisioner.reconcile.inventory import render_builders, render_inventory
from provisioner.values import paths
from provisioner.values.state import Artifact, Instance, Secret, Service, secrets_of

NASTY = [
    *("on", "123", "1e3", "0x1f", "null", "~", "", "2026-01-01", "1:30", "0000:01:00.0", "<<", "=", "yes", ".inf"),
    *("{{ lookup('pipe', 'id') }}", "{% raw %}", "{# note #}", "!unsafe x", "&a", "*b", "a: b", "# c", "-", "'", '"'),
    *("\\", "\x7f", "\u2028", "é", "\U0001f600", " lead", "trail ", "\n", "a\nb\n", "\t"),
]


def _read_by_ansible(text: str, folder: Path) -> dict[str, Any]:
    file = folder / "hosts.yml"
    file.write_text(text, encoding="utf-8")
    listed = subprocess.run(
        [str(Path(sys.executable).parent / "ansible-inventory"), "-i", str(file), "--list"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    found: dict[str, Any] = json.loads(listed.stdout)
    return found


def _service(variables: dict[str, Any], role: str = "litellm") -> Service:
    return Service(role=role, container="gateway", stage="gateway", variables=variables)


def _lab(*services: Service) -> str:
    instance = Instance("gateway", "box", "lab", "debian/12", services=services)
    connection = {"gateway": {"ansible_connection": "provision_incus"}}
    return render_inventory([instance], connection, paths.inventory_templates())


def test_every_string_survives_and_none_is_a_template(tmp_path: Path) -> None:
    found = _read_by_ansible(
        _lab(_service({"litellm_list": NASTY, "litellm_flag": True, "litellm_count": 3})), tmp_path
    )
    variables = found["_meta"]["hostvars"]["gateway"]
    values = [one["__ansible_unsafe"] if isinstance(one, dict) else one for one in variables["litellm_list"]]
    assert values == NASTY
    for value, read in zip(NASTY, variables["litellm_list"], strict=True):
        assert isinstance(read, dict) or "{" not in value
    assert (variables["litellm_flag"], variables["litellm_count"]) == (True, 3)


def test_what_is_reckoned_is_told_its_role_and_stands_in_no_stamp(tmp_path: Path) -> None:
    plain = _service({"llama_cpp_context": 1024}, role="llama_cpp")
    reckoned = replace(plain, estimates={"llama_cpp_card_bytes": 2**32})
    variables = _read_by_ansible(_lab(reckoned), tmp_path)["_meta"]["hostvars"]["gateway"]
    assert variables["llama_cpp_card_bytes"] == 2**32
    assert inputs_of(reckoned) == inputs_of(plain)


def test_who_takes_turns_on_a_card_is_a_group_of_its_own(tmp_path: Path) -> None:
    members = [{"name": "chat/llama_cpp", "url": "http://127.0.0.1:8080", "own": True}]
    found = _read_by_ansible(_lab(_service({"llama_cpp_share": members}, role="llama_cpp"), _service({})), tmp_path)
    assert found["taking_turns"]["hosts"] == ["gateway"]
    assert "taking_turns" not in _read_by_ansible(_lab(_service({"llama_cpp_share": []}, role="llama_cpp")), tmp_path)


def test_one_group_a_service(tmp_path: Path) -> None:
    found = _read_by_ansible(_lab(_service({}), _service({}, role="llama_cpp")), tmp_path)
    assert found["containers"]["hosts"] == ["gateway"]
    assert found["service_litellm"]["hosts"] == found["service_llama_cpp"]["hosts"] == ["gateway"]


def test_a_secret_is_a_lookup_of_its_name_at_any_depth(tmp_path: Path) -> None:
    secret = Secret("it's", "CANARY-VALUE")
    text = _lab(_service({"litellm_routes": {"engines": [{"api_key": secret}]}, "litellm_master_key": secret}))
    assert "CANARY-VALUE" not in text
    variables = _read_by_ansible(text, tmp_path)["_meta"]["hostvars"]["gateway"]
    lookup = "{{ lookup('provision_secret', 'it%27s') }}"
    assert variables["litellm_master_key"] == lookup
    assert variables["litellm_routes"] == {"engines": [{"api_key": lookup}]}
    assert secrets_of({"a": [{"b": (secret,)}]}) == {"it's": secret}


def test_builders_get_their_role_and_its_variables(tmp_path: Path) -> None:
    variables = {"llama_cpp_source": "pypi:x==1"}
    artifact = Artifact("x", "box", "d" * 64, "llama_cpp", "/opt/x", "debian/12", variables, mounted_at="/opt/x/d")
    text = render_builders([artifact], {artifact.builder: {"provision_endpoint": "/s"}}, paths.inventory_templates())
    variables = _read_by_ansible(text, tmp_path)["_meta"]["hostvars"][artifact.builder]
    assert variables["artifact_role"] == {"__ansible_unsafe": "llama_cpp"}
    assert variables["llama_cpp_source"] == {"__ansible_unsafe": "pypi:x==1"}
