"""llama-server runs as it should, and the role's own proof fails in every state that it must not call good."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host

from provisioner.models.tiny import EMBEDDING
from tests.gguf_bytes import projector_bytes
from tests.llama_server_help import objections
from tests.molecule.counted import counted

SCENARIO = Path(__file__).resolve().parents[1]
UNIT = "llama-server.service"
SWITCH = "switch-llama-server.service"
SWITCH_CONFIG = "switch-llama-server.cfg"
CONTROL = "python3 -IS /usr/local/lib/switch/control.py --socket /run/switch-llama-server/control.sock"
ODD_WORDS = 'a "b" $HOME $$ %h \\ c'
"""What systemd could take for its own."""
KEY = "molecule-canary-$HOME-%h"
KEY_FILE = "/etc/llama-server.api-key"
MODEL = "/srv/models/tiny/tiny.gguf"
MANIFESTS = ("/opt/llama_cpp/MANIFEST.sha256", "/srv/models/tiny/MANIFEST.sha256")
PROJECTOR = "/srv/eye.gguf"
STATE = "/var/lib/llama-server"
DROP_IN = f"/run/systemd/system/{UNIT}.d"
STRANGER = "stranger.service"
GET_METRICS = """
import sys, urllib.request as http
request = http.Request("http://127.0.0.1:8080/metrics", headers={"Authorization": sys.argv[1]})
print(http.urlopen(request).read().decode())
"""
READ_SLOWLY = """
import http.client, json, pathlib, socket, subprocess, sys, time

def unit():
    return subprocess.run(["systemctl", "show", "-p", "ActiveState", "-p", "InvocationID", sys.argv[1]],
                          capture_output=True, text=True).stdout

server = http.client.HTTPConnection("127.0.0.1", 8080, timeout=60)
server.connect()
server.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
asked = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 3500, "ignore_eos": True,
         "stream": True, "logprobs": True, "top_logprobs": 20}
key = pathlib.Path(sys.argv[2]).read_text().strip()
headers = {"Authorization": "Bearer " + key, "Content-Type": "application/json"}
server.request("POST", "/v1/chat/completions", json.dumps(asked), headers)
answer = server.getresponse()
begun, told = unit(), {"parts": 0, "ended": None, "done": False}
for line in answer:
    if not line.startswith(b"data: "):
        continue
    told["parts"] += 1
    if told["parts"] == 20:
        pathlib.Path("/run/reader.begun").touch()
        while unit() == begun:
            time.sleep(0.05)
    if line.startswith(b"data: [DONE]"):
        told["done"] = True
    elif json.loads(line[6:])["choices"]:
        told["ended"] = json.loads(line[6:])["choices"][0]["finish_reason"] or told["ended"]
