"""tabbyAPI as its users meet it, by a stand-in with its habits; and the role's proof, which fails where it must."""

from __future__ import annotations

import json
import os
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from testinfra.host import Host

from tests.molecule.counted import counted
from tests.molecule.switched import (
    changed_by_hand,
    listeners,
    put_back_before_the_switch,
    wait_for_status,
    wait_until_answering,
    wait_until_listening,
)
from tests.waiting import PATIENCE_S

SCENARIO = Path(__file__).resolve().parents[1]
VARS: dict[str, Any] = yaml.safe_load((SCENARIO / "vars.yml").read_text(encoding="utf-8"))
KEY, ADMIN = VARS["tabbyapi_api_key"], VARS["tabbyapi_admin_key"]
NAME = "tabbyapi"
UNIT, SWITCH = "tabbyapi.service", "switch-tabbyapi.service"
CHECKOUT = "/opt/tabbyapi"
PORT, BEHIND = 5000, 15000
"""Where clients reach it, by the switch, and where the server itself listens."""
JOURNAL = "journalctl --no-pager --all --quiet --output=cat"
SECURITY_LIMIT = 50  # systemd counts in tenths: 5.0
QUESTION = {"prompt": "Hello", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}


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
    assert ADMIN not in done.stdout
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


@pytest.fixture
def mended() -> Iterator[None]:
    """The scenario's own state when the test is over; without it the next tests would mean nothing."""
    yield
    passes("converge.yml")


@pytest.fixture
def squatter(host: Host) -> Iterator[None]:
    """Another program on the server's own port, and the server stopped, which was there first."""
    host.check_output(f"systemctl stop {UNIT}")
    host.check_output(f"systemd-run --quiet --unit=squatter python3 -m http.server --bind 127.0.0.1 {BEHIND}")
    wait_until_listening(host, BEHIND)
    yield
    host.check_output("systemctl stop squatter")


# What is there.


def test_the_model_answers_with_a_key_alone(host: Host) -> None:
    assert http(host, "/v1/model") == (200, {"id": "tiny-exl3", "object": "model"})
    for path in ("/v1/completions", "/v1/chat/completions"):
        status, answer = http(host, path, QUESTION)
        assert (status, answer["usage"]["completion_tokens"]) == (200, 1)
        assert http(host, path, QUESTION, key=None)[0] == 401
    assert http(host, "/v1/model", key="canary-another-key-0123")[0] == 401


def test_the_unit_is_locked_up_and_starts_at_boot(host: Host) -> None:
    service = host.service("tabbyapi")
    assert service.is_running
    assert service.is_enabled
    host.check_output(f"systemd-analyze security --no-pager --threshold={SECURITY_LIMIT} {UNIT}")
    assert host.check_output(f"ps -o user= -p {shown(host, 'MainPID')}") == "tabbyapi"


def test_the_server_can_write_neither_to_what_runs_nor_to_what_it_reads(host: Host) -> None:
    assert host.check_output(f"find {CHECKOUT} /usr/local/lib/tabbyapi ! -user root -o -perm /022 ! -type l") == ""
    for name in ("config.yml", "api_tokens.yml"):
        file = host.file(f"/etc/tabbyapi/{name}")
        assert (file.user, file.group, file.mode) == ("root", "tabbyapi", 0o640)
    written = host.run(f"nsenter --target {shown(host, 'MainPID')} --mount touch {CHECKOUT}/new /etc/tabbyapi/new")
    assert written.stderr.count("Read-only file system") == 2


def test_the_configuration_is_what_was_asked_for_and_no_more(host: Host) -> None:
    written = yaml.safe_load(host.file("/etc/tabbyapi/config.yml").content_string)
    assert written == {
        "network": {"host": "127.0.0.1", "port": BEHIND},
        "model": {
            "model_dir": "/srv/models",
            "model_name": "tiny-exl3",
            "backend": "exllamav3",
            "max_seq_len": -1,
            "cache_mode": "8,6",
            "chunk_size": 2048,
            "cache_size": 2048,
        },
        "draft_model": {"draft_mode": "disabled"},
    }
    environment = host.check_output(f"tr '\\0' '\\n' < /proc/{shown(host, 'MainPID')}/environ").splitlines()
    assert f"STANDIN_NOTE={VARS['tabbyapi_environment']['STANDIN_NOTE']}" in environment


def test_the_keys_are_in_no_journal_process_unit_or_other_file(host: Host) -> None:
    assert "INFO: Your API key is: ********" in this_start(host).splitlines()
    assert "INFO: Your admin key is: ********" in this_start(host).splitlines()
    read = "cat /proc/[0-9]*/environ /etc/systemd/system/tabbyapi.service /etc/tabbyapi/config.yml"
    files = "find /var/lib/tabbyapi /var/cache/tabbyapi /var/log /tmp -type f ! -path '*/journal/*' -exec cat {} +"
    found = host.run(f"({JOURNAL} --boot; ps -efww; {read}; {files}) 2>&1 | tr -cd '\\11\\12\\40-\\176'")
    assert "tabbyapi" in found.stdout
    assert KEY not in found.stdout
    assert ADMIN not in found.stdout


