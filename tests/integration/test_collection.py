"""The collection in an empty folder, with ansible-core alone, over ssh in a container that is nobody's lab."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.models.tiny import ensure_tiny_model
from provisioner.providers.incus import IncusProvider
from provisioner.values.state import Instance
from tests.integration.plain_ansible import ansible, play
from tests.lab.incus import Lab

__all__ = ["ansible"]

pytestmark = [pytest.mark.incus, pytest.mark.network, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
REACHES = (
    ".ci",
    "roles/base",
    "roles/cuda_toolkit",
    "roles/litellm",
    "roles/llama_cpp",
    "roles/switch",
    "src/provisioner/ansible",
    "src/provisioner/cuda",
    "src/provisioner/services",
)
TIMEOUT_S = 900
BUILD_TIMEOUT_S = 3600.0
"""So long llama.cpp takes at most to be compiled where the tests run, with all other work beside it."""
WITH_SSH = """
set -e
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq -y --no-install-recommends install openssh-server >/dev/null
install -d -m 0700 /root/.ssh
cat > /root/.ssh/authorized_keys
"""
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
UNCHANGED = "changed=0 "
COMPILE = "llama_cpp : build | Compile"


@pytest.fixture(scope="module")
def folder(ansible: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder into which the built file was installed, and nothing else."""
    folder = tmp_path_factory.mktemp("user")
    subprocess.run([sys.executable, ROOT / ".ci/collection.py", folder], check=True, capture_output=True, timeout=120)
    (file,) = folder.glob("provisioner-inference-*.tar.gz")
    galaxy = Path(sys.executable).parent / "ansible-galaxy"
    install: list[str | Path] = [
        ansible,
        galaxy,
        "collection",
        "install",
        "--offline",
        file,
        "-p",
        folder / "collections",
    ]
    subprocess.run(install, check=True, capture_output=True, cwd=folder, timeout=120)
    file.unlink()
    return folder


def _ssh(folder: Path, plain: str, script: str, given: bytes = b"") -> str:
    address = plain.split(maxsplit=1)[0]
    options: list[str | Path] = [
        "-i",
        folder / "key",
        "-o",
        f"UserKnownHostsFile={folder}/known_hosts",
        "-o",
        "StrictHostKeyChecking=yes",
    ]
    done = subprocess.run(
        ["ssh", *options, f"root@{address}", script], input=given, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.fixture(scope="module")
def plain(incus_lab: Lab, folder: Path) -> Iterator[str]:
    """The inventory line of a container with an sshd, which no lab owns."""
    assert incus_lab
    provider = IncusProvider("box")
    name = f"t{secrets.token_hex(4)}-plain"
    key = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True, timeout=60)
    one = Instance(name, "box", "none", "debian/12")
    provider.create(one)
    try:
        provider.start(one)
        provider.wait_until_ready(one)
        public = key.with_suffix(".pub").read_bytes()
        _in(provider, name, WITH_SSH, public)
        address = _in(provider, name, "hostname -I").split()[0]
        host_key = _in(provider, name, "cut -d' ' -f1,2 /etc/ssh/ssh_host_ed25519_key.pub")
        (folder / "known_hosts").write_text(f"{address} {host_key}")
        options = f"-o UserKnownHostsFile={folder}/known_hosts -o StrictHostKeyChecking=yes"
        yield f'{address} ansible_user=root ansible_ssh_private_key_file={key} ansible_ssh_common_args="{options}"'
    finally:
        provider.delete(one)


def _in(provider: IncusProvider, name: str, script: str, given: bytes = b"") -> str:
    done = provider.execute(name, ["bash", "-c", script], stdin=given, timeout_s=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout.decode())


def _played(ansible: Path, folder: Path, plain: str, text: str, timeout_s: float = TIMEOUT_S) -> str:
    (folder / "hosts").write_text(f"[plain]\n{plain}\n")
    (folder / "play.yml").write_text(text)
    own = {"ANSIBLE_HOME": str(folder / "home"), "ANSIBLE_COLLECTIONS_PATH": str(folder / "collections")}
    return play(ansible, folder, "-i", "hosts", "play.yml", environment=own, timeout_s=timeout_s)