print(json.dumps(told))
"""
"""Reads twenty parts of a long answer, the rest only when the unit is being stopped, and tells how it ended."""
FAILS_WITHIN_S = 60
"""Far less than the role would wait for a big model: a server that ends is noticed, not waited for."""

pytestmark = pytest.mark.usefixtures("host")
"""Tests with and without it would be put apart: they run in the order of this page."""


def run_playbook(name: str, *arguments: str, **variables: Any) -> subprocess.CompletedProcess[str]:
    """Run one of the scenario's playbooks on its container, with other variables than the scenario's."""
    command = ["ansible-playbook", "--inventory", os.environ["MOLECULE_INVENTORY_FILE"], str(SCENARIO / name)]
    named = {f"llama_cpp_{option}": value for option, value in variables.items()}
    command += ["--extra-vars", json.dumps(named), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def assert_refused(answer: subprocess.CompletedProcess[str], words: str) -> None:
    """The run failed, for the reason that ``words`` name, and showed no key."""
    shown = answer.stdout + answer.stderr
    assert answer.returncode != 0, shown
    assert re.search(words, shown), shown
    assert KEY not in shown


@pytest.fixture
def running(host: Host) -> Iterator[None]:
    """Whatever the test does to the unit, it runs as it was installed afterwards."""
    yield
    host.run(f"systemctl stop {STRANGER}")
    host.check_output(f"rm -rf {DROP_IN} && systemctl daemon-reload && systemctl restart {UNIT}")
    host.check_output(f"systemctl start {SWITCH}")


def listen_on(host: Host, port: int) -> None:
    """Another process answers 200 on the port, also on /health."""
    host.check_output("mkdir -p /run/stranger && touch /run/stranger/health")
    serve = f"python3 -m http.server --directory /run/stranger {port}"
    host.check_output(f"systemd-run --quiet --unit {STRANGER} {serve}")
    is_open = f"(: > /dev/tcp/127.0.0.1/{port}) 2> /dev/null"
    host.check_output(f"timeout 20 bash -c 'until {is_open}; do sleep 0.1; done'")


def test_the_unit_is_enabled_and_runs_under_its_own_user(host: Host) -> None:
    assert host.service(UNIT).is_enabled
    assert host.service(UNIT).is_running
    process = host.process.get(comm="llama-server")
    assert process.user == "llama-server"
    assert host.user("llama-server").shell == "/usr/sbin/nologin"


def test_it_tells_what_it_was_made_of(host: Host) -> None:
    told = host.run("/opt/llama_cpp/bin/llama-server --version")
    assert "(build 11312, commit 0c1e57098)" in told.stdout + told.stderr


def test_the_key_is_the_users_own_file_and_nowhere_else(host: Host) -> None:
    file = host.file(KEY_FILE)
    assert (file.mode, file.user, file.group) == (0o600, "llama-server", "llama-server")
    assert file.content_string == f"{KEY}\n"
    assert host.run(f"grep -rlF '{KEY}' /etc/systemd /run/systemd /var/log /tmp /var/tmp /root").stdout == ""
    assert KEY not in host.check_output("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert KEY not in host.check_output(f"journalctl --no-pager --unit {UNIT}")


def test_it_uses_the_cpus_that_the_container_has(host: Host) -> None:
    arguments = host.process.get(comm="llama-server").args
    assert f"--threads {host.check_output('nproc')} " in arguments


def test_metrics_are_for_those_with_the_key(host: Host) -> None:
    assert "HTTP Error 401" in host.run("python3 -c %s %s", GET_METRICS, "Bearer wrong").stderr
    assert "llamacpp:" in host.check_output("python3 -c %s %s", GET_METRICS, f"Bearer {KEY}")


def test_systemd_finds_its_exposure_small(host: Host) -> None:
    told = host.run(f"systemd-analyze security --no-pager {UNIT}").stdout
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", told)
    assert found, told
    assert float(found[1]) <= 3.0


def test_verify_passes_and_changes_nothing() -> None:
    answer = run_playbook("verify_only.yml")
    assert answer.returncode == 0, answer.stdout
    assert re.search(r"changed=0 .*failed=0", answer.stdout)


def test_check_mode_passes_and_changes_nothing() -> None:
    answer = run_playbook("converge.yml", "--check")
    assert answer.returncode == 0, answer.stdout
    assert re.search(r"changed=0 .*failed=0", answer.stdout)


def test_check_mode_passes_where_nothing_was_installed_yet(host: Host) -> None:
    host.check_output(f"systemctl disable --now {UNIT} && rm /etc/systemd/system/{UNIT} {KEY_FILE}")
    host.check_output("systemctl daemon-reload && userdel llama-server")
    answer = run_playbook("converge.yml", "--check")
    assert answer.returncode == 0, answer.stdout
    assert not host.file(KEY_FILE).exists
    assert run_playbook("converge.yml").returncode == 0


@pytest.mark.usefixtures("running")
def test_verify_fails_when_the_unit_is_stopped(host: Host) -> None:
    host.check_output(f"systemctl stop {UNIT}")
    assert_refused(run_playbook("verify_only.yml"), rf"Unable to use {UNIT}: it is inactive")


def test_verify_fails_for_another_model_file() -> None:
    answer = run_playbook("verify_only.yml", model="/srv/models/tiny/other.gguf")
    assert_refused(answer, rf"should be /srv/models/tiny/other.gguf and is\s+{MODEL}")


def test_verify_fails_for_another_name() -> None:
    assert_refused(run_playbook("verify_only.yml", alias="other"), "Unable to prove that other answers")


def test_verify_fails_for_another_key() -> None:
    assert_refused(run_playbook("verify_only.yml", api_key="another"), "HTTP 401")


@pytest.mark.usefixtures("running")
def test_verify_fails_when_another_process_answers(host: Host) -> None:
    instead = "[Service]\\nExecStart=\\nExecStart=/bin/sleep infinity\\n"
    host.check_output(f"mkdir -p {DROP_IN} && printf '{instead}' > {DROP_IN}/instead.conf")
    host.check_output(f"systemctl daemon-reload && systemctl restart {UNIT}")
    listen_on(host, 18080)
    assert_refused(run_playbook("verify_only.yml"), "Unable to trust port 18080")


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize(
    ("unit", "port", "words"),
    [
        (UNIT, 18080, "Unable to serve tiny behind port 8080, on port 18080 of 127.0.0.1:"),
        (SWITCH, 8080, "Unable to have the switch before llama-server listen on port 8080:"),
    ],
)
def test_a_port_that_another_process_uses_is_refused(host: Host, unit: str, port: int, words: str) -> None:
    host.check_output(f"systemctl stop {unit}")
    listen_on(host, port)
    answer = run_playbook("converge.yml", context=1024)
    assert_refused(answer, rf"{words}\s+python3\s+\({STRANGER}\) listens there")
    assert "--ctx-size 1024" not in host.file(f"/etc/systemd/system/{UNIT}").content_string


def test_the_server_is_reached_by_the_switch_alone(host: Host) -> None:
    listening = host.check_output("ss -Hltnp | awk '{print $4, $6}'").splitlines()
    there = {line.split()[0]: line.split('"')[1] for line in listening if '"' in line}
    assert {place: there[place] for place in there if place.endswith("8080")} == {
        "127.0.0.1:18080": "llama-server",
        "127.0.0.1:8080": "haproxy",
        "127.0.0.2:8080": "haproxy",
    }
    for path in ("/slots", "/models/unload", "/cors-proxy"):
        assert "HTTP Error 404" in host.run("python3 -c %s %s", GET_METRICS.replace("/metrics", path), KEY).stderr


ASK = """
import json, sys, time, urllib.error, urllib.request as http
asked = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 4}
headers = {"Authorization": "Bearer " + sys.argv[1], "Content-Type": "application/json"}
request = http.Request("http://127.0.0.1:8080/v1/chat/completions", json.dumps(asked).encode(), headers)
began = time.monotonic()
try:
    status = http.urlopen(request, timeout=200).status
