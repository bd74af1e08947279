"""The gateway as its users meet it: keys, aliases, fallbacks; and its own proof, which must fail where it is broken."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any

import pytest
import yaml
from testinfra.host import Host

from provisioner.lab.aliases import engines_in
from provisioner.labfile.spec import PROVIDERS
from tests.case_files import read_case
from tests.waiting import PATIENCE_S

SCENARIO = Path(__file__).resolve().parents[1]
MANIFEST = "/opt/litellm/MANIFEST.sha256"
STATE = "/var/lib/litellm"
DROP_IN = "/run/systemd/system/litellm.service.d"
TIMEOUT_S = 4  # litellm_request_timeout of vars.yml
ALLOWED_FAILS = 3  # the role's default
SECURITY_LIMIT = 30  # systemd counts in tenths: 3.0

VARS = read_case(SCENARIO / "vars.yml")
KEY: str = VARS["litellm_master_key"]
ENGINES: dict[str, Any] = {engine["name"]: engine for engine in VARS["litellm_routes"]["engines"]}
SECRETS = [KEY, *(engine["api_key"] for engine in ENGINES.values() if "api_key" in engine)]
PORTS = {"first": 9001, "second": 9002, "paid": 9003, "third": 9004}
LIMITS: dict[str, dict[str, Any]] = {
    alias: written for alias, written in VARS["litellm_aliases"].items() if isinstance(written, dict)
}
QUICK_S: float = LIMITS["quick"]["timeout"]
COOLDOWN_S: int = VARS["litellm_cooldown_time"]


@dataclass(frozen=True)
class Answer:
    """What came back: status, body and headers."""

    status: int
    body: Any
    fallbacks: int
    engine: str
    """The place in the alias and the name of the engine that answered; empty where no alias was asked."""
    took_s: float

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
    began = time.monotonic()
    try:
        with opener.open(request, timeout=60) as answer:
            fallbacks = int(answer.headers.get("x-litellm-attempted-fallbacks", 0))
            _, _, engine = str(answer.headers.get("x-litellm-model-id", "")).partition(".")
            is_json = answer.headers.get_content_type() == "application/json"
            said = json.load(answer) if is_json else answer.read().decode()
            return Answer(answer.status, said, fallbacks, engine, time.monotonic() - began)
    except urllib.error.HTTPError as error:
        return Answer(error.code, json.load(error), 0, "", time.monotonic() - began)


@dataclass(frozen=True)
class Lab:
    """The gateway and its engines, reached from the host."""

    address: str
    host: Host

    def models(self, key: str | None) -> Answer:
        """The list of models."""
        return http(f"http://{self.address}:4000/v1/models", key=key)

    def ask(self, model: str, *, stream: bool = False) -> Answer:
        """A completion through the gateway; the body of a streamed one is its text."""
        question = {"model": model, "messages": [{"role": "user", "content": "hi"}], "stream": stream}
        return http(f"http://{self.address}:4000/v1/chat/completions", json.dumps(question).encode(), KEY)

    def begun(self, model: str) -> HTTPResponse:
        """Return a streamed completion whose head has come."""
        question = {"model": model, "messages": [{"role": "user", "content": "hi"}], "stream": True}
        headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
        url = f"http://{self.address}:4000/v1/chat/completions"
        request = urllib.request.Request(url, json.dumps(question).encode(), headers)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        answer: HTTPResponse = opener.open(request, timeout=60)
        return answer

    def tell(self, engine: str, mode: str) -> None:
        """Make the engine answer, or fail in one of the ways of files/engine.py."""
        http(f"http://{self.address}:{PORTS[engine]}/mode", mode.encode(), method="PUT")

    def seen(self, engine: str) -> dict[str, Any]:
        """How often the engine was asked, and the path, key and fields of the last request."""
        found: dict[str, Any] = http(f"http://{self.address}:{PORTS[engine]}/seen").body
        return found

    def asked(self, *engines: str) -> list[int]:
        """How often each of the engines was asked."""
        return [int(self.seen(engine)["asked"]) for engine in engines]

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
    for engine in ("first", "second", "third", "paid"):
        wait_until(lambda engine=engine: engine_answers(lab, engine))
        lab.tell(engine, "answer")
    wait_until(lambda: all(asks_its_first(lab, alias) for alias in VARS["litellm_aliases"]), timeout_s=45)


@pytest.fixture
def stopped(lab: Lab) -> Iterator[Lab]:
    """The lab with a gateway that is stopped for the length of the test."""
    lab.host.check_output("systemctl stop litellm.service")
    yield lab
    lab.host.check_output("systemctl start litellm.service")


def asks_its_first(lab: Lab, alias: str) -> bool:
    """Whether the alias does not leave its first engine alone."""
    return lab.ask(alias).engine.startswith("1.")


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
    main = host.check_output("systemctl show --property MainPID --value litellm.service")
    assert host.check_output(f"ps -o user= -p {main}") == "litellm"


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
    argv = host.check_output("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert "/etc/litellm/config.yaml" in argv
    assert_no_secret(text + argv)


def test_names_arrive_as_they_are(lab: Lab) -> None:
    config = yaml.safe_load(lab.host.file("/etc/litellm/config.yaml").content_string)
    names = [entry["model_name"] for entry in config["model_list"]]
    assert list(dict.fromkeys(names)) == [*VARS["litellm_aliases"], *ENGINES, "tts"]
    assert {entry["id"] for entry in lab.models(KEY).body["data"]} == set(names)


def test_every_provider_that_a_file_can_name_is_one_of_litellms(host: Host) -> None:
    program = "import litellm; print(*(getattr(one, 'value', one) for one in litellm.provider_list))"
    python = f'LITELLM_LOCAL_MODEL_COST_MAP=True /opt/litellm/venv/bin/python -B -c "{program}"'
    assert set(host.check_output(python).split()) >= PROVIDERS


# What it does.


@pytest.mark.parametrize("key", [None, "sk-wrong"])
def test_nobody_gets_in_without_the_key(lab: Lab, key: str | None) -> None:
    answer = lab.models(key)
    assert answer.status == 401
    assert "data" not in answer.body


def test_an_alias_asks_its_primary(lab: Lab) -> None:
    for alias in VARS["litellm_aliases"]:
        primary = engines_in(VARS["litellm_aliases"], alias)[0]
        answer = lab.ask(alias)
        assert (answer.status, answer.said, answer.fallbacks) == (200, f"port {PORTS[primary]}", 0)
        assert answer.engine == f"1.1/{primary}"


@pytest.mark.parametrize(
    ("engine", "path", "key"),
    [
        ("nemotron", "/v1/chat/completions", "canary-openrouter"),
        ("claude", "/v1/messages", "canary-anthropic"),
        ("ollama_box", "/api/chat", ""),
        ("studio", "/v1/chat/completions", "none"),
        ("studio_with_token", "/v1/chat/completions", "canary-studio"),
    ],
)
def test_an_upstream_is_asked_in_its_providers_words_with_its_key(lab: Lab, engine: str, path: str, key: str) -> None:
    answer = lab.ask(engine)
    assert (answer.status, answer.said) == (200, "port 9003")
    seen = lab.seen("paid")
    assert (seen["path"], seen["key"]) == (path, key)


def test_what_the_gateway_keeps_to_itself_does_not_reach_the_engine(lab: Lab) -> None:
    assert lab.ask("quick").said == "port 9001"
    assert set(lab.seen("first")["fields"]) <= {"model", "messages", "stream"}


def test_each_engine_of_an_alias_is_asked_in_its_turn(healthy: Lab) -> None:
    healthy.tell("first", "fail")
    healthy.tell("second", "refuse")
    before = healthy.asked("first", "second", "third")
    answer = healthy.ask("chain")
    assert (answer.said, answer.engine) == ("port 9004", "3.1/third")
    assert answer.fallbacks >= 1
    assert healthy.asked("first", "second", "third") == [times + 1 for times in before]


def test_the_last_engine_of_an_alias_is_always_asked(healthy: Lab) -> None:
    for engine in ("first", "second", "third"):
        healthy.tell(engine, "fail")
    for _ in range(ALLOWED_FAILS + 3):
        asked = healthy.asked("third")[0]
        assert healthy.ask("chain").status == 500
        assert healthy.asked("third")[0] > asked
    healthy.tell("third", "answer")
    assert healthy.ask("chain").said == "port 9004"


def test_an_alias_has_time_limits_of_its_own_and_leaves_alone_whoever_breaks_them(healthy: Lab) -> None:
    for engine in ("first", "second"):
        healthy.tell(engine, "hang")
    answer = healthy.ask("quick")
    assert answer.engine == "3.1/third"
    assert 2 * QUICK_S <= answer.took_s < 2 * TIMEOUT_S
    first, second = healthy.asked("first", "second")
    assert healthy.ask("quick").engine == "3.1/third"
    assert healthy.asked("first", "second") == [first, second + 1], "the first is left alone, the second asked first"
    assert healthy.ask("quick").took_s < QUICK_S
    assert healthy.asked("first", "second") == [first, second + 1]


def test_a_first_byte_that_is_late_is_waited_for_as_long_as_the_alias_says(healthy: Lab) -> None:
    healthy.tell("first", "late 2.5")
    for stream in (False, True):
        answer = healthy.ask("fast", stream=stream)
        assert answer.engine == "1.1/first"
        assert answer.took_s >= 2.5
    answer = healthy.ask("quick", stream=True)
    assert answer.engine == "2.1/second"
    assert answer.took_s >= QUICK_S


def test_a_slow_stream_is_let_be_as_long_as_each_part_is_in_time(healthy: Lab) -> None:
    healthy.tell("first", "drip")
    answer = healthy.ask("quick", stream=True)
    assert answer.took_s > QUICK_S
    assert [f"9001-{part} " in answer.body for part in range(4)] == [True] * 4


def streamed_over_a_restart(lab: Lab) -> str:
    """Return what came of a slow stream that had begun when the gateway was restarted."""
    lab.tell("first", "drip")
    with lab.begun("quick") as answer:
        lab.host.check_output("systemctl restart litellm.service")
        try:
            said = answer.read().decode()
        except (HTTPException, OSError):
            said = ""
    wait_until(lambda: is_ready(lab), timeout_s=90)
    return said


def is_ready(lab: Lab) -> bool:
    """Whether the gateway has come up again."""
    try:
        return lab.models(KEY).status == 200
    except OSError:
        return False


def test_a_restart_cuts_no_stream_and_would_without_the_drain(healthy: Lab) -> None:
    whole = streamed_over_a_restart(healthy)
    assert [f"9001-{part} " in whole for part in range(4)] == [True] * 4
    assert "[DONE]" in whole
    healthy.host.check_output(
        f"mkdir -p {DROP_IN} && printf '[Service]\\nExecStop=\\nKillSignal=SIGKILL\\n' > {DROP_IN}/kill.conf"
    )
    healthy.host.check_output("systemctl daemon-reload")
    try:
        cut = streamed_over_a_restart(healthy)
    finally:
        healthy.host.check_output(f"rm -r {DROP_IN} && systemctl daemon-reload")
    assert "9001-0 " in cut or cut == ""
    assert "[DONE]" not in cut


def test_a_stream_that_stops_in_the_middle_ends_in_an_error_and_in_no_other_engines_words(healthy: Lab) -> None:
    healthy.tell("first", "stall")
    answer = healthy.ask("quick", stream=True)
    assert QUICK_S <= answer.took_s < 2 * TIMEOUT_S
    assert "9001-1 " in answer.body
    assert '"error"' in answer.body
    assert "[DONE]" not in answer.body
    assert "9002" not in answer.body


def test_retries_ask_the_same_engine_again_before_the_next(healthy: Lab) -> None:
    healthy.tell("first", "fail")
    before = healthy.asked("first", "second")
    assert healthy.ask("again").engine == "2.1/second"
    retries = LIMITS["again"]["retries"]
    assert healthy.asked("first", "second") == [before[0] + 1 + retries, before[1] + 1]


def test_who_says_when_to_ask_again_is_left_alone_until_then(healthy: Lab) -> None:
    healthy.tell("first", "limit")
    assert healthy.ask("chain").engine == "2.1/second"
    began = time.monotonic()
    asked = healthy.asked("first")
    assert healthy.ask("chain").engine == "2.1/second"
    assert healthy.asked("first") == asked, "one 429 is enough, whatever allowed_fails is"
    healthy.tell("first", "answer")
    wait_until(lambda: asks_its_first(healthy, "chain"))
    assert 1 < time.monotonic() - began < COOLDOWN_S, "its Retry-After of 2 seconds counts, not the cooldown time"


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_too_long_goes_to_whoever_is_named_for_it(healthy: Lab, stream: bool) -> None:
    healthy.tell("first", "long")
    second = healthy.asked("second")
    answer = healthy.ask("long", stream=stream)
    assert (answer.status, answer.fallbacks) == (200, 1)
    assert "9004" in json.dumps(answer.body)
    assert healthy.asked("second") == second, "it is not asked what it could not read either"
    assert "9002" in json.dumps(healthy.ask("fast", stream=stream).body), "nobody is named: the next engine"
    assert asks_its_first(healthy, "odd: 'one' \"two\" # three") is False
    refused = healthy.ask("odd: 'one' \"two\" # three", stream=stream)
    assert refused.status == 400
    assert "context" in refused.body["error"]["message"], "without a fallback the client is told why"
    assert healthy.ask("first").status == 400


def test_the_second_engine_answers_while_the_first_is_stopped_and_verify_says_so(healthy: Lab) -> None:
    healthy.host.check_output("systemctl stop engine@9001")
    answer = healthy.ask("fast")
    assert (answer.said, answer.fallbacks) == ("port 9002", 1)
    proof = playbook("verify_alone.yml")
    assert proof.returncode != 0
    assert "does not answer through the gateway" in proof.stdout
    assert "fast: status 500" in proof.stdout
    assert "third: " not in proof.stdout
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


@pytest.mark.parametrize(
    ("mode", "wanted", "complaint"),
    [("answer", "on", "single: it is to think"), ("think", "off", "single: it is not to think")],
)
def test_verify_fails_when_an_alias_does_not_think_as_it_is_told(
    healthy: Lab, mode: str, wanted: str, complaint: str
) -> None:
    healthy.tell("second", mode)
    # Names of others would be templates on the command line.
    routes, names = VARS["litellm_routes"], ("single", "second")
    told = {
        "aliases": ["single"],
        "engines": [ENGINES["second"]],
        "deployments": [one for one in routes["deployments"] if one["model_name"] in names],
        "context_window_fallbacks": [],
        "max_fallbacks": 5,
        "asked": ["single"],
        "thinking": {"single": wanted},
    }
    proof = playbook("verify_alone.yml", *variables(litellm_routes=told))
    assert proof.returncode != 0
    assert complaint in " ".join(proof.stdout.split())
    told["thinking"] = {"single": "off" if wanted == "on" else "on"}
    assert playbook("verify_alone.yml", *variables(litellm_routes=told)).returncode == 0


def spoken(lab: Lab, key: str | None = KEY) -> Answer:
    """What ``audio/speech`` of the gateway answers."""
    asked = {"model": "tts", "input": "Good morning.", "voice": "af_sky", "response_format": "mp3"}
    return http(f"http://{lab.address}:4000/v1/audio/speech", json.dumps(asked).encode(), key)


def test_what_speaks_is_heard_through_the_gateway_with_the_key(lab: Lab) -> None:
    assert spoken(lab).body == "ID3 as it leaves an encoder"
    seen = lab.seen("third")
    assert (seen["path"], seen["fields"]) == ("/v1/audio/speech", ["input", "model", "response_format", "voice"])
    before = lab.asked("third")
    assert spoken(lab, None).status == 401
    assert lab.asked("third") == before


@pytest.mark.parametrize(
    ("mode", "complaint"),
    [("fail", "tts: status 500, "), ("empty", "tts: the answer is empty")],
)
def test_verify_fails_when_nothing_is_heard_through_the_gateway(healthy: Lab, mode: str, complaint: str) -> None:
    healthy.tell("third", mode)
    # Nobody else is to fail: of this engine, which answers questions as well, that alone is asked.
    lists = ("aliases", "engines", "deployments", "context_window_fallbacks", "asked")
    nobody = {**{name: [] for name in lists}, "max_fallbacks": 5}
    proof = playbook("verify_alone.yml", *variables(litellm_routes=nobody))
    assert proof.returncode != 0
    words = " ".join(proof.stdout.split())
    assert "Unable to verify litellm: what speaks in this lab is not heard through the gateway." in words
    assert complaint in words
    assert_no_secret(proof.stdout)


def test_verify_fails_while_an_alias_leaves_its_first_engine_alone(healthy: Lab) -> None:
    healthy.tell("first", "limit")
    assert healthy.ask("fast").engine == "2.1/second"
    healthy.tell("first", "refuse")
    proof = playbook("verify_alone.yml")
    assert proof.returncode != 0
    assert "fast: status 401" in proof.stdout, "a fallback's answer is none of the first engine's"
    assert_no_secret(proof.stdout)


def test_verify_pays_for_no_answer_and_says_so(lab: Lab) -> None:
    paid = lab.asked("paid")
    proof = playbook("verify_alone.yml")
    assert proof.returncode == 0, proof.stdout
    assert lab.asked("paid") == paid
    said = " ".join(proof.stdout.split())
    assert "Not asked for a completion" in said
    assert all(name in said for name in ("paid", "nemotron", "claude", "ollama_box"))
    assert_no_secret(proof.stdout)


def test_verify_fails_when_the_gateway_runs_with_another_key_or_unguarded_and_converge_mends_it(lab: Lab) -> None:
    lab.host.check_output("sed -i s/^LITELLM_MASTER_KEY=.*/LITELLM_MASTER_KEY=sk-other/ /etc/litellm/secrets.env")
    unguarded = "s|^ExecStart=.*launch.py [^ ]*|ExecStart=/opt/litellm/venv/bin/litellm|"
    lab.host.check_output(f"sed -i '{unguarded}' /etc/systemd/system/litellm.service")
    lab.host.check_output("systemctl daemon-reload && systemctl restart litellm.service")
    proof = playbook("verify_alone.yml")
    assert proof.returncode != 0
    assert "the gateway runs with another master key" in proof.stdout
    proof = playbook("verify_alone.yml", *variables(litellm_master_key="sk-other"))
    assert proof.returncode != 0
    words = " ".join(proof.stdout.split())
    assert "Unable to trust litellm: its guard does not stand in front of it." in words
    assert "a path that is not on the list: status 200 instead of 404" in words
    assert "a body that is too large: status" in words
    assert "a wrong key: status 400 instead of 401" in words
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
    assert "+  cooldown_time: 7" in check.stdout
    assert not stopped.host.service("litellm").is_running


def test_a_port_that_another_process_uses_is_refused_before_anything_is_touched(lab: Lab) -> None:
    refused = playbook("converge.yml", *variables(litellm_port=9001, litellm_cooldown_time=7))
    assert refused.returncode != 0
    words = " ".join(refused.stdout.split())
    assert "switch before litellm listen on port 9001: python3 (engine@9001.service) listens there" in words
    assert "cooldown_time: 7" not in lab.host.file("/etc/litellm/config.yaml").content_string


def test_requests_wait_over_a_restart_and_not_for_a_gateway_that_was_stopped(healthy: Lab) -> None:
    """A start takes seconds, in which requests were refused before; a gateway that nobody starts is not waited for."""
    before = healthy.pid()
    with ThreadPoolExecutor(4) as pool:
        restarting = pool.submit(healthy.host.check_output, "systemctl restart litellm.service")
        answers = []
        while not restarting.done() or not is_up(healthy):
            answers += list(pool.map(lambda _: healthy.ask("quick").status, range(2)))
    assert set(answers) == {200}
    assert healthy.pid() != before
    healthy.host.check_output("systemctl stop litellm.service")
    wait_until(lambda: not is_up(healthy))
    refused = healthy.ask("quick")
    assert (refused.status, refused.took_s < QUICK_S) == (503, True)
    assert refused.body["error"]["type"] == "unavailable_error"
    healthy.host.check_output("systemctl start litellm.service")
    assert healthy.ask("quick").status == 200


REFUSED = "unavailable_error"
"""The word with which the switch tells who may not wait to come again."""


def asked_while_changed(lab: Lab, variable: tuple[str, str]) -> tuple[set[str], subprocess.CompletedProcess[str]]:
    """What became of requests and looks, three at a time, while the role ran with this variable."""
    seen: set[str] = set()
    with ThreadPoolExecutor(4) as pool:
        changing = pool.submit(playbook, "converge.yml", *variable)
        while not changing.done():
            answers = [*pool.map(lambda _: lab.ask("first"), range(2)), lab.models(KEY)]
            seen |= {"answered" if one.status == 200 else str(one.body["error"]["type"]) for one in answers}
    return seen, changing.result(PATIENCE_S)


def left_beside(host: Host) -> str:
    """What is there of a second gateway."""
    unit = "systemctl list-units --all --no-legend 'litellm-beside*'"
    return host.check_output(
        f"{unit}; ls -d /run/systemd/system/litellm-beside* /run/litellm-beside* 2> /dev/null || true"
    )


def test_a_changed_gateway_takes_over_beside_the_one_before_and_nobody_waits(healthy: Lab) -> None:
    """Nobody may wait, so that who had to would be refused: as all are, where the same change is an exchange."""
    at_once = {"litellm_queue": "0s"}
    assert playbook("converge.yml", *variables(**at_once)).returncode == 0
    before = healthy.pid()
    seen, change = asked_while_changed(healthy, variables(**at_once, litellm_num_retries=2))
    assert change.returncode == 0, change.stdout
    assert_no_secret(change.stdout)
    assert seen == {"answered"}
    assert healthy.pid() != before
    assert left_beside(healthy.host) == ""
    seen, change = asked_while_changed(healthy, variables(**at_once, litellm_num_retries=3, litellm_beside=False))
    assert change.returncode == 0, change.stdout
    assert REFUSED in seen
    assert playbook("converge.yml").returncode == 0


def test_a_changed_gateway_that_fails_its_proof_changes_nothing(healthy: Lab) -> None:
    before = healthy.pid(), healthy.host.file("/etc/litellm/config.yaml").content_string
    healthy.tell("second", "fail")
    seen, change = asked_while_changed(healthy, variables(litellm_num_retries=2))
    assert change.returncode != 0
    words = " ".join(change.stdout.split())
    assert "tried beside the gateway that serves, the new one failed its proof" in words
    assert "single: status 500" in words
    assert "changed=0" in words
    assert_no_secret(change.stdout)
    assert seen == {"answered"}
    assert (healthy.pid(), healthy.host.file("/etc/litellm/config.yaml").content_string) == before
    assert left_beside(healthy.host) == ""


def test_keys_of_which_its_unit_says_nothing_are_tried_beside_as_well(healthy: Lab) -> None:
    started = "journalctl --quiet --output cat --unit litellm-beside | grep -c '^Started '"
    before = int(healthy.host.check_output(started))
    assert playbook("converge.yml", *variables(litellm_master_key="sk-another")).returncode == 0
    assert playbook("converge.yml").returncode == 0
    assert int(healthy.host.check_output(started)) == before + 2


def test_what_an_ended_run_left_beside_is_taken_away_by_the_next(healthy: Lab) -> None:
    unit = "/run/systemd/system/litellm-beside.service"
    script = f"""
        sed '/^ExecStart/d; /^ExecStop/d; /^On/d; /^EnvironmentFile/d' /etc/systemd/system/litellm.service > {unit}
        sed -i 's/^[[]Service]/&\\nExecStart=sleep 600/' {unit}
        touch /run/litellm-beside.secrets.env; systemctl daemon-reload; systemctl start litellm-beside
    """
    healthy.host.check_output(script)
    before = healthy.pid()
    assert playbook("converge.yml").returncode == 0
    assert healthy.pid() == before, "nothing was to change"
    assert left_beside(healthy.host) == ""


def is_up(lab: Lab) -> bool:
    """Whether the switch hands requests on to the gateway."""
    control = "python3 -IS /usr/local/lib/switch/control.py --socket /run/switch-litellm/control.sock state"
    slots: dict[str, dict[str, str]] = json.loads(lab.host.check_output(control))["slots"]
    return slots["a"]["status"] == "UP"


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"litellm_master_key": "canary-without-prefix"}, "must begin with"),
        ({"litellm_aliases": {"fast": ["nobody"]}}, "at least one engine that exists"),
    ],
)
def test_what_types_cannot_say_is_refused(values: dict[str, Any], complaint: str) -> None:
    refused = playbook("preflight_alone.yml", *variables(**values))
    assert refused.returncode != 0
    assert complaint in " ".join(refused.stdout.split())
    assert "canary" not in refused.stdout


def test_no_failure_wrote_a_key_into_the_journal(host: Host) -> None:
    """The last test: engines have failed in every way by now, and one of them repeated the key that it refused."""
    journal = host.check_output("journalctl --no-pager --unit litellm.service")
    assert '"POST /v1/chat/completions HTTP/1.1" 401' in journal
    assert_no_secret(journal)
