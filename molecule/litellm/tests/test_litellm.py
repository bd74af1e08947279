"""The gateway as its users meet it: keys, aliases, fallbacks; and its own proof, which must fail where it is broken."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from testinfra.host import Host

SCENARIO = Path(__file__).resolve().parents[1]
MANIFEST = "/opt/litellm/MANIFEST.sha256"
STATE = "/var/lib/litellm"
TIMEOUT_S = 4  # litellm_request_timeout of vars.yml
ALLOWED_FAILS = 3  # the role's default
SECURITY_LIMIT = 30  # systemd counts in tenths: 3.0


class _Loader(yaml.SafeLoader):
    """Reads ``vars.yml`` as Ansible does: what is tagged ``!unsafe`` is a plain string."""


_Loader.add_constructor("!unsafe", lambda _, node: str(node.value))
VARS: dict[str, Any] = yaml.load((SCENARIO / "vars.yml").read_text(encoding="utf-8"), _Loader)  # noqa: S506  # safe
KEY: str = VARS["litellm_master_key"]
ENGINES: dict[str, Any] = {engine["name"]: engine for engine in VARS["litellm_engines"]}
SECRETS = [KEY, *(engine["api_key"] for engine in ENGINES.values() if "api_key" in engine)]
PORTS = {"first": 9001, "second": 9002, "paid": 9003}


@dataclass(frozen=True)
class Answer:
    """What came back: status, body and headers."""

    status: int
    body: Any
    fallbacks: int

    @property
    def said(self) -> str:
        """The completion's text."""
        text: str = self.body["choices"][0]["message"]["content"]
        return text


def http(url: str, body: bytes | None = None, key: str | None = None, method: str | None = None) -> Answer:
    """One request; an answer that is an error is an answer."""
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
    request = urllib.request.Request(url, data=body, headers=headers, method=method)  # noqa: S310  # http to a container
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=60) as answer:
            fallbacks = int(answer.headers.get("x-litellm-attempted-fallbacks", 0))
            return Answer(answer.status, json.load(answer), fallbacks)
    except urllib.error.HTTPError as error:
        return Answer(error.code, json.load(error), 0)


@dataclass(frozen=True)
class Lab:
    """The gateway and its engines, reached from the host."""

    address: str
    host: Host

    def models(self, key: str | None) -> Answer:
        """The list of models."""
        return http(f"http://{self.address}:4000/v1/models", key=key)

    def ask(self, model: str) -> Answer:
        """A completion through the gateway."""
        question = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
        return http(f"http://{self.address}:4000/v1/chat/completions", json.dumps(question).encode(), KEY)

    def tell(self, engine: str, mode: str) -> None:
        """Make the engine answer, fail, hang, refuse or say nothing."""
        http(f"http://{self.address}:{PORTS[engine]}/mode", mode.encode(), method="PUT")

    def seen(self, engine: str) -> dict[str, Any]:
        """How often the engine was asked, and with which key."""
        found: dict[str, Any] = http(f"http://{self.address}:{PORTS[engine]}/seen").body
        return found

    def pid(self) -> str:
        """The gateway's main process."""
        return str(self.host.check_output("systemctl show --property MainPID --value litellm.service"))


@pytest.fixture(scope="module")
def lab(host: Host) -> Lab:
    return Lab(host.check_output("hostname -I").split()[0], host)


@pytest.fixture
def healthy(lab: Lab) -> Iterator[Lab]:
    """The lab with engines that answer again when the test is over, and no alias that still avoids its primary."""
    yield lab
    lab.host.check_output("systemctl start engine@9001 engine@9002")
    for engine in ("first", "second"):
        wait_until(lambda engine=engine: engine_answers(lab, engine))
        lab.tell(engine, "answer")
    wait_until(lambda: lab.ask("fast").fallbacks == 0, timeout_s=45)


@pytest.fixture
def stopped(lab: Lab) -> Iterator[Lab]:
    """The lab with a gateway that is stopped for the length of the test."""
    lab.host.check_output("systemctl stop litellm.service")
    yield lab
    lab.host.check_output("systemctl start litellm.service")


def engine_answers(lab: Lab, engine: str) -> bool:
    """Whether the engine's process listens."""
    try:
        return bool(lab.seen(engine))
    except OSError:
        return False


