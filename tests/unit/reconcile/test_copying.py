"""What only one of two containers can have: the block of a copy says what it has instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from provisioner.lab.opening import Lab, open_lab
from provisioner.labfile.document import parse_document
from provisioner.reconcile.clone import Wanted, objection, settings_of, text_with_copy
from provisioner.values.errors import InputError
from tests.case_files import read_cases

CASES = read_cases("workflow/copying")

PVE: str = CASES["pve"]
DOOR: str = CASES["door"]


def opened(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> Lab:
    for name in ("TOKEN", "KEY", "AUTHORITY", "MASTER"):
        monkeypatch.setenv(f"PROVISION_SECRET_{name}", "sk-a-value-of-many-letters-0123456789")
    file = folder / "homelab.yml"
    file.write_text(text)
    return open_lab(file)


def block_of(lab: Lab, text: str, *settings: str) -> dict[str, Any]:
    edited = text_with_copy(lab, text, Wanted("desk", "trial", settings_of(settings)))
    assert open_lab(lab.loaded.path, content=edited.encode()).spec.containers["trial"].copy_of == "desk"
    found = parse_document(edited.encode()).data["containers"]["trial"]
    assert isinstance(found, dict)
    return found


def test_a_copy_on_proxmox_has_no_number_and_no_address_of_its_original(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = opened(tmp_path, PVE, monkeypatch)
    block = block_of(lab, PVE, "cpu=2")
    assert (block["cpu"], block["adopt"], block["copy_of"]) == (2, False, "desk")
    assert block["services"]["llama_cpp"]["expose"] == "host"
    assert (block["proxmox"]["vmid"], block["proxmox"]["storage"]) == (None, "fast")
    network = {"ip": "dhcp", "gateway": None, "ip6": "auto", "mac": None}
    assert block["proxmox"]["network"] == network


def test_what_is_asked_for_stands_before_what_would_be_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = opened(tmp_path, PVE, monkeypatch)
    block = block_of(lab, PVE, "proxmox.network.ip=192.0.2.10/24", "proxmox.network.gateway=192.0.2.254")
    assert block["proxmox"]["network"]["ip"] == "192.0.2.10/24"
    assert block["proxmox"]["network"]["gateway"] == "192.0.2.254"
    whole = block_of(lab, PVE, "proxmox.network={ip: none}")
    assert whole["proxmox"]["network"] == {"ip": "none"}


def test_a_door_is_not_copied_and_what_is_behind_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    containers = opened(tmp_path, DOOR, monkeypatch).resolved.containers
    why = objection(containers["front"])
    assert why is not None
    assert "front/door is a door" in why[0]
    assert objection(containers["engine"]) is None


@pytest.mark.parametrize(("word", "place"), CASES["secrets"]["in clear"])
def test_a_secret_in_clear_is_refused_wherever_it_is_nested(
    word: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text: str = CASES["secrets"]["file"]
    lab = opened(tmp_path, text, monkeypatch)
    with pytest.raises(InputError, match="is a secret") as refused:
        text_with_copy(lab, text, Wanted("desk", "trial", settings_of([word])))
    assert f"{place} is a secret" in str(refused.value)
    assert "canary" not in f"{refused.value} {refused.value.details} {refused.value.resolution}"


@pytest.mark.parametrize("words", [["A.b=canary"], ["services.oci.api_key =canary"], ["a=canary", "a=canary"]])
def test_a_word_that_is_no_setting_is_not_repeated(words: list[str]) -> None:
    with pytest.raises(InputError) as refused:
        settings_of(words)
    assert "canary" not in str(refused.value)


def test_a_named_secret_is_taken_wherever_it_is_nested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text: str = CASES["secrets"]["file"]
    block = block_of(opened(tmp_path, text, monkeypatch), text, "services.oci.secrets=[{name: A, value: !secret key}]")
    assert [secret["name"] for secret in block["services"]["oci"]["secrets"]] == ["A"]
