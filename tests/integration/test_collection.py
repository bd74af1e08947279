"""The collection in an empty folder, with ansible-core alone, over ssh in a container that is nobody's lab."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.models.tiny import ensure_tiny_model
from tests.integration.plain_ansible import ansible
from tests.integration.plain_machine import UNCHANGED, PlainMachine, fill_folder, plain_machine
from tests.lab.incus import Lab

__all__ = ["ansible"]

pytestmark = [pytest.mark.incus, pytest.mark.network, pytest.mark.slow]

BUILD_TIMEOUT_S = 3600.0
"""So long llama.cpp takes at most to be compiled where the tests run, with all other work beside it."""
PLAY = """
- hosts: plain
  roles:
    - provisioner.inference.base
    - {role: provisioner.inference.cuda_toolkit, cuda_toolkit_version: "13.0"}
"""
ENGINE_PLAY = """
- hosts: plain
  roles:
    - provisioner.inference.base
    - {role: provisioner.inference.llama_cpp, llama_cpp_model: /srv/models/tiny.gguf, llama_cpp_alias: tiny}
"""
GATEWAY_PLAY = """
- hosts: plain
  vars:
    litellm_aliases: {fast: [tiny]}
    litellm_routes: "{{ lookup('provisioner.inference.provision_litellm_routes', litellm_aliases, engines=engines) }}"
    litellm_master_key: sk-canary-of-a-play
    engines: [{name: tiny, model: openai/tiny, api_base: "http://127.0.0.1:8080/v1", local: true}]
  roles: [provisioner.inference.base, provisioner.inference.litellm]
"""
WITHOUT_KEY = GATEWAY_PLAY.replace("    litellm_master_key: sk-canary-of-a-play\n", "")
ANSWER = """python3 - <<'END'
import json, urllib.request
question = {"model": "fast", "max_tokens": 4, "messages": [{"role": "user", "content": "Say hello."}]}
headers = {"Authorization": "Bearer sk-canary-of-a-play", "Content-Type": "application/json"}
asked = urllib.request.Request("http://127.0.0.1:4000/v1/chat/completions", json.dumps(question).encode(), headers)
print(urllib.request.urlopen(asked, timeout=50).read().decode())
END
"""
COMPILE = "llama_cpp : build | Compile"


@pytest.fixture(scope="module")
def plain(ansible: Path, incus_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainMachine]:
    """A machine that no lab made, and the folder of somebody who has the collection alone."""
    assert incus_lab
    folder = tmp_path_factory.mktemp("user")
    fill_folder(ansible, folder)
    with plain_machine(ansible, folder, "debian/12") as machine:
        yield machine


def test_a_role_of_the_collection_proves_itself_and_then_changes_nothing(plain: PlainMachine) -> None:
    first = plain.play_twice(PLAY)
    assert "provisioner.inference.cuda_toolkit : verify | Check that it compiled with the right toolkit" in first


def test_a_value_of_the_wrong_type_is_refused_before_anything_is_touched(plain: PlainMachine) -> None:
    said = plain.play(PLAY.replace('"13.0"', "[13]"))
    assert not said.endswith("rc=0")
    assert "cuda_toolkit_version" in said
    assert "wheels |" not in said


def test_a_model_that_is_not_there_is_told_before_anything_is_built(plain: PlainMachine) -> None:
    said = plain.play(ENGINE_PLAY.replace("tiny.gguf", "another.gguf"))
    assert said.endswith("rc=2"), said
    assert "Unable to set up llama_cpp: /srv/models/another.gguf is missing in the machine" in said
    assert UNCHANGED in said
    assert COMPILE not in said


def test_what_a_lab_should_have_mounted_is_never_built_in_its_container(plain: PlainMachine) -> None:
    as_in_a_lab = ENGINE_PLAY.replace(
        "llama_cpp_alias", "llama_cpp_artifact_path: /opt/llama_cpp/0123, llama_cpp_alias"
    )
    said = plain.play(as_in_a_lab)
    assert said.endswith("rc=2"), said
    assert "Unable to use llama-server in /opt/llama_cpp/0123" in said
    assert UNCHANGED in said
    assert "build_here" not in said


@pytest.fixture(scope="module")
def engine(plain: PlainMachine, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the play of one engine says that was built in the machine itself; its model is a file that lies there."""
    model = ensure_tiny_model(tmp_path_factory.mktemp("model"))
    plain.ssh("install -d /srv/models && cat > /srv/models/tiny.gguf", model.read_bytes())
    return plain.play(ENGINE_PLAY, BUILD_TIMEOUT_S)


def test_an_engine_builds_its_program_proves_itself_and_then_changes_nothing(plain: PlainMachine, engine: str) -> None:
    assert engine.endswith("rc=0"), engine
    assert COMPILE in engine
    second = plain.play(ENGINE_PLAY)
    assert second.endswith("rc=0"), second
    assert UNCHANGED in second
    assert COMPILE not in second


def test_a_gateway_routes_an_alias_to_that_engine_and_then_changes_nothing(plain: PlainMachine, engine: str) -> None:
    assert engine.endswith("rc=0"), engine
    first = plain.play(GATEWAY_PLAY, BUILD_TIMEOUT_S)
    assert first.endswith("rc=0"), first
    assert "litellm : build | Install the packages, each with its hash" in first
    second = plain.play(GATEWAY_PLAY)
    assert second.endswith("rc=0"), second
    assert UNCHANGED in second
    assert "sk-canary" not in first + second
    answer = json.loads(plain.ssh(ANSWER))
    assert answer["choices"][0]["message"]["role"] == "assistant"


def test_a_missing_secret_is_told_before_anything_is_touched(plain: PlainMachine) -> None:
    said = plain.play(WITHOUT_KEY)
    assert said.endswith("rc=2"), said
    assert "missing required arguments: litellm_master_key" in said
    assert UNCHANGED in said
    assert "preflight |" not in said