def test_a_check_changes_nothing_and_shows_what_would_be(host: Host) -> None:
    before = shown(host, "MainPID")
    assert "changed=0" in passes("converge.yml", "--check", "--diff")
    assert "+ cache_size: 4096" in passes("converge.yml", "--check", "--diff", tabbyapi_cache_size=4096)
    assert "rise 1 maxconn 3" in passes("converge.yml", "--check", "--diff", tabbyapi_max_batch_size=3)
    assert shown(host, "MainPID") == before


# The port.


@pytest.mark.usefixtures("mended", "squatter")
def test_with_its_port_taken_the_unit_fails_at_once_and_moves_nowhere(host: Host) -> None:
    host.run(f"systemctl start {UNIT}")
    wait_until_failed(host)
    assert (shown(host, "Result"), shown(host, "ExecMainStatus"), shown(host, "NRestarts")) == ("exit-code", "78", "0")
    words = f"Unable to listen on port {BEHIND} of 127.0.0.1: Address already in use."
    assert words in host.run(f"systemctl status --no-pager --full {UNIT}").stdout
    assert "drafting" not in this_start(host)  # no model was loaded
    assert host.run(f"ss -ltn | grep :{BEHIND + 1}").stdout == ""
    refuses("verify_alone.yml", words, "it is failed")
    refuses("converge.yml", "python3 (squatter.service) listens there")


# The switch before it.


def test_the_server_is_reached_by_the_switch_alone(host: Host) -> None:
    assert listeners(host, PORT, BEHIND) == {f"0.0.0.0:{PORT}": "haproxy", f"127.0.0.1:{BEHIND}": "python"}
    for path in ("/.well-known/serviceinfo", "/docs", "/redoc", "/openapi.json", "/v1/loras", "/v1/templates"):
        assert http(host, path, key=ADMIN)[0] == 404
    for path in ("/v1/download", "/v1/template/switch", "/v1/sampling/override/switch", "/v1/lora/load"):
        assert http(host, path, QUESTION, key=ADMIN)[0] == 404
    inside = f"import urllib.request as r; print(r.urlopen('http://127.0.0.1:{BEHIND}/.well-known/serviceinfo').status)"
    assert host.check_output("python3 -c %s", inside) == "200"
    assert '"GET /health' not in this_start(host)  # the switch looks at it twice a second


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


@pytest.mark.usefixtures("mended")
def test_nobody_waits_for_a_server_that_was_stopped(host: Host) -> None:
    host.check_output(f"systemctl stop {UNIT}")
    wait_for_status(host, NAME, "MAINT")
    status, told = http(host, "/v1/completions", QUESTION)
    assert (status, told["error"]["type"]) == (503, "unavailable_error")


@pytest.mark.usefixtures("mended")
def test_a_server_that_had_the_port_itself_lets_the_switch_have_it(host: Host) -> None:
    put_back_before_the_switch(host, NAME, BEHIND, PORT, "/etc/tabbyapi/config.yml")
    assert listeners(host, PORT, BEHIND) == {f"0.0.0.0:{PORT}": "python"}
    assert http(host, "/.well-known/serviceinfo", key=None)[0] == 200
    passes("converge.yml")
    assert listeners(host, PORT, BEHIND) == {f"0.0.0.0:{PORT}": "haproxy", f"127.0.0.1:{BEHIND}": "python"}
    assert http(host, "/v1/completions", QUESTION)[0] == 200


def test_a_switch_whose_list_is_open_or_which_does_not_run_fails_the_proof(host: Host) -> None:
    with changed_by_hand(host, NAME, "/There is nothing here/d"):
        refuses("verify_alone.yml", "/.well-known/serviceinfo, which is not on its list, is answered with 200")
    host.check_output(f"systemctl stop {SWITCH}")
    refuses("verify_alone.yml", "Unable to ask the switch before tabbyapi how it stands")
    host.check_output(f"systemctl start {SWITCH}")
    passes("verify_alone.yml")


# What its proof is worth.


@pytest.mark.usefixtures("mended")
def test_a_server_without_its_model_is_not_ready_though_it_is_healthy(host: Host) -> None:
    host.check_output("sed -i /model_name/d /etc/tabbyapi/config.yml")
    host.check_output(f"systemctl restart {UNIT}")
    wait_until_listening(host, BEHIND)
    assert http(host, "/health", key=None)[0] == 200
    refuses("verify_alone.yml", "the model tiny-exl3 is not loaded (HTTP 503, no model)")