def wait_until(condition: Any, timeout_s: float = 20) -> None:
    """Poll ``condition`` until it is true."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.25)


def playbook(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one of the scenario's playbooks on the scenario's containers; both of its streams are in ``stdout``."""
    inventory = os.environ["MOLECULE_INVENTORY_FILE"]
    command = ["ansible-playbook", "--inventory", inventory, str(SCENARIO / name), *arguments]
    return subprocess.run(
        command,
        env=os.environ | {"ANSIBLE_FORCE_COLOR": "0", "ANSIBLE_NOCOLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
    )


def variables(**values: Any) -> tuple[str, str]:
    """Extra variables for ``playbook``."""
    return ("--extra-vars", json.dumps(values))


def assert_no_secret(text: str) -> None:
    for secret in SECRETS:
        assert secret not in text
        assert json.dumps(secret)[1:-1] not in text


# What is there.


def test_the_unit_is_locked_up_and_starts_at_boot(host: Host) -> None:
    service = host.service("litellm")
    assert service.is_running
    assert service.is_enabled
    host.check_output(f"systemd-analyze security --no-pager --threshold={SECURITY_LIMIT} litellm.service")
    assert host.check_output("ps -o user= -C litellm") == "litellm"


def test_the_keys_arrive_as_they_are_and_lie_in_one_file_of_root(lab: Lab) -> None:
    file = lab.host.file("/etc/litellm/secrets.env")
    assert (file.user, file.group, file.mode) == ("root", "root", 0o600)
    environment = lab.host.check_output(f"tr '\\0' '\\n' < /proc/{lab.pid()}/environ").splitlines()
    assert f"LITELLM_MASTER_KEY={KEY}" in environment
    assert f"ENGINE_1_KEY={ENGINES['first']['api_key']}" in environment
    assert lab.ask("first").said == "port 9001"
    assert lab.seen("first")["key"] == ENGINES["first"]["api_key"]


def test_no_key_is_in_the_configuration_or_the_journal(host: Host) -> None:
    invocation = host.check_output("systemctl show --property InvocationID --value litellm.service")
    journal = host.check_output(f"journalctl --no-pager _SYSTEMD_INVOCATION_ID={invocation}")
    assert "Application startup complete" in journal
    text = journal + host.check_output("cat /etc/litellm/config.yaml /etc/systemd/system/litellm.service")
    assert_no_secret(text)


def test_names_arrive_as_they_are(lab: Lab) -> None:
    config = yaml.safe_load(lab.host.file("/etc/litellm/config.yaml").content_string)
    names = [entry["model_name"] for entry in config["model_list"]]
    assert names == [*VARS["litellm_aliases"], *ENGINES]
    assert config["router_settings"]["fallbacks"] == [{"fast": ["second"]}, {"cloud": ["second"]}]
    assert {entry["id"] for entry in lab.models(KEY).body["data"]} == set(names)


# What it does.


@pytest.mark.parametrize("key", [None, "sk-wrong"])
def test_nobody_gets_in_without_the_key(lab: Lab, key: str | None) -> None:
    answer = lab.models(key)
    assert answer.status == (401 if key is None else 400)
    assert "data" not in answer.body


def test_an_alias_asks_its_primary(lab: Lab) -> None:
    for alias, engines in VARS["litellm_aliases"].items():
        answer = lab.ask(alias)
        assert (answer.status, answer.said, answer.fallbacks) == (200, f"port {PORTS[engines[0]]}", 0)


def test_the_second_engine_answers_while_the_first_is_stopped_and_verify_says_so(healthy: Lab) -> None:
    healthy.host.check_output("systemctl stop engine@9001")
    answer = healthy.ask("fast")
    assert (answer.said, answer.fallbacks) == ("port 9002", 1)
    proof = playbook("verify_alone.yml")
    assert proof.returncode != 0
    assert "does not answer through the gateway" in proof.stdout
    assert "fast: status 500" in proof.stdout
    assert "single: status" not in proof.stdout
    assert_no_secret(proof.stdout)


def test_an_engine_that_hangs_is_left_alone_at_once(healthy: Lab) -> None:
    healthy.tell("first", "hang")
    began = time.monotonic()
    assert healthy.ask("fast").said == "port 9002"
    assert TIMEOUT_S <= time.monotonic() - began < 3 * TIMEOUT_S
    asked = healthy.seen("first")["asked"]
    began = time.monotonic()
    assert healthy.ask("fast").said == "port 9002"
    assert time.monotonic() - began < TIMEOUT_S
    assert healthy.seen("first")["asked"] == asked


def test_an_engine_that_fails_is_left_alone_after_a_few_failures(healthy: Lab) -> None:
    healthy.tell("first", "fail")
    before = healthy.seen("first")["asked"]
    for _ in range(ALLOWED_FAILS + 5):
        assert healthy.ask("fast").said == "port 9002"
    assert healthy.seen("first")["asked"] - before == ALLOWED_FAILS + 1


# What its proof is worth.


@pytest.mark.parametrize(
    ("modes", "complaints"),
    [
        ({"first": "refuse", "second": "empty"}, ["fast: status 401", "single: the answer is empty"]),
        ({"first": "hang"}, ["fast: status 408"]),
    ],
)
def test_verify_fails_when_an_engine_does_not_answer(
    healthy: Lab, modes: dict[str, str], complaints: list[str]
) -> None:
    paid = healthy.seen("paid")["asked"]
    for engine, mode in modes.items():
        healthy.tell(engine, mode)
    proof = playbook("verify_alone.yml")
    assert proof.returncode != 0
    for complaint in complaints:
        assert complaint in proof.stdout
    assert_no_secret(proof.stdout)
    assert healthy.seen("paid")["asked"] == paid


def test_verify_fails_when_the_gateway_runs_with_another_key_and_converge_mends_it(lab: Lab) -> None:
    lab.host.check_output("sed -i s/^LITELLM_MASTER_KEY=.*/LITELLM_MASTER_KEY=sk-other/ /etc/litellm/secrets.env")
    lab.host.check_output("systemctl restart litellm.service")
    proof = playbook("verify_alone.yml")
    assert proof.returncode != 0
    assert "the gateway runs with another master key" in proof.stdout
    before = lab.pid()
    converged = playbook("converge.yml", "--diff", "-vvv")
    assert converged.returncode == 0, converged.stdout
    assert lab.pid() != before
    assert_no_secret(converged.stdout)


def test_another_venv_under_the_same_path_restarts_the_gateway_which_gets_its_folder_back(lab: Lab) -> None:
    before = lab.pid()
    lab.host.check_output(f"cat {MANIFEST} {MANIFEST} > /run/another")  # true of the same files, and another one
    lab.host.check_output(f"mount --bind /run/another {MANIFEST}")
    lab.host.check_output(f"chown root:root {STATE} && chmod 0755 {STATE}")
    converged = playbook("converge.yml")
    lab.host.check_output(f"umount {MANIFEST}")
    assert converged.returncode == 0, converged.stdout
    assert lab.pid() != before
    folder = lab.host.file(STATE)
    assert (folder.user, folder.group, folder.mode) == ("litellm", "litellm", 0o700)
    assert playbook("converge.yml").returncode == 0


def test_verify_fails_when_the_unit_is_stopped_and_a_check_leaves_it_alone(stopped: Lab) -> None:
    proof = playbook("verify_alone.yml")
    assert proof.returncode != 0
    assert "Unable to use litellm.service: it is inactive" in proof.stdout
    check = playbook("converge.yml", "--check", "--diff", *variables(litellm_cooldown_time=7))
    assert check.returncode == 0, check.stdout
    assert "+    cooldown_time: 7" in check.stdout
    assert not stopped.host.service("litellm").is_running


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"litellm_master_key": "canary-without-prefix"}, "must begin with"),
        ({"litellm_aliases": {"fast": ["nobody"]}}, "at least one engine that exists"),
        ({"litellm_port": 9001}, "python3 (engine@9001.service) listens there"),
    ],
)
def test_what_types_cannot_say_is_refused(values: dict[str, Any], complaint: str) -> None:
    refused = playbook("preflight_alone.yml", *variables(**values))
    assert refused.returncode != 0
    assert complaint in " ".join(refused.stdout.split())
    assert "canary" not in refused.stdout
