"""vLLM as its users meet it, by a stand-in with its habits; and the role's proof, which fails where it must."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from testinfra.host import Host

from tests.molecule.counted import counted
from tests.molecule.switched import (
    changed_by_hand,
    listeners,
    wait_for_status,
    wait_until_answering,
    wait_until_listening,
)
from tests.waiting import PATIENCE_S

SCENARIO = Path(__file__).resolve().parents[1]
VARS: dict[str, Any] = yaml.safe_load((SCENARIO / "vars.yml").read_text(encoding="utf-8"))
KEY = VARS["vllm_api_key"]
NAME = "vllm"
UNIT, SWITCH = "vllm.service", "switch-vllm.service"
PORT, BEHIND = 8000, 18000
"""Where clients reach it, by the switch, and where the server itself listens."""
JOURNAL = "journalctl --no-pager --all --quiet --output=cat"
SECURITY_LIMIT = 30  # systemd counts in tenths: 3.0
QUESTION = {"model": "tiny", "prompt": "Hello", "max_tokens": 1}


WITHOUT_KEY = f"""\
import sys
sys.argv[1:] = "serve /srv/models/tiny --host 127.0.0.1 --port {BEHIND} --served-model-name tiny".split()
sys.argv += ["--max-model-len", "512"]
from vllm.entrypoints.cli.main import main
main()
"""
"""A start of the server past the role's launcher, which gives it its key."""


