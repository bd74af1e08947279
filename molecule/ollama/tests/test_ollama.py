"""Ollama as its users meet it, by a stand-in with its habits; and the role's proof, which fails where it must."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from testinfra.host import Host

from tests.molecule.counted import counted
from tests.molecule.playbooks import Scenario
from tests.molecule.switched import (
    changed_by_hand,
    listeners,
    wait_for_status,
    wait_until_answering,
    wait_until_listening,
)
from tests.waiting import PATIENCE_S

FOLDER = Path(__file__).resolve().parents[1]
VARS: dict[str, Any] = yaml.safe_load((FOLDER / "vars.yml").read_text(encoding="utf-8"))
KEY = VARS["ollama_api_key"]
NAME = "ollama"
UNIT, SWITCH = "ollama.service", "switch-ollama.service"
PORT, BEHIND = 11434, 21434
"""Where clients reach it, by the switch, and where the server itself listens."""
JOURNAL = "journalctl --no-pager --all --quiet --output=cat"
SECURITY_LIMIT = 30  # systemd counts in tenths: 3.0
STORE = "/var/lib/ollama/models"
SCENARIO = Scenario(FOLDER, KEY, PORT)
WITHOUT_ATTENTION = {"ollama_kv_cache_type": "q8_0", "ollama_flash_attention": "off"}
SHORT = {
    "stream": False,
    "options": {"num_predict": 4},
    "messages": [{"role": "user", "content": "Hello"}],
}
QUESTION = {"model": "tiny", "max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]}


def shown(host: Host, name: str) -> str:
    """A property of the unit."""
    return str(host.check_output(f"systemctl show --property={name} --value {UNIT}"))


def itself(host: Host, path: str, body: dict[str, Any] | None = None) -> Any:
    """What the server itself answers, past its switch."""
    data = f"-d '{json.dumps(body)}'" if body is not None else ""
    return json.loads(host.check_output(f"curl -sS --max-time 60 {data} http://127.0.0.1:{BEHIND}{path}"))


def by_hand(host: Host, method: str, path: str, **body: str) -> None:
    """What root in the container may do with the server's models."""
    address = f"http://127.0.0.1:{BEHIND}/api/{path}"
    host.check_output(f"curl -sSf --max-time 60 -X {method} -d '{json.dumps(body)}' {address}")


def names(host: Host) -> set[str]:
    """The models that it has."""
    return {one["name"] for one in itself(host, "/api/tags")["models"]}


@contextmanager
def drop_in(host: Host, *lines: str) -> Iterator[None]:
    """The server runs with these lines of ``[Service]`` besides, and without them afterwards."""
    folder = f"/run/systemd/system/{UNIT}.d"
    host.check_output(f"mkdir -p {folder}")
    host.run(f"printf '%s\\n' '[Service]' {' '.join(map(repr, lines))} > {folder}/test.conf")
    restarted(host)
    try:
        yield
    finally:
        host.check_output(f"rm -r {folder}")
        restarted(host)


def restarted(host: Host) -> None:
    """The server started anew with its unit as it is, and listening."""
    host.check_output(f"systemctl daemon-reload && systemctl restart {UNIT}")
    wait_until_listening(host, BEHIND)


@pytest.fixture
def mended() -> Iterator[None]:
    """The scenario's own state when the test is over; without it the next tests would mean nothing."""
    yield
    SCENARIO.passes("converge.yml")


# What is there.


@pytest.mark.parametrize("model", ["tiny", "other", "small"])
def test_each_model_answers_with_the_key(host: Host, model: str) -> None:
    status, answer = SCENARIO.http(host, "/v1/chat/completions", {**QUESTION, "model": model}, key=KEY)
    assert (status, answer["model"], answer["choices"][0]["finish_reason"]) == (200, model, "length")
    status, answer = SCENARIO.http(host, "/api/chat", {**SHORT, "model": model}, key=KEY)
    assert (status, answer["done"]) == (200, True)


def test_the_models_are_those_of_the_file_and_have_their_context(host: Host) -> None:
    assert names(host) == {"tiny:latest", "other:latest", "small:latest"}
    assert "num_ctx" in itself(host, "/api/show", {"model": "tiny"})["parameters"]
    record = json.loads(host.check_output("cat /etc/ollama/models.json"))
    assert set(record) == {"tiny", "other", "small"}
    assert host.file("/etc/ollama").mode == 0o700