@pytest.mark.usefixtures("mended")
def test_a_model_that_does_not_fit_is_told_in_words_and_not_tried_for_ever(host: Host) -> None:
    refuses(
        "converge.yml",
        "Unable to load tiny-exl3: the model and its cache need more memory than the cards have",
        "Set a smaller `cache_size` (1048576), a `cache_mode` of fewer bits (8,6)",
        "`cpu_moe_offload_layers`",
        tabbyapi_cache_size=1048576,
    )
    wait_until_failed(host)
    assert int(shown(host, "NRestarts")) <= 3
    refuses("verify_alone.yml", "need more memory than the cards have")


@pytest.fixture
def forgotten(host: Host) -> Iterator[None]:
    """A journal without what the test has put there."""
    yield
    host.check_output("journalctl --rotate --quiet && journalctl --vacuum-time=1s --quiet")


@pytest.mark.usefixtures("mended", "forgotten")
def test_a_key_in_the_journal_is_refused_until_there_are_others(host: Host) -> None:
    drop_in = f"/run/systemd/system/{UNIT}.d"
    host.check_output(f"mkdir {drop_in}")
    host.check_output(f"printf '[Service]\\nExecStartPre=cat /etc/tabbyapi/api_tokens.yml' > {drop_in}/leak.conf")
    host.check_output(f"systemctl daemon-reload && systemctl restart {UNIT}")
    host.check_output(f"rm -r {drop_in} && systemctl daemon-reload")
    refuses("verify_alone.yml", "2 lines of tabbyapi.service in the journal hold one. Set new keys")
    before = shown(host, "MainPID")
    others = {"tabbyapi_api_key": "canary-second-key-0123456789", "tabbyapi_admin_key": "canary-second-admin-key-0"}
    passes("converge.yml", tabbyapi_key_grace="0s", **others)
    assert shown(host, "MainPID") != before
    assert http(host, "/v1/model", key="canary-second-key-0123456789")[0] == 200
    assert http(host, "/v1/model")[0] == 401


@pytest.mark.usefixtures("mended")
def test_a_server_with_other_keys_than_the_role_s_is_refused(host: Host) -> None:
    host.check_output("sed -i s/canary-api/canary-other/ /etc/tabbyapi/api_tokens.yml")
    refuses("verify_alone.yml", "written after it had started: /etc/tabbyapi/api_tokens.yml")
    host.check_output("sleep 5")  # upstream would have read them by now
    assert http(host, "/v1/model")[0] == 200
    host.check_output(f"systemctl restart {UNIT}")
    refuses("verify_alone.yml", "(HTTP 401, no model). With 401 it runs with other keys")


FORMER_KEY_FILE = "/etc/tabbyapi/former-api-key"


@pytest.mark.usefixtures("mended")
def test_a_changed_key_refuses_nobody_who_has_the_former_one_for_a_while(host: Host) -> None:
    """As a gateway, which learns the new key when the engine is already done."""
    host.check_output(f"umask 077; echo {KEY} > /run/former-key")
    another = "canary-another-key-0123"
    became = counted(host, lambda: passes("converge.yml", tabbyapi_api_key=another), PORT, "model", "/run/former-key")
    assert set(became) == {"whole", "slowest"}, became
    assert (host.file(FORMER_KEY_FILE).mode, host.file(FORMER_KEY_FILE).group) == (0o600, "tabbyapi")
    places = "/etc/systemd /etc/switch-* /run/systemd /var/log /var/lib/tabbyapi /var/cache/tabbyapi"
    assert host.run(f"grep -rlF '{KEY}' {places}").stdout == ""
    assert KEY not in this_start(host)
    passes("verify_alone.yml", tabbyapi_api_key=another)
    assert http(host, "/v1/model", key=another)[0] == 200

    passes("converge.yml", tabbyapi_api_key=another, tabbyapi_key_grace="0s")
    assert http(host, "/v1/model")[0] == 401
    assert http(host, "/v1/model", key=another)[0] == 200


@pytest.mark.usefixtures("mended")
def test_a_former_key_that_somebody_wrote_by_hand_stops_nothing(host: Host) -> None:
    host.check_output(f"printf 'a\\n' > {FORMER_KEY_FILE}; chmod 644 {FORMER_KEY_FILE}; systemctl restart {UNIT}")
    wait_until_listening(host, BEHIND)
    assert http(host, "/v1/model", key="a")[0] == 401
    passes("converge.yml")
    assert not host.file(FORMER_KEY_FILE).exists


@pytest.mark.usefixtures("mended")
def test_without_its_keys_nothing_is_started(host: Host) -> None:
    host.check_output("mv /etc/tabbyapi/api_tokens.yml /root/tokens.yml")
    host.run(f"systemctl restart {UNIT}")
    wait_until_failed(host)
    assert "Unable to read the keys from /etc/tabbyapi/api_tokens.yml" in this_start(host)
    host.check_output("rm /root/tokens.yml")