def playbook(name: str, *arguments: str, **values: Any) -> subprocess.CompletedProcess[str]:
    """Run one of the scenario's playbooks with other variables; both streams are in ``stdout``, without folds."""
    inventory = os.environ["MOLECULE_INVENTORY_FILE"]
    command = ["ansible-playbook", "--inventory", inventory, str(SCENARIO / name), *arguments]
    done = subprocess.run(
        [*command, "--extra-vars", json.dumps(values)],
        env=os.environ | {"ANSIBLE_FORCE_COLOR": "0", "ANSIBLE_NOCOLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
    )
    assert KEY not in done.stdout
    done.stdout = " ".join(done.stdout.split())
    return done


def passes(name: str, *arguments: str, **values: Any) -> str:
    """The playbook ends well; what it said."""
    done = playbook(name, *arguments, **values)
    assert done.returncode == 0, done.stdout
    return done.stdout


def refuses(name: str, *words: str, **values: Any) -> None:
    """The playbook fails and says all these words."""
    done = playbook(name, **values)
    assert done.returncode != 0, done.stdout
    assert [word for word in words if word not in done.stdout] == [], done.stdout


def http(host: Host, path: str, body: dict[str, Any] | None = None, key: str | None = KEY) -> tuple[int, Any]:
    """Status and body of one request; an answer that is an error is an answer."""
    address = host.check_output("hostname -I").split()[0]
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(f"http://{address}:{PORT}{path}", data=data, headers=headers)
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def shown(host: Host, name: str) -> str:
    """A property of the unit."""
    return str(host.check_output(f"systemctl show --property={name} --value {UNIT}"))


def this_start(host: Host) -> str:
    """What the unit has said since it was started last."""
    return str(host.check_output(f"{JOURNAL} _SYSTEMD_INVOCATION_ID={shown(host, 'InvocationID')}"))


def wait_until_failed(host: Host) -> None:
    """Until systemd has given the unit up."""
    host.check_output(
        f"timeout 60 sh -c 'until [ $(systemctl show -P SubState {UNIT}) = failed ]; do sleep 0.25; done'"
    )


def restarted(host: Host) -> None:
    """The server started anew, and answering."""
    host.check_output(f"systemctl restart {UNIT}")
    wait_until_listening(host, BEHIND)


@contextmanager
def drop_in(host: Host, *lines: str) -> Iterator[None]:
    """The server runs with these lines of ``[Service]`` besides, and without them afterwards."""
    folder = f"/run/systemd/system/{UNIT}.d"
    host.check_output(f"mkdir -p {folder}")
    host.run(f"printf '%s\\n' '[Service]' {' '.join(map(repr, lines))} > {folder}/test.conf")
    host.check_output("systemctl daemon-reload")
    restarted(host)
    try:
        yield
    finally:
        host.check_output(f"rm -r {folder} && systemctl daemon-reload")
        restarted(host)


@pytest.fixture
def mended() -> Iterator[None]:
    """The scenario's own state when the test is over; without it the next tests would mean nothing."""
    yield
    passes("converge.yml")


# What is there.


def test_the_model_answers_with_the_key_alone(host: Host) -> None:
    status, told = http(host, "/v1/models")
    assert (status, told["data"][0]["id"], told["data"][0]["max_model_len"]) == (200, "tiny", 512)
    for path in ("/v1/completions", "/v1/chat/completions"):
        status, answer = http(host, path, QUESTION)
        assert (status, answer["choices"][0]["finish_reason"]) == (200, "length")
        assert http(host, path, QUESTION, key=None)[0] == 401
    assert http(host, "/v1/models", key="canary-another-key-0123")[0] == 401
    assert http(host, "/health", key=None)[0] == 200


def test_the_unit_is_locked_up_and_starts_at_boot(host: Host) -> None:
    service = host.service("vllm")
    assert service.is_running
    assert service.is_enabled
    host.check_output(f"systemd-analyze security --no-pager --threshold={SECURITY_LIMIT} {UNIT}")
    assert host.check_output(f"ps -o user= -p {shown(host, 'MainPID')}") == "vllm"


def test_it_is_started_with_what_was_asked_for(host: Host) -> None:
    process = shown(host, "MainPID")
    words = host.check_output(f"tr '\\0' '\\n' < /proc/{process}/cmdline").splitlines()
    pairs = dict(itertools.pairwise(words))
    asked = {
        "--served-model-name": "tiny",
        "--host": "127.0.0.1",
        "--port": str(BEHIND),
        "--load-format": "safetensors",
        "--max-model-len": "512",
        "--max-num-seqs": "2",
        "--kv-cache-memory-bytes": str(2**30),
        "--reasoning-parser": "qwen3",
        "--tool-call-parser": "hermes",
    }
    assert {name: pairs.get(name) for name in asked} == asked
    assert {"--enforce-eager", "--language-model-only", "--enable-auto-tool-choice"} <= set(words)
    assert not {"--trust-remote-code", "--gpu-memory-utilization", "--api-key"} & set(words)
    environment = host.check_output(f"tr '\\0' '\\n' < /proc/{process}/environ").splitlines()
    assert f"STANDIN_NOTE={VARS['vllm_environment']['STANDIN_NOTE']}" in environment
    assert {"HF_HUB_OFFLINE=1", "VLLM_NO_USAGE_STATS=1", "VLLM_HOST_IP=127.0.0.1"} <= set(environment)


def test_the_key_is_in_no_journal_argument_unit_or_other_file(host: Host) -> None:
    assert "non-default args:" in this_start(host)
    for name, mode in (("/etc/vllm/api-key", 0o640), ("/run/vllm/api-key", 0o600)):
        assert host.file(name).mode == mode
    files = "find /var/lib/vllm /var/cache/vllm /var/log /tmp /etc/systemd -type f ! -path '*/journal/*' -exec cat {} +"
    found = host.run(f"({JOURNAL} --boot; ps -fww; ps -efww; {files}) 2>&1 | tr -cd '\\11\\12\\40-\\176'")
    assert "vllm" in found.stdout
    assert KEY not in found.stdout


def test_a_second_run_changes_nothing_and_a_check_shows_what_would_be(host: Host) -> None:
    before = shown(host, "MainPID")
    assert "changed=0" in passes("converge.yml")
    assert "changed=0" in passes("converge.yml", "--check", "--diff")
    assert '"--max-model-len" "256"' in passes("converge.yml", "--check", "--diff", vllm_max_model_len=256)
    assert shown(host, "MainPID") == before


# The switch before it.


def test_what_vllm_itself_answers_to_everybody_is_closed(host: Host) -> None:
    assert listeners(host, PORT, BEHIND) == {f"0.0.0.0:{PORT}": "haproxy", f"127.0.0.1:{BEHIND}": "python"}
    for path in ("/metrics", "/version", "/load", "/ping", "/openapi.json", "/docs", "/v1/responses/x"):
        assert http(host, path, key=None)[0] == 404
    for path in ("/invocations", "/tokenize", "/v1/load_lora_adapter", "//invocations", "/v1/../invocations"):
        assert http(host, path, QUESTION, key=None)[0] in (400, 404)
    ask = f"import urllib.request as r; print(r.urlopen('http://127.0.0.1:{BEHIND}/invocations', b'{{}}').status)"
    assert host.check_output("python3 -c %s", ask) == "200"  # as the real one


def test_over_a_restart_running_answers_are_finished_and_new_requests_wait(host: Host) -> None:
    before = shown(host, "MainPID")
    with ThreadPoolExecutor(3) as pool:
        running = pool.submit(http, host, "/v1/completions", {**QUESTION, "seconds": 3})
        wait_until_answering(host, NAME)
        restarting = pool.submit(host.check_output, f"systemctl restart {UNIT}")
        wait_for_status(host, NAME, "(DRAIN|DOWN)")
        waiting = pool.submit(http, host, "/v1/chat/completions", QUESTION)
        for answer in (running, waiting):
            status, told = answer.result(PATIENCE_S)
            assert (status, told["choices"][0]["finish_reason"]) == (200, "length")
        restarting.result(PATIENCE_S)
    assert shown(host, "MainPID") != before


def test_a_server_that_is_ended_past_the_switch_finishes_its_answers_too(host: Host) -> None:
    """Without ``--shutdown-timeout`` the real one ends a stream at once, with HTTP 200 and ``abort``."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(http, host, "/v1/completions", {**QUESTION, "seconds": 3})
        wait_until_answering(host, NAME)
        host.check_output(f"kill -TERM {shown(host, 'MainPID')}")
        status, told = running.result(PATIENCE_S)
    assert (status, told["choices"][0]["finish_reason"]) == (200, "length")
    host.check_output(f"systemctl restart {UNIT}")
    wait_until_listening(host, BEHIND)


# What its proof is worth.


def test_a_switch_whose_list_is_open_fails_the_proof(host: Host) -> None:
    passes("verify_alone.yml")
    with changed_by_hand(host, NAME, "/There is nothing here/d"):
        refuses("verify_alone.yml", "these answer without a key:", "GET /invocations (405)", "GET /metrics (200)")
    host.check_output(f"systemctl stop {SWITCH}")
    refuses("verify_alone.yml", "Unable to ask the switch before vllm how it stands")
    host.check_output(f"systemctl start {SWITCH}")
    passes("verify_alone.yml")


def test_an_engine_that_listens_wider_than_this_machine_fails_the_proof(host: Host) -> None:
    with drop_in(host, "Environment=VLLM_HOST_IP=0.0.0.0"):
        refuses("verify_alone.yml", "its processes listen on 0.0.0.0:")


def test_a_server_that_asks_nobody_for_a_key_fails_the_proof(host: Host) -> None:
    host.check_output("printf %s %s > /run/open.py", "%s", WITHOUT_KEY)
    python = "/opt/torch_stack/current/bin/python"
    with drop_in(host, "ExecStart=", f"ExecStart={python} /run/open.py"):
        refuses("verify_alone.yml", "a request without a key was answered with 200 instead of 401")


@pytest.mark.usefixtures("mended")
def test_a_context_that_is_smaller_than_asked_fails_the_proof(host: Host) -> None:
    host.check_output('sed -i \'s/"room"/"silently": 256, "room"/\' /srv/models/tiny/config.json')
    restarted(host)
    refuses("verify_alone.yml", "a request may hold 256 tokens, and `max_model_len` is 512")
    host.check_output("sed -i 's/\"silently\": 256, //' /srv/models/tiny/config.json")
    restarted(host)


@pytest.mark.usefixtures("mended")
def test_a_context_that_does_not_fit_is_told_in_words_and_not_tried_for_ever(host: Host) -> None:
    words = ('it does not fit ("larger than the available KV cache memory")', "a larger `kv_cache_gib`")
    refuses("converge.yml", "Unable to load tiny", *words, vllm_max_model_len=2048)
    wait_until_failed(host)
    assert int(shown(host, "NRestarts")) <= 3


@pytest.mark.usefixtures("mended")
def test_a_key_in_the_journal_is_refused(host: Host) -> None:
    with drop_in(host, "ExecStartPre=cat /etc/vllm/api-key"):
        refuses("verify_alone.yml", "1 lines of vllm.service in the journal hold it. Set a new key")
    host.check_output("journalctl --rotate --quiet && journalctl --vacuum-time=1s --quiet")


@pytest.mark.usefixtures("mended")
def test_without_its_key_nothing_is_started(host: Host) -> None:
    host.check_output(f"systemctl stop {UNIT}; mv /etc/vllm/api-key /root/key")
    host.run(f"systemctl start {UNIT}")
    wait_until_failed(host)
    assert "Unable to start vLLM: its key cannot be read" in this_start(host)
    host.check_output("rm /root/key")


@pytest.mark.usefixtures("mended")
def test_a_changed_key_refuses_nobody_who_has_the_former_one_for_a_while(host: Host) -> None:
    """As a gateway, which learns the new key when the engine is already done."""
    host.check_output(f"umask 077; echo {KEY} > /run/former-key")
    another = "canary-another-key-0123"
    became = counted(host, lambda: passes("converge.yml", vllm_api_key=another), PORT, "model", "/run/former-key")
    assert set(became) == {"whole", "slowest"}, became
    assert KEY not in this_start(host)
    passes("verify_alone.yml", vllm_api_key=another)
    assert http(host, "/v1/models", key=another)[0] == 200

    passes("converge.yml", vllm_api_key=another, vllm_key_grace="0s")
    assert http(host, "/v1/models")[0] == 401
    assert http(host, "/v1/models", key=another)[0] == 200


# What is refused before anything is changed.


def test_a_refused_option_changes_nothing(host: Host) -> None:
    before = shown(host, "MainPID"), host.check_output("stat -c %y /etc/vllm/* /usr/local/lib/vllm/*")
    refuses("converge.yml", "changed=0", vllm_tool_parser="qwen9")
    assert (shown(host, "MainPID"), host.check_output("stat -c %y /etc/vllm/* /usr/local/lib/vllm/*")) == before


def test_another_stack_behind_the_link_restarts_the_server(host: Host) -> None:
    before = shown(host, "MainPID")
    host.check_output("cp -a /opt/torch_stack/one /opt/torch_stack/two && ln -sfn two /opt/torch_stack/current")
    passes("converge.yml")
    after = shown(host, "MainPID")
    host.check_output("ln -sfn one /opt/torch_stack/current && rm -r /opt/torch_stack/two")
    passes("converge.yml")
    assert len({before, after, shown(host, "MainPID")}) == 3