except urllib.error.HTTPError as error:
    status = error.code
print(status, time.monotonic() - began < 5)
"""


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize("ended", ["stopped", "failed"])
def test_nobody_waits_for_a_server_that_does_not_come(host: Host, ended: str) -> None:
    assert host.check_output("python3 -c %s %s", ASK, KEY) == "200 True"
    if ended == "stopped":
        host.check_output(f"systemctl stop {UNIT}")
    else:
        host.check_output(
            f"mkdir -p {DROP_IN} && printf '[Service]\\nExecStart=\\nExecStart=/bin/false\\n' > {DROP_IN}/no.conf"
        )
        host.check_output("systemctl daemon-reload")
        host.run(f"systemctl restart {UNIT}")
    state = "inactive" if ended == "stopped" else "failed"
    is_so = f'test "$(systemctl is-active {UNIT} switch-llama-server-gone.service | paste -sd,)" = {state},inactive'
    host.check_output("timeout 60 sh -c %s", f"until {is_so}; do sleep 0.1; done")
    assert host.check_output("python3 -c %s %s", ASK, KEY) == "503 True"
    host.check_output(
        f"rm -rf {DROP_IN} && systemctl daemon-reload && systemctl reset-failed {UNIT}; systemctl start {UNIT}"
    )
    assert host.check_output("python3 -c %s %s", ASK, KEY) == "200 True"


@pytest.mark.parametrize("broken", ["drain a", "ready b"])
def test_verify_fails_where_the_switch_does_not_pass_requests_on(host: Host, broken: str) -> None:
    """A slot that is not in service; the other one may be, and nobody is there, so that nothing changes."""
    host.run(f"{CONTROL} {broken}")
    answer = run_playbook("verify_only.yml")
    host.check_output(f"{CONTROL} ready a")
    if broken == "ready b":
        assert answer.returncode == 0, answer.stdout
    else:
        assert_refused(answer, "Unable to reach the engine behind the switch before llama-server")


def test_verify_fails_where_another_server_answers_behind_the_switch(host: Host) -> None:
    """Its configuration is as it was written; by hand it was told of another place than the one that was proved."""
    host.check_output(f"sed 's/18080/18081/' /etc/{SWITCH_CONFIG} > /run/{SWITCH_CONFIG}")
    other = f"[Service]\\nExecStart=\\nExecStart=/usr/sbin/haproxy -Ws -f /run/{SWITCH_CONFIG}\\n"
    folder = f"/run/systemd/system/{SWITCH}.d"
    host.check_output(f"mkdir -p {folder} && printf '{other}' > {folder}/other.conf && systemctl daemon-reload")
    host.check_output(f"systemctl restart {SWITCH}")
    answer = run_playbook("verify_only.yml")
    host.check_output(f"rm -r {folder} && systemctl daemon-reload && systemctl restart {SWITCH}")
    assert_refused(answer, "Unable to reach the engine behind the switch before llama-server")


def test_a_write_that_was_not_followed_by_a_restart_is_found_and_mended(host: Host) -> None:
    before = host.process.get(comm="llama-server").pid
    host.check_output(f"touch {KEY_FILE}")
    assert_refused(run_playbook("verify_only.yml"), f"written after it had started:\\s+{KEY_FILE}")
    assert run_playbook("converge.yml").returncode == 0
    assert host.process.get(comm="llama-server").pid != before


def test_another_program_or_model_under_the_same_path_restarts_the_server(host: Host) -> None:
    processes = [host.process.get(comm="llama-server").pid]
    for number, manifest in enumerate(MANIFESTS):
        host.check_output(f"cat {manifest} {manifest} > /run/another{number}")  # true of the same files, and another
        host.check_output(f"mount --bind /run/another{number} {manifest}")
        assert run_playbook("converge.yml").returncode == 0
        processes.append(host.process.get(comm="llama-server").pid)
    host.check_output(f"umount {' '.join(MANIFESTS)}")
    assert run_playbook("converge.yml").returncode == 0
    processes.append(host.process.get(comm="llama-server").pid)
    assert len(set(processes)) == len(processes)


def test_its_own_folder_is_given_back_to_the_server(host: Host) -> None:
    host.check_output(f"touch {STATE}/file && chown -R root:root {STATE} && chmod 0755 {STATE}")
    assert run_playbook("converge.yml").returncode == 0
    folder = host.file(STATE)
    assert (folder.user, folder.group, folder.mode) == ("llama-server", "llama-server", 0o700)
    assert host.file(f"{STATE}/file").user == "llama-server"
    host.check_output(f"rm {STATE}/file")


def test_a_server_that_ends_is_noticed_at_once_with_its_words(host: Host) -> None:
    started = time.monotonic()
    answer = run_playbook("converge.yml", extra_arguments=["--lora", "/no/such.gguf"])
    assert time.monotonic() - started < FAILS_WITHIN_S
    assert_refused(answer, "/no/such.gguf")
    assert run_playbook("converge.yml").returncode == 0
    assert host.service(UNIT).is_running


def restarted_in_the_middle_of_an_answer(host: Host, changed: str = "true") -> dict[str, Any]:
    """How an answer ended during which something was changed by a command and the unit was restarted."""
    host.check_output("rm -f /run/reader.begun /run/reader.told /run/reader.py")
    content = base64.b64encode(READ_SLOWLY.encode()).decode()
    host.check_output(f"echo {content} | base64 --decode > /run/reader.py")
    unit = "systemd-run --quiet --unit reader --collect --property=StandardOutput=file:/run/reader.told"
    host.check_output(f"{unit} python3 /run/reader.py %s %s", UNIT, KEY_FILE)
    host.check_output("timeout 60 sh -c 'until test -e /run/reader.begun; do sleep 0.1; done'")
    host.check_output(changed)
    host.check_output(f"systemctl restart {UNIT}")
    host.check_output("timeout 60 sh -c 'while systemctl is-active --quiet reader; do sleep 0.1; done'")
    told = host.check_output("cat /run/reader.told")
    return dict(json.loads(told)) if told else {"parts": 0, "ended": None, "done": False}


@pytest.mark.usefixtures("running")
def test_a_restart_cuts_no_answer_and_would_without_the_drain(host: Host) -> None:
    assert run_playbook("converge.yml", context=4096).returncode == 0
    whole = restarted_in_the_middle_of_an_answer(host)
    assert (whole["ended"], whole["done"]) == ("length", True)
    assert whole["parts"] > 3500
    host.check_output(f"mkdir -p {DROP_IN} && printf '[Service]\\nExecStop=\\n' > {DROP_IN}/drain.conf")
    host.check_output("systemctl daemon-reload")
    cut = restarted_in_the_middle_of_an_answer(host)
    assert (cut["ended"], cut["done"]) == (None, False)
    assert host.file("/usr/local/lib/llama-server/drain.py").mode == 0o644


def test_a_changed_key_and_port_cut_no_answer(host: Host) -> None:
    """The unit says another port and the file another key by the time at which the server is asked what it does."""
    assert run_playbook("converge.yml", context=4096).returncode == 0
    invocation = host.check_output(f"systemctl show --value -p InvocationID {UNIT}")
    another_port = f'sed -i \'s/"18080"/"18081"/\' /etc/systemd/system/{UNIT} && systemctl daemon-reload'
    whole = restarted_in_the_middle_of_an_answer(host, f"echo another > {KEY_FILE} && {another_port}")
    assert (whole["ended"], whole["done"]) == ("length", True)
    assert "Not drained" not in host.check_output(f"journalctl _SYSTEMD_INVOCATION_ID={invocation}")
    assert "--port 18081 " in host.process.get(comm="llama-server").args
    assert run_playbook("converge.yml").returncode == 0
    assert "--port 18080 " in host.process.get(comm="llama-server").args


def test_no_request_is_cut_lost_or_refused_over_changes(host: Host) -> None:
    """Of an option of the server, of how much it computes at once, of the switch alone, and by hand."""
    processes = []

    def change() -> None:
        for options in ({"context": 1024}, {"context": 1024, "parallel": 2}, {"context": 768, "queue": "3m"}, {}):
            assert run_playbook("converge.yml", **options).returncode == 0
            processes.append(host.process.get(comm="llama-server").pid)
        host.check_output(f"systemctl restart {UNIT}")
        processes.append(host.process.get(comm="llama-server").pid)

    became = counted(host, change, 8080, "model", KEY_FILE)
    assert set(became) == {"whole", "slowest"}, became
    assert became["whole"] > 50
    assert len(set(processes)) == len(processes)


REFUSING = (
    "{% if messages[0]['content'] == 'Say hello.' %}{{ raise_exception('not to this') }}{% endif %}"
    "{% for message in messages %}{{ message['content'] }}{% endfor %}"
)
DEAF = {"extra_arguments": ["--chat-template", "{% raw %}" + REFUSING + "{% endraw %}"]}
"""With it the server is healthy, and answers no completion that the proof asks for."""
BESIDE = "llama-server-beside"


def share(part: float) -> str:
    """So much of what is free a second server may take."""
    return json.dumps({"__llama_cpp_beside_share": part})


def serving(host: Host) -> tuple[str, str]:
    """The process that serves, and what its unit says."""
    process = host.check_output(f"systemctl show --value -p MainPID {UNIT}")
    return process, host.file(f"/etc/systemd/system/{UNIT}").content_string


def is_gone(host: Host) -> bool:
    """Whether nothing is left of a second server."""
    left = f"ls -d /run/systemd/system/{BESIDE}* /run/{BESIDE}* /sys/fs/cgroup/system.slice/{BESIDE}* 2> /dev/null"
    return not host.run(left).stdout and host.run(f"systemctl is-failed {BESIDE}").stdout.strip() == "inactive"


def test_a_changed_server_is_tried_first_and_the_one_before_serves_on_where_that_fails(host: Host) -> None:
    before, answers = serving(host), []
    became = counted(host, lambda: answers.append(run_playbook("converge.yml", **DEAF)), 8080, "model", KEY_FILE)
    assert_refused(answers[0], "tried beside the server that serves, the new one did not answer")
    assert re.search(r"changed=0 .*failed=1", answers[0].stdout)
    assert serving(host) == before
    assert set(became) == {"whole", "slowest"}, became
    assert is_gone(host)
    assert run_playbook("verify_only.yml").returncode == 0


AT_ONCE: dict[str, Any] = {"queue": "0s", "parallel": 8, "context": 4096}
"""Nobody waits for a place of the server, and nobody may wait for the server."""


def test_a_changed_server_takes_over_beside_the_one_before_and_nobody_waits(host: Host) -> None:
    assert run_playbook("converge.yml", **AT_ONCE).returncode == 0
    before, answers = serving(host), []

    def change() -> None:
        answers.append(run_playbook("converge.yml", **AT_ONCE, batch=256))

    became = counted(host, change, 8080, "model", KEY_FILE)
    assert answers[0].returncode == 0, answers[0].stdout
    assert set(became) == {"whole", "slowest"}, became
    assert serving(host)[0] != before[0]
    assert "--batch-size 256" in host.process.get(comm="llama-server").args, "the usual one serves, and it alone"
    assert is_gone(host)


def test_a_changed_server_of_several_models_takes_over_beside_as_well(host: Host) -> None:
    models = [{"alias": "first", "path": MODEL}, {"alias": "second", "path": MODEL}]
    several: dict[str, Any] = {**AT_ONCE, "model": "", "alias": "", "models": models, "models_max": 2}
    assert run_playbook("converge.yml", **several).returncode == 0
    before, answers = serving(host), []

    def change() -> None:
        another = [{**models[0], "context": 3072}, models[1]]
        answers.append(run_playbook("converge.yml", **{**several, "models": another}))

    became = counted(host, change, 8080, "model", KEY_FILE, "first,second")
    assert answers[0].returncode == 0, answers[0].stdout
    assert set(became) == {"whole", "slowest"}, became
    assert serving(host)[0] != before[0]
    assert is_gone(host)

    refused = run_playbook("converge.yml", **several, **DEAF)
    assert_refused(refused, "The completion of first \\(HTTP [45]")
    assert is_gone(host)


def test_exchanged_without_one_beside_requests_are_refused_where_they_may_not_wait(host: Host) -> None:
    """The same change, so that what the test before counts is not what any change would give."""
    assert run_playbook("converge.yml", **AT_ONCE, batch=256, beside=False).returncode == 0
    became = counted(host, lambda: run_playbook("converge.yml", **AT_ONCE, beside=False), 8080, "model", KEY_FILE)
    assert became.get("503", 0) > 0, became
    assert run_playbook("converge.yml").returncode == 0


@pytest.mark.parametrize("options", [{}, {"batch": 256}], ids=["unchanged", "changed"])
def test_what_an_ended_run_left_beside_is_taken_away_by_the_next(host: Host, options: dict[str, Any]) -> None:
    script = f"""
        sed '/^ExecStartPre/d; /^RuntimeDirectory/d' /etc/systemd/system/{UNIT} > /run/systemd/system/{BESIDE}.service
        sed -i 's/"18080"/"28123"/; /^ExecStop/d; /^OnSuccess/d; /^OnFailure/d' /run/systemd/system/{BESIDE}.service
        systemctl daemon-reload; systemctl start {BESIDE}
        {CONTROL} ready b --port 28123 --within 30
    """
    host.check_output(script)
    answers = []
    became = counted(host, lambda: answers.append(run_playbook("converge.yml", **options)), 8080, "model", KEY_FILE)
    assert answers[0].returncode == 0, answers[0].stdout
    assert set(became) == {"whole", "slowest"}, became
    assert is_gone(host)
    assert run_playbook("converge.yml").returncode == 0


def test_a_key_of_which_its_unit_says_nothing_is_tried_beside_as_well(host: Host) -> None:
    started = f"journalctl --quiet --output cat --unit {BESIDE} | grep -c '^Started '"
    before = int(host.check_output(started))
    assert run_playbook("converge.yml", api_key="another-key").returncode == 0
    assert int(host.check_output(started)) == before + 1
    assert run_playbook("converge.yml").returncode == 0


ASK_WITH = """
import json, sys, urllib.error, urllib.request as http
body = json.dumps({"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 2}).encode()
head, _, value = sys.argv[1].partition(": ")
heads = {"Content-Type": "application/json", head: value}
request = http.Request("http://127.0.0.1:8080/v1/chat/completions", body, heads)
try:
    print(http.urlopen(request, timeout=60).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""
FORMER_KEY_FILE = "/etc/llama-server.former-api-key"


@pytest.mark.parametrize("beside", [True, False], ids=["beside", "exchanged"])
def test_a_changed_key_refuses_nobody_who_has_the_former_one_for_a_while(host: Host, beside: bool) -> None:
    """As a gateway, which learns the new key when the engine is already done."""
    host.check_output(f"umask 077; cp {KEY_FILE} /run/former-key")
    answers = []

    def change() -> None:
        answers.append(run_playbook("converge.yml", api_key="another-key", beside=beside))

    became = counted(host, change, 8080, "model", "/run/former-key")
    assert answers[0].returncode == 0, answers[0].stdout
    assert KEY not in answers[0].stdout
    assert set(became) == {"whole", "slowest"}, became
    assert (host.file(FORMER_KEY_FILE).mode, host.file(FORMER_KEY_FILE).user) == (0o600, "llama-server")
    assert host.run(f"grep -rlF '{KEY}' /etc/systemd /etc/switch-* /run/systemd /var/log").stdout == ""
    assert run_playbook("verify_only.yml", api_key="another-key").returncode == 0

    assert run_playbook("converge.yml", api_key="another-key", beside=beside, key_grace="0s").returncode == 0
    for head in ("Authorization: Bearer", "X-Api-Key:"):
        assert host.check_output("python3 -c %s %s", ASK_WITH, f"{head} {KEY}") == "401"
        assert host.check_output("python3 -c %s %s", ASK_WITH, f"{head} another-key") == "200"
    assert run_playbook("converge.yml").returncode == 0
    assert host.check_output("python3 -c %s %s", ASK_WITH, f"Authorization: Bearer {KEY}") == "200"


def test_where_there_is_no_room_for_both_the_same_change_ends_the_server(host: Host) -> None:
    """What there is no room for is exchanged: only then it is seen."""
    before = serving(host)
    assert_refused(run_playbook("converge.yml", "--extra-vars", share(0), **DEAF), "Unable to prove that tiny answers")
    assert serving(host)[0] != before[0]
    assert run_playbook("converge.yml").returncode == 0


def test_one_that_takes_more_than_there_is_gives_way_to_an_exchange(host: Host) -> None:
    answer = run_playbook("converge.yml", "--extra-vars", share(0.002), context=1024)
    assert answer.returncode == 0, answer.stdout
    assert "--ctx-size 1024" in host.process.get(comm="llama-server").args
    assert "status=9/KILL" in host.check_output(f"journalctl --no-pager --unit {BESIDE}")
    assert is_gone(host)
    assert run_playbook("converge.yml").returncode == 0


@pytest.mark.usefixtures("running")
def test_without_the_switch_the_same_load_loses_answers(host: Host) -> None:
    """Nothing keeps new requests from it: without a limit its drain would last as long as it may."""
    host.check_output(f"mkdir -p {DROP_IN} && printf '[Service]\\nTimeoutStopSec=3\\n' > {DROP_IN}/soon.conf")
    host.check_output("systemctl daemon-reload")
    became = counted(host, lambda: host.run(f"systemctl restart {UNIT}"), 18080, "model", KEY_FILE)
    assert became.get("lost", 0) + became.get("cut", 0) > 0, became


@pytest.mark.usefixtures("running")
def test_an_answer_that_takes_too_long_is_cut_and_named(host: Host) -> None:
    assert run_playbook("converge.yml", context=4096, drain="0s").returncode == 0
    assert restarted_in_the_middle_of_an_answer(host)["ended"] is None
    words = "Not drained within 0 s, and ended all the same: "
    assert words in host.check_output(f"journalctl --unit {UNIT} --grep %s", words)
    assert run_playbook("converge.yml").returncode == 0


def test_the_program_takes_all_that_the_role_can_write(host: Host) -> None:
    assert objections(host.check_output("/opt/llama_cpp/bin/llama-server --help")) == []


def test_every_option_reaches_the_server(host: Host) -> None:
    options = {"kv_offload": False, "jinja": False, "reasoning": "off", "n_cpu_moe": 1, "gpu_layers": 0}
    options |= {"environment": {"WORDS": ODD_WORDS}}
    template = ["--chat-template", "chatml"]  # the model's own one is written in Jinja
    answer = run_playbook("converge.yml", load_mode="mlock", extra_arguments=template, **options)
    assert answer.returncode == 0, answer.stdout
    words = host.process.get(comm="llama-server").args
    for said in ("--no-kv-offload", "--no-jinja", "--reasoning off", "--n-cpu-moe 1", "--gpu-layers 0", "mode mlock"):
        assert said in words
    variables = host.check_output("tr '\\0' '\\n' < /proc/$(systemctl show --value -p MainPID %s)/environ", UNIT)
    assert f"WORDS={ODD_WORDS}" in variables.splitlines()
    locked = host.check_output("grep VmLck: /proc/$(systemctl show --value -p MainPID %s)/status", UNIT)
    assert int(locked.split()[1]) > 0


def test_a_model_that_cannot_be_locked_is_refused(host: Host) -> None:
    host.check_output(f"mkdir -p {DROP_IN} && printf '[Service]\\nLimitMEMLOCK=64K\\n' > {DROP_IN}/limit.conf")
    host.check_output("systemctl daemon-reload")
    answer = run_playbook("converge.yml", load_mode="mlock", threads=1)
    host.check_output(f"rm -r {DROP_IN} && systemctl daemon-reload")
    assert_refused(answer, "Unable to keep tiny in memory")


def test_images_are_taken_by_a_model_with_a_projector_only(host: Host) -> None:
    content = base64.b64encode(gzip.compress(projector_bytes(EMBEDDING))).decode()
    host.check_output(f"echo {content} | base64 --decode | gunzip > {PROJECTOR}")
    assert run_playbook("converge.yml").returncode == 0
    assert_refused(run_playbook("verify_only.yml", mmproj=PROJECTOR), r"images should be\s+taken and\s+are not")
    answer = run_playbook("converge.yml", mmproj=PROJECTOR)  # its proof shows the model an image
    assert answer.returncode == 0, answer.stdout
    assert_refused(run_playbook("verify_only.yml"), r"images should not be\s+taken and\s+are")


def test_a_model_is_no_projector() -> None:
    assert_refused(run_playbook("converge.yml", mmproj=MODEL), "failed to load multimodal model")


# What follows is refused before anything is written, whatever the tests above have left behind.
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch": 256, "ubatch": 4096}, "Make it smaller or equal"),
        ({"kv_cache": {"v": "q8_0"}, "flash_attention": "off"}, "need flash attention"),
        ({"extra_arguments": ["--api-key", "x"]}, r"\(--api-key\)"),
        ({"extra_arguments": ["--ctx_size", "9"]}, r"\(--ctx-size\)"),
        ({"extra_arguments": ["--no-slots"]}, r"\(--no-slots\)"),
        ({"extra_arguments": ["--mlock", "--seed", "-1", "--no_such"]}, r"--mlock\s+and no argument\s+--no-such"),
        ({"environment": {"A B": "x"}}, "Names are letters"),
        ({"environment": {"A": "x\nExecStartPre=/bin/true"}}, "a control character"),
        ({"gpu_layers": "all"}, "`gpu_layers` is all"),
        ({"mmproj": "/no/such.gguf"}, "/no/such.gguf"),
        ({"kv_cache": {"k": "q9"}}, "q9"),
        ({"api_key": "two\nkeys"}, "`api_key` holds"),
        ({"api_key": "line\n"}, "`api_key` holds"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, Any], words: str) -> None:
    assert_refused(run_playbook("converge.yml", **options), words)