def test_of_an_imported_file_one_copy_is_left(host: Host) -> None:
    given = json.loads(host.check_output("cat /etc/ollama/models.json"))["tiny"]["made_of"]["files"]["tiny.gguf"]
    manifest = host.check_output(f"cat {STORE}/manifests/registry.ollama.ai/library/tiny/latest")
    assert host.file(f"{STORE}/blobs/{given.replace(':', '-')}").exists == (given in manifest)


def test_the_unit_is_locked_up_and_starts_at_boot(host: Host) -> None:
    service = host.service("ollama")
    assert service.is_running
    assert service.is_enabled
    host.check_output(f"systemd-analyze security --no-pager --threshold={SECURITY_LIMIT} {UNIT}")
    assert host.check_output(f"ps -o user= -p {shown(host, 'MainPID')}") == "ollama"


def test_it_is_started_with_what_was_asked_for(host: Host) -> None:
    environment = host.check_output(f"tr '\\0' '\\n' < /proc/{shown(host, 'MainPID')}/environ").splitlines()
    assert f"STAND_IN_NOTE={VARS['ollama_environment']['STAND_IN_NOTE']}" in environment
    asked = {
        f"OLLAMA_HOST=127.0.0.1:{BEHIND}",
        f"OLLAMA_MODELS={STORE}",
        "OLLAMA_NO_CLOUD=1",
        "OLLAMA_NUM_PARALLEL=2",
        "OLLAMA_KEEP_ALIVE=5m",
        "OLLAMA_VULKAN=0",
    }
    assert asked <= set(environment)
    assert not [line for line in environment if line.startswith(("OLLAMA_FLASH_ATTENTION", "OLLAMA_CONTEXT_LENGTH"))]


def test_the_key_is_in_no_journal_argument_unit_or_other_file(host: Host) -> None:
    assert (host.file("/etc/ollama/api-key").mode, host.file("/etc/ollama/api-key").user) == (0o600, "root")
    places = "/var/lib/ollama /var/log /tmp /etc/systemd /etc/switch-ollama.cfg /run/switch-ollama"
    files = f"find {places} -type f ! -path '*/journal/*' -exec cat {{}} +"
    found = host.run(f"({JOURNAL} --boot; ps -fww; ps -efww; {files}) 2>&1 | tr -cd '\\11\\12\\40-\\176'")
    assert "ollama" in found.stdout
    assert KEY not in found.stdout


def test_a_second_run_changes_nothing_and_a_check_shows_what_would_be(host: Host) -> None:
    before = shown(host, "MainPID")
    assert "changed=0" in SCENARIO.passes("converge.yml")
    assert "changed=0" in SCENARIO.passes("converge.yml", "--check", "--diff")
    assert "OLLAMA_NUM_PARALLEL=3" in SCENARIO.passes("converge.yml", "--check", "--diff", ollama_num_parallel=3)
    assert shown(host, "MainPID") == before


# The switch before it.


def test_without_the_key_nothing_answers_but_that_it_is_there(host: Host) -> None:
    assert listeners(host, PORT, BEHIND) == {f"0.0.0.0:{PORT}": "haproxy", f"127.0.0.1:{BEHIND}": "python3"}
    assert SCENARIO.http(host, "/") == (200, "Ollama is running")
    for path in ("/api/tags", "/api/ps", "/api/version", "/v1/models"):
        assert SCENARIO.http(host, path)[0] == 401
        assert SCENARIO.http(host, path, key="canary-strange-key-0123")[0] == 401
        assert SCENARIO.http(host, path, key=KEY)[0] == 200
    for path in ("/v1/chat/completions", "/api/chat", "/api/generate"):
        assert SCENARIO.http(host, path, QUESTION)[0] == 401
    assert SCENARIO.http(host, "/", {})[0] == 401
    assert SCENARIO.http(host, "/v1/models", **{"x-api-key": KEY})[0] == 200
    assert SCENARIO.http(host, "/v1/models", authorization=f"Bearer x{KEY}")[0] == 401


@pytest.mark.parametrize("path", ["/api/pull", "/api/create", "/api/copy", "/api/show", "/api/push", "/debug/pprof/"])
def test_what_fetches_and_makes_models_stays_closed_with_the_key(host: Host, path: str) -> None:
    assert SCENARIO.http(host, path, {"model": "evil/model"}, key=KEY)[0] == 404
    assert SCENARIO.http(host, f"/{path}", {"model": "evil/model"}, key=KEY)[0] == 404


