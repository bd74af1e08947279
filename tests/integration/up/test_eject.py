"""An ejected lab: ``ansible-playbook`` alone, without this package, finds everything as ``up`` left it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.plain_ansible import ansible, play
from tests.integration.up.quickstart_lab import CANARIES, ENGINE_KEY, Lab
from tests.lab.incus import Lab as Incus
from tests.lab_files import lab_text

__all__ = ["ansible"]  # a fixture

pytestmark = [pytest.mark.incus]

NAME = "eject1"
FILE = lab_text("eject")
SECRET = "PROVISION_SECRET_ENGINE_KEY"


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab that is up."""
    lab = Lab(tmp_path_factory.mktemp(NAME), incus_lab.environment, "debian/12", "debian/12", name=NAME)
    lab.write(FILE)
    try:
        lab.succeeded("up", "--yes")
        yield lab
    finally:
        ended = lab.provision("destroy", "--prune", "--yes", "--lab", NAME)
    assert ended.code == 0, ended.out + ended.err


@pytest.fixture(scope="module")
def ejected(lab: Lab) -> Path:
    """The folder that was ejected."""
    lab.succeeded("eject", "out", "homelab.yml")
    return lab.folder / "out"


def test_it_runs_without_this_package_and_finds_nothing_to_change(lab: Lab, ejected: Path, ansible: Path) -> None:
    said = play(ansible, ejected, "site.yml", environment={SECRET: ENGINE_KEY})
    assert said.endswith("rc=0"), said
    recap = [line for line in said.splitlines() if "changed=" in line]
    assert len(recap) == 2, said
    assert all("changed=0" in line and "failed=0" in line for line in recap), said
    assert "llama_cpp : verify_chat | Ask for a completion" in said
    assert not [one for one in CANARIES if one in said]
    assert lab.provision("plan", "--detailed-exitcode").code == 0, "the stamps hold"


def test_it_mends_what_somebody_changed(lab: Lab, ejected: Path, ansible: Path) -> None:
    box = f"{NAME}-llama"
    lab.incus("exec", box, "--", "sh", "-c", "echo wrong > /etc/llama-server.api-key")
    said = play(ansible, ejected, "site.yml", "--limit", box, environment={SECRET: ENGINE_KEY})
    assert said.endswith("rc=0"), said
    assert lab.incus("exec", box, "--", "cat", "/etc/llama-server.api-key") == f"{ENGINE_KEY}\n"


def test_a_secret_that_is_not_set_is_an_error_that_names_it(ejected: Path, ansible: Path) -> None:
    said = play(ansible, ejected, "verify.yml", environment={})
    assert not said.endswith("rc=0")
    assert f"Set {SECRET}." in said


def test_containers_yml_says_what_it_needs(ejected: Path, ansible: Path) -> None:
    said = play(ansible, ejected, "containers.yml", "--limit", f"{NAME}-bare", environment={})
    assert not said.endswith("rc=0")
    assert "Unable to import provisioner" in said


def test_containers_yml_runs_with_this_package_and_changes_nothing(lab: Lab, ejected: Path) -> None:
    said = play(Path(sys.executable), ejected, "containers.yml", environment=lab.environment)
    assert said.endswith("rc=0"), said
    assert said.count("changed=0") == 2, said
    assert lab.provision("plan", "--detailed-exitcode").code == 0


def test_no_value_of_a_secret_is_in_it(ejected: Path) -> None:
    texts = {one: one.read_bytes() for one in ejected.rglob("*") if one.is_file()}
    assert not [str(one) for one, text in texts.items() if any(canary.encode() in text for canary in CANARIES)]
    assert SECRET.encode() in texts[ejected / "host_vars" / f"{NAME}-llama.yml"]