def test_a_role_of_the_collection_proves_itself_and_then_changes_nothing(
    ansible: Path, folder: Path, plain: str
) -> None:
    first = _played(ansible, folder, plain, PLAY)
    assert first.endswith("rc=0"), first
    assert "provisioner.inference.cuda_toolkit : verify | Check that it compiled with the right toolkit" in first
    assert UNCHANGED not in first
    second = _played(ansible, folder, plain, PLAY)
    assert second.endswith("rc=0"), second
    assert UNCHANGED in second


def test_a_value_of_the_wrong_type_is_refused_before_anything_is_touched(
    ansible: Path, folder: Path, plain: str
) -> None:
    said = _played(ansible, folder, plain, PLAY.replace('"13.0"', "[13]"))
    assert not said.endswith("rc=0")
    assert "cuda_toolkit_version" in said
    assert "wheels |" not in said


def test_a_model_that_is_not_there_is_told_before_anything_is_built(ansible: Path, folder: Path, plain: str) -> None:
    said = _played(ansible, folder, plain, ENGINE_PLAY.replace("tiny.gguf", "another.gguf"))
    assert said.endswith("rc=2"), said
    assert "Unable to set up llama_cpp: /srv/models/another.gguf is missing in the machine" in said
    assert UNCHANGED in said
    assert COMPILE not in said


def test_what_a_lab_should_have_mounted_is_never_built_in_its_container(
    ansible: Path, folder: Path, plain: str
) -> None:
    as_in_a_lab = ENGINE_PLAY.replace(
        "llama_cpp_alias", "llama_cpp_artifact_path: /opt/llama_cpp/0123, llama_cpp_alias"
    )
    said = _played(ansible, folder, plain, as_in_a_lab)
    assert said.endswith("rc=2"), said
    assert "Unable to use llama-server in /opt/llama_cpp/0123" in said
    assert UNCHANGED in said
    assert "build_here" not in said


@pytest.fixture(scope="module")
def engine(ansible: Path, folder: Path, plain: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the play of one engine says that was built in the machine itself; its model is a file that lies there."""
    model = ensure_tiny_model(tmp_path_factory.mktemp("model"))
    _ssh(folder, plain, "install -d /srv/models && cat > /srv/models/tiny.gguf", model.read_bytes())
    return _played(ansible, folder, plain, ENGINE_PLAY, BUILD_TIMEOUT_S)


def test_an_engine_builds_its_program_proves_itself_and_then_changes_nothing(
    ansible: Path, folder: Path, plain: str, engine: str
) -> None:
    assert engine.endswith("rc=0"), engine
    assert COMPILE in engine
    second = _played(ansible, folder, plain, ENGINE_PLAY)
    assert second.endswith("rc=0"), second
    assert UNCHANGED in second
    assert COMPILE not in second


def test_a_gateway_routes_an_alias_to_that_engine_and_then_changes_nothing(
    ansible: Path, folder: Path, plain: str, engine: str
) -> None:
    assert engine.endswith("rc=0"), engine
    first = _played(ansible, folder, plain, GATEWAY_PLAY, BUILD_TIMEOUT_S)
    assert first.endswith("rc=0"), first
    assert "litellm : build | Install the packages, each with its hash" in first
    second = _played(ansible, folder, plain, GATEWAY_PLAY)
    assert second.endswith("rc=0"), second
    assert UNCHANGED in second
    assert "sk-canary" not in first + second
    answer = json.loads(_ssh(folder, plain, ANSWER))
    assert answer["choices"][0]["message"]["role"] == "assistant"


def test_a_missing_secret_is_told_before_anything_is_touched(ansible: Path, folder: Path, plain: str) -> None:
    said = _played(ansible, folder, plain, WITHOUT_KEY)
    assert said.endswith("rc=2"), said
    assert "missing required arguments: litellm_master_key" in said
    assert UNCHANGED in said
    assert "preflight |" not in said