def test_whatever_clients_call_the_host_it_answers_them(host: Host) -> None:
    """Ollama on 127.0.0.1 refuses with 403 who names another host (server/routes.go, allowedHostsMiddleware)."""
    refused = f"curl -s -o /dev/null -w '%{{http_code}}' -H 'Host: chat.example' http://127.0.0.1:{BEHIND}/api/tags"
    assert host.check_output(refused) == "403"
    assert SCENARIO.http(host, "/api/tags", key=KEY, Host="chat.example")[0] == 200


def test_who_has_no_key_is_refused_while_others_wait(host: Host) -> None:
    with drop_in(host, "Environment=STAND_IN_TOKEN_S=0.5"), ThreadPoolExecutor(3) as pool:
        slow = [
            pool.submit(SCENARIO.http, host, "/v1/chat/completions", {**QUESTION, "max_tokens": 8}, key=KEY)
            for _ in range(3)
        ]
        wait_until_answering_any(host)
        assert SCENARIO.http(host, "/v1/chat/completions", QUESTION)[0] == 401
        assert not all(one.done() for one in slow)
        assert [one.result(PATIENCE_S)[0] for one in slow] == [200, 200, 200]


def wait_until_answering_any(host: Host) -> None:
    """Until the server computes an answer."""
    control = "python3 -IS /usr/local/lib/switch/control.py --socket /run/switch-ollama/control.sock"
    host.check_output(
        f'timeout 60 sh -c "until {control} state | grep -Eq \'\\"running\\": [12]\'; do sleep 0.1; done"'
    )


def test_over_a_restart_running_answers_are_finished_and_new_requests_wait(host: Host) -> None:
    """Ollama itself cuts all of them when it is told to end (server/routes.go, srvr.Close)."""
    with drop_in(host, "Environment=STAND_IN_TOKEN_S=0.5"), ThreadPoolExecutor(3) as pool:
        before = shown(host, "MainPID")
        running = pool.submit(SCENARIO.http, host, "/v1/chat/completions", {**QUESTION, "max_tokens": 6}, key=KEY)
        wait_until_answering(host, NAME)
        restarting = pool.submit(host.check_output, f"systemctl restart {UNIT}")
        wait_for_status(host, NAME, "(DRAIN|DOWN)")
        waiting = pool.submit(SCENARIO.http, host, "/v1/chat/completions", QUESTION, key=KEY)
        for answer in (running, waiting):
            status, told = answer.result(PATIENCE_S)
            assert (status, told["choices"][0]["finish_reason"]) == (200, "length")
        restarting.result(PATIENCE_S)
        assert shown(host, "MainPID") != before


# Its models.


@pytest.mark.usefixtures("mended")
def test_a_model_that_is_no_longer_named_is_deleted_and_that_of_another_is_left(host: Host) -> None:
    by_hand(host, "POST", "copy", source="tiny", destination="mine")
    assert "changed=1" in SCENARIO.passes("converge.yml", ollama_models=[VARS["ollama_models"][0]])
    assert names(host) == {"tiny:latest", "small:latest", "mine:latest"}
    by_hand(host, "DELETE", "delete", model="mine")


@pytest.mark.usefixtures("mended")
def test_a_changed_file_and_a_lost_model_are_imported_anew(host: Host) -> None:
    before = itself(host, "/api/tags")["models"]
    host.check_output("cp -a /srv/models/tiny /srv/models/changed && printf x >> /srv/models/changed/tiny.gguf")
    host.check_output("cd /srv/models/changed && sha256sum tiny.gguf > MANIFEST.sha256")
    changed = [{**VARS["ollama_models"][0], "path": "/srv/models/changed/tiny.gguf"}, VARS["ollama_models"][1]]
    SCENARIO.passes("converge.yml", ollama_models=changed)
    record = json.loads(host.check_output("cat /etc/ollama/models.json"))["tiny"]
    assert record["made_of"]["files"]["tiny.gguf"].removeprefix("sha256:") in host.check_output(
        "cat /srv/models/changed/MANIFEST.sha256"
    )
    by_hand(host, "DELETE", "delete", model="other")
    SCENARIO.refuses("verify_alone.yml", "Unable to ask Ollama's models: it does not know other", ollama_models=changed)
    SCENARIO.passes("converge.yml")
    assert {one["name"] for one in before} == names(host)