# Commits.


@pytest.mark.usefixtures("mended")
def test_an_older_commit_gets_ngrams_from_the_launcher_and_a_newer_one_from_its_own_option(host: Host) -> None:
    before = shown(host, "MainPID")
    passes("converge.yml", which="older", tabbyapi_draft_mode="ngram", tabbyapi_ngram_match_min=3)
    assert shown(host, "MainPID") != before
    assert "--ngram 3 /opt/tabbyapi" in host.file(f"/etc/systemd/system/{UNIT}").content_string
    assert "drafting 4 tokens after 3 that match" in this_start(host).splitlines()
    assert host.check_output(f"git -C {CHECKOUT} status --porcelain --ignored") == ""
    older = host.check_output(f"git -C {CHECKOUT} rev-parse HEAD")

    passes("converge.yml", tabbyapi_draft_mode="ngram", tabbyapi_ngram_match_min=3)
    assert "--ngram" not in host.file(f"/etc/systemd/system/{UNIT}").content_string
    assert "drafting 4 tokens after 3 that match" in this_start(host).splitlines()
    assert host.check_output(f"git -C {CHECKOUT} rev-parse HEAD") != older


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (
            "passes arguments to AsyncGenerator that are not named. Set `draft_mode`",
            {"which": "odd", "draft_mode": "ngram"},
        ),
        ("it knows nothing of draft_model.draft_mode", {"which": "older", "draft_mode": "mtp"}),
        ("knows nothing of model.cpu_moe_offload_layers", {"which": "older", "cpu_moe_offload_layers": 9}),
        ("commit {newer} of tabbyAPI has exllamav3", {"backend": "exllamav2", "cache_mode": "Q8", "model": "old-exl2"}),
    ],
)
def test_what_the_commit_cannot_do_is_refused_and_the_server_goes_on(
    host: Host, words: str, values: dict[str, Any]
) -> None:
    before = shown(host, "MainPID")
    newer = host.check_output(f"git -C {CHECKOUT} rev-parse HEAD")
    named = {key if key == "which" else f"tabbyapi_{key}": value for key, value in values.items()}
    refuses("converge.yml", words.format(newer=newer), **named)
    assert shown(host, "MainPID") == before
    assert host.check_output(f"git -C {CHECKOUT} rev-parse HEAD") == newer


def test_a_commit_that_cannot_be_had_leaves_the_one_that_runs(host: Host) -> None:
    before = shown(host, "MainPID")
    refuses("converge.yml", "Unable to fetch commit 0000000000", "is used still", tabbyapi_commit="0" * 40)
    assert shown(host, "MainPID") == before
    assert "changed=0" in passes("converge.yml")


def test_what_was_changed_by_hand_is_replaced(host: Host) -> None:
    host.check_output(f"sh -c 'echo \"raise SystemExit(9)\" >> {CHECKOUT}/main.py; touch {CHECKOUT}/common/socket.py'")
    passes("converge.yml")
    assert host.check_output(f"git -C {CHECKOUT} status --porcelain --ignored") == ""


# What is refused before anything is changed.


def test_a_refused_option_changes_nothing(host: Host) -> None:
    before = shown(host, "MainPID"), host.check_output("stat -c %y /etc/tabbyapi/* /opt/tabbyapi")
    refuses("converge.yml", "changed=0", tabbyapi_cache_mode="9,4")
    assert (shown(host, "MainPID"), host.check_output("stat -c %y /etc/tabbyapi/* /opt/tabbyapi")) == before


def test_an_interpreter_without_what_it_takes_is_refused(host: Host) -> None:
    before = shown(host, "MainPID")
    refuses(
        "converge.yml",
        "torch (ModuleNotFoundError: No module named 'torch'), exllamav3 (ModuleNotFoundError",
        "Role torch_stack has to hold what is missing",
        tabbyapi_python="/srv/bare/bin/python",
    )
    assert shown(host, "MainPID") == before


def test_another_stack_behind_the_link_restarts_the_server(host: Host) -> None:
    before = shown(host, "MainPID")
    host.check_output("cp -a /opt/torch_stack/one /opt/torch_stack/two && ln -sfn two /opt/torch_stack/current")
    passes("converge.yml")
    after = shown(host, "MainPID")
    host.check_output("ln -sfn one /opt/torch_stack/current && rm -r /opt/torch_stack/two")
    passes("converge.yml")
    assert len({before, after, shown(host, "MainPID")}) == 3
    assert re.search(r"(?m)^X-Python=/opt/torch_stack/one$", host.file(f"/etc/systemd/system/{UNIT}").content_string)