@pytest.mark.usefixtures("mended")
def test_another_version_than_the_digest_says_is_not_kept(host: Host) -> None:
    (seen,) = (one["digest"] for one in itself(host, "/api/tags")["models"] if one["name"] == "small:latest")
    pinned = {**VARS["ollama_pull"][0], "digest": seen}
    SCENARIO.passes("converge.yml", ollama_pull=[pinned])
    words = ("Unable to have Ollama serve small: its registry has", "and digest says " + "c" * 64)
    SCENARIO.refuses("converge.yml", *words, ollama_pull=[{**pinned, "digest": "c" * 64}])
    assert "small:latest" in names(host)
    assert "small:0.6b" not in names(host)


@pytest.mark.usefixtures("mended")
def test_what_the_registry_does_not_have_is_told(host: Host) -> None:
    words = ("Unable to have Ollama serve none: it said: pull model manifest: file does not exist",)
    pull = [*VARS["ollama_pull"], {"name": "none", "model": "nobody/none"}]
    SCENARIO.refuses("converge.yml", *words, ollama_pull=pull)
    assert "none:latest" not in names(host)


@pytest.mark.usefixtures("mended")
def test_a_model_that_somebody_else_has_put_there_is_not_replaced(host: Host) -> None:
    by_hand(host, "POST", "copy", source="tiny", destination="third")
    models = [*VARS["ollama_models"], {"alias": "third", "path": "/srv/models/other/other.gguf"}]
    SCENARIO.refuses("converge.yml", "it has a model of that name which the role did not bring", ollama_models=models)
    by_hand(host, "DELETE", "delete", model="third")


# What its proof is worth.


def test_a_switch_that_asks_for_no_key_or_passes_everything_fails_the_proof(host: Host) -> None:
    SCENARIO.passes("verify_alone.yml")
    with changed_by_hand(host, NAME, "/This needs the key/d"):
        SCENARIO.refuses("verify_alone.yml", "these answer without a key:", "GET /api/tags (200)")
    with changed_by_hand(host, NAME, "/There is nothing here/d"):
        SCENARIO.refuses("verify_alone.yml", "/api/show, which is not on its list, is answered with")


def test_a_model_that_does_not_lie_on_the_card_fails_the_proof(host: Host) -> None:
    card = {"vendor": "nvidia", "name": "a card"}
    SCENARIO.refuses("verify_alone.yml", "nothing of tiny, other, small lies on it", ollama_card=card)
    with drop_in(host, "Environment=STAND_IN_VRAM_SHARE=0.5"):
        SCENARIO.refuses("verify_alone.yml", "tiny (50% on the card)", ollama_card=card)
        SCENARIO.passes("verify_alone.yml", ollama_card=card, ollama_partial_offload=True)
    with drop_in(host, "Environment=STAND_IN_VRAM_SHARE=1"):
        SCENARIO.passes("verify_alone.yml", ollama_card=card)


@pytest.mark.usefixtures("mended")
def test_a_key_in_the_journal_is_refused(host: Host) -> None:
    with drop_in(host, "ExecStartPre=+cat /etc/ollama/api-key"):
        SCENARIO.refuses("verify_alone.yml", "lines of ollama.service in the journal hold it. Set a new key")
    host.check_output("journalctl --rotate --quiet && journalctl --vacuum-time=1s --quiet")


@pytest.mark.usefixtures("mended")
def test_a_changed_key_refuses_nobody_who_has_the_former_one_for_a_while(host: Host) -> None:
    """As a gateway, which learns the new key when the engine is already done."""
    host.check_output(f"umask 077; echo {KEY} > /run/former-key")
    before, another = shown(host, "MainPID"), "canary-another-key-0123"
    became = counted(
        host, lambda: SCENARIO.passes("converge.yml", ollama_api_key=another), PORT, "model", "/run/former-key", "tiny"
    )
    assert set(became) == {"whole", "slowest"}, became
    SCENARIO.passes("verify_alone.yml", ollama_api_key=another)
    assert SCENARIO.http(host, "/v1/models", key=another)[0] == 200
    assert shown(host, "MainPID") == before

    SCENARIO.passes("converge.yml", ollama_api_key=another, ollama_key_grace="0s")
    assert SCENARIO.http(host, "/v1/models", key=KEY)[0] == 401
    assert SCENARIO.http(host, "/v1/models", key=another)[0] == 200


# What is refused before anything is changed.


def test_a_refused_option_changes_nothing(host: Host) -> None:
    seen = "stat -c %y /etc/ollama/* /etc/systemd/system/ollama.service"
    before = shown(host, "MainPID"), host.check_output(seen)
    SCENARIO.refuses("converge.yml", "without flash attention", "changed=0", **WITHOUT_ATTENTION)
    assert (shown(host, "MainPID"), host.check_output(seen)) == before
