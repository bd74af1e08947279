"""Kokoro as its users meet it: real synthesis by weights of ours; and the role's proof, which fails where it must."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host

from tests.molecule.switched import changed_by_hand, listeners, put_back_before_the_switch, wait_for_status
from tests.waiting import PATIENCE_S

SCENARIO = Path(__file__).resolve().parents[1]
NAME = "kokoro"
UNIT, SWITCH = "kokoro.service", "switch-kokoro.service"
CHECKOUT = "/opt/kokoro_fastapi"
PORT, BEHIND = 8880, 18880
"""Where clients reach it, by the switch, and where the server itself listens."""
DROP_IN = f"/run/systemd/system/{UNIT}.d"
SECURITY_LIMIT = 30  # systemd counts in tenths: 3.0
SHORT = "The door is open."
CANARY = "A canary sings of a key below the mat."
TWO = "Good morning to you all. The kettle has boiled, and the bread is still warm on the table."
VOICES = "af_bella, af_heart, af_sky, bm_fable"


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
        timeout=400,
    )
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


def connected(host: Host) -> http.client.HTTPConnection:
    """A connection from this machine to the server."""
    return http.client.HTTPConnection(host.check_output("hostname -I").split()[0], PORT, timeout=120)


def asked(host: Host, **body: Any) -> tuple[int, bytes]:
    """Status and body of a request for speech."""
    connection = connected(host)
    text = json.dumps({"voice": "af_sky", "response_format": "pcm", **body})
    connection.request("POST", "/v1/audio/speech", text, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, answer.read()


def spoken(host: Host, **words: Any) -> Any:
    """What the role's own program says of a text that is spoken in the container; of a late one again, as the role."""
    asked = {"port": PORT, "input": TWO, "voice": "af_sky", "format": "pcm", "stream": True, "bursts": True, **words}
    for _ in range(3):
        said = host.check_output("printf %%s %s | python3 /usr/local/lib/kokoro/speak.py", json.dumps(asked))
        if not (told := json.loads(said))["late"]:
            break
    return told


def shown(host: Host, name: str) -> str:
    """A property of the unit."""
    return str(host.check_output(f"systemctl show --property={name} --value {UNIT}"))


def dropped_in(host: Host, variables: str) -> None:
    """The service with other variables, until ``mended`` takes them away."""
    line = f"[Service]\\nEnvironment={variables}"
    host.check_output(f"mkdir -p {DROP_IN} && printf '{line}' > {DROP_IN}/other.conf && systemctl daemon-reload")
    host.check_output(f"systemctl restart {UNIT}")


def journal(host: Host) -> str:
    """What the service has written since it was started."""
    host.check_output("journalctl --sync")
    return str(host.check_output(f"journalctl --no-pager _SYSTEMD_INVOCATION_ID={shown(host, 'InvocationID')}"))


@pytest.fixture
def mended(host: Host) -> Iterator[None]:
    """Whatever a test added is taken away again."""
    yield
    host.check_output(f"rm -rf {DROP_IN} && systemctl daemon-reload && systemctl restart {UNIT}")
    passes("verify_alone.yml")


# As it is.


def test_the_first_sentence_is_heard_while_the_second_is_computed(host: Host) -> None:
    shares = []
    for _ in range(3):  # what else the machine does comes in between
        told = spoken(host)
        assert told["bursts"] >= 2
        shares.append(told["first_s"] / told["last_s"])
        if shares[-1] <= 0.45:
            break
    assert min(shares) <= 0.45


@pytest.mark.parametrize("kind", ["wav", "pcm", "mp3", "opus", "flac", "aac"])
def test_every_format_is_spoken(host: Host, kind: str) -> None:
    told = spoken(host, input=SHORT, format=kind, bursts=False)
    assert (told["problem"], told["status"]) == ("", 200)
    assert told["bytes"] > 1000


def first_burst(told: dict[str, Any]) -> int:
    """Bytes that came before the first pause."""
    chunks = told["chunks"]
    pauses = (
        number for number, (one, other) in enumerate(pairwise(chunks), 1) if other[0] - one[0] > told["last_s"] / 10
    )
    return sum(size for _, size in chunks[: next(pauses)])


def test_a_file_s_header_holds_nothing_back(host: Host) -> None:
    pcm, wav = (first_burst(spoken(host, format=kind, keep_chunks=True)) for kind in ("pcm", "wav"))
    assert 0 < wav - pcm < 200


def test_a_mix_sounds_otherwise_than_its_parts(host: Host) -> None:
    answers = [asked(host, input=SHORT, voice=voice) for voice in ("af_sky", "af_bella", "af_bella(2)+af_sky(1)")]
    assert [status for status, _ in answers] == [200, 200, 200]
    assert len({body for _, body in answers}) == 3


def test_the_service_is_shut_in(host: Host) -> None:
    report = json.loads(host.check_output(f"systemd-analyze security --json=short {UNIT}"))
    assert report
    exposure = host.run(f"systemd-analyze security --threshold={SECURITY_LIMIT} {UNIT}")
    assert exposure.rc == 0, exposure.stdout[-300:]
    assert shown(host, "User") == "kokoro"
    assert host.file(CHECKOUT).user == "root"
    assert host.check_output(f"git -C {CHECKOUT} status --porcelain --ignored") == ""


def test_what_is_spoken_stays_out_of_the_journal(host: Host) -> None:
    assert asked(host, input=CANARY)[0] == 200
    written = journal(host)
    assert '"POST /v1/audio/speech HTTP/1.1" 200' in written
    assert CANARY[:20] not in written
    assert '"GET /health' not in written  # the switch looks at it twice a second


def test_other_sites_and_the_player_are_closed(host: Host) -> None:
    connection = connected(host)
    connection.request("GET", "/health", headers={"Origin": "https://elsewhere.example"})
    answer = connection.getresponse()
    assert (answer.status, answer.getheader("access-control-allow-origin")) == (200, None)
    answer.read()
    connection.request("GET", "/web/")
    assert connection.getresponse().status == 404


def look(host: Host, path: str) -> tuple[int, bytes]:
    """Status and body of a look."""
    connection = connected(host)
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, answer.read()


# The switch before it.


def test_the_server_is_reached_by_the_switch_alone(host: Host) -> None:
    assert listeners(host, PORT, BEHIND) == {f"0.0.0.0:{PORT}": "haproxy", f"127.0.0.1:{BEHIND}": "python"}
    assert look(host, "/v1/audio/voices")[0] == 200
    for path in ("/docs", "/openapi.json", "/debug/system", "/dev/unload", "/v1/audio/voices/combine", "/web"):
        assert look(host, path)[0] == 404
    inside = f"import urllib.request as r; print(r.urlopen('http://127.0.0.1:{BEHIND}/openapi.json').status)"
    assert host.check_output("python3 -c %s", inside) == "200"


def test_over_a_restart_running_answers_are_finished_and_new_requests_wait(host: Host) -> None:
    """How many samples a text has is the same whenever it is spoken."""
    before = shown(host, "MainPID")
    status, whole = asked(host, input=TWO)
    assert (status, len(whole) > 2 * 24000) == (200, True)
    connection = connected(host)
    text = json.dumps({"input": TWO, "voice": "af_sky", "response_format": "pcm"})
    connection.request("POST", "/v1/audio/speech", text, {"Content-Type": "application/json"})
    running = connection.getresponse()
    begun = running.read(1)
    with ThreadPoolExecutor(1) as pool:
        restarting = pool.submit(host.check_output, f"systemctl restart {UNIT}")
        wait_for_status(host, NAME, "(DRAIN|DOWN)")
        status, waited = asked(host, input=TWO)
        restarting.result(PATIENCE_S)
    assert (status, len(waited)) == (200, len(whole))
    assert len(begun + running.read()) == len(whole)
    assert shown(host, "MainPID") != before


def test_nobody_waits_for_a_server_that_was_stopped(host: Host) -> None:
    host.check_output(f"systemctl stop {UNIT}")
    wait_for_status(host, NAME, "MAINT")
    status, told = asked(host, input=SHORT)
    assert (status, json.loads(told)["error"]["type"]) == (503, "unavailable_error")
    host.check_output(f"systemctl start {UNIT}")
    assert asked(host, input=SHORT)[0] == 200


def test_a_server_that_had_the_port_itself_lets_the_switch_have_it(host: Host) -> None:
    put_back_before_the_switch(host, NAME, BEHIND, PORT)
    assert listeners(host, PORT, BEHIND) == {f"0.0.0.0:{PORT}": "python"}
    passes("converge.yml")
    assert listeners(host, PORT, BEHIND) == {f"0.0.0.0:{PORT}": "haproxy", f"127.0.0.1:{BEHIND}": "python"}
    assert asked(host, input=SHORT)[0] == 200


def test_a_switch_whose_list_is_open_or_which_does_not_run_fails_the_proof(host: Host) -> None:
    with changed_by_hand(host, NAME, "/There is nothing here/d"):
        refuses("verify_alone.yml", "/openapi.json, which is not on its list, is answered with 200 instead of 404")
    host.check_output(f"systemctl stop {SWITCH}")
    refuses("verify_alone.yml", "Unable to ask the switch before kokoro how it stands")
    host.check_output(f"systemctl start {SWITCH}")
    passes("verify_alone.yml")


def test_a_port_that_another_process_uses_is_refused_before_anything_is_touched(host: Host) -> None:
    host.check_output(f"systemctl stop {SWITCH}")
    host.check_output(f"systemd-run --quiet --unit=stranger --collect python3 -m http.server {PORT} --bind 127.0.0.1")
    refuses(
        "converge.yml",
        f"Unable to have the switch before kokoro listen on port {PORT}: python3 (stranger.service) listens there.",
        kokoro_start_timeout_s=200,
    )
    host.check_output(f"systemctl stop stranger && systemctl start {SWITCH}")
    assert "--start-timeout 200" not in host.file(f"/etc/systemd/system/{UNIT}").content_string


FILE = """\
name: molecule-kokoro
containers:
  molecule-kokoro: { services: { kokoro: { default_voice: af_sky } } }
"""


def provision(*words: str) -> str:
    """What the program prints about a lab whose container is this one."""
    done = subprocess.run(
        [sys.executable, "-m", "provisioner", *words], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_bench_takes_the_time_and_clients_are_told_where_it_speaks(host: Host, tmp_path: Path) -> None:
    file = tmp_path / "homelab.yml"
    file.write_text(FILE, encoding="utf-8")
    lines = [json.loads(line) for line in provision("bench", str(file), "--runs=1", "--long=0", "--json").splitlines()]
    told = next(line for line in lines if "benches" in line)
    bench = told["benches"][0]
    assert [one["format"] for one in bench["series"]] == ["pcm", "wav", "mp3"]
    assert all(one["runs"][0]["bursts"] >= 2 for one in bench["series"])
    assert bench["device"] == "cpu"
    assert bench["ram"] > 300 * 2**20
    assert told["verdict"][0].startswith("molecule-kokoro: two sentences are heard after 0.")
    address = host.check_output("hostname -I").split()[0]
    assert f"AUDIO_TTS_OPENAI_API_BASE_URL=http://{address}:{PORT}/v1" in provision(
        "show", str(file), "--client=openwebui"
    )


# Bad input.


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"input": SHORT, "voice": "af_nobody"}, 400, f"Voice 'af_nobody' not found. Available voices: {VOICES}"),
        ({"input": SHORT, "voice": "af_sky(2"}, 400, "is not a valid voice or voice(weight)"),
        ({"input": SHORT, "voice": "af_sky++af_bella"}, 400, "empty combine items"),
        ({"input": SHORT, "response_format": "midi"}, 422, "response_format"),
        ({"input": "word " * 200_000}, 413, "A request's body may have 20000 bytes. Send less at once."),
        ({"input": ""}, 200, ""),
        ({"input": "", "stream": False}, 400, "Input contains no speakable text"),
    ],
    ids=["voice", "bracket", "signs", "format", "1 MB", "empty", "empty at once"],
)
def test_bad_input_is_answered_and_the_server_goes_on(
    host: Host, body: dict[str, Any], status: int, words: str
) -> None:
    before = shown(host, "MainPID")
    answered, text = asked(host, **body)
    assert answered == status
    assert words in text.decode()
    assert shown(host, "MainPID") == before


def test_a_client_that_goes_away_leaves_a_server_that_speaks(host: Host) -> None:
    before = shown(host, "MainPID")
    connection = connected(host)
    text = json.dumps({"input": TWO, "voice": "af_sky", "response_format": "pcm"})
    connection.request("POST", "/v1/audio/speech", text, {"Content-Type": "application/json"})
    assert connection.getresponse().read(1)
    connection.close()
    assert spoken(host, input=SHORT, format="wav", stream=False, bursts=False)["problem"] == ""
    assert shown(host, "MainPID") == before


# Broken states.


@pytest.mark.usefixtures("mended")
def test_a_server_that_collects_everything_fails_the_proof(host: Host) -> None:
    dropped_in(host, "TARGET_MIN_TOKENS=175 TARGET_MAX_TOKENS=250 API_LOG_LEVEL=INFO")
    refuses("verify_alone.yml", "two sentences, streamed: it does not stream: 1 burst, first audio after")
    passes("verify_alone.yml", kokoro_streaming="off")
    # Upstream tells its journal what it speaks, unless its level is that of the role.
    assert asked(host, input=CANARY)[0] == 200
    assert CANARY[:20] in journal(host)


def test_a_server_older_than_its_checkout_fails_the_proof_and_is_restarted(host: Host) -> None:
    """As after a run that ended between the new checkout and the restart; git sees no difference."""
    before = shown(host, "MainPID")
    host.check_output(f"touch {CHECKOUT}/.git/HEAD && mkdir {CHECKOUT}.gone")
    refuses("verify_alone.yml", f"written after it had started: {CHECKOUT}/.git/HEAD")
    passes("converge.yml")
    assert shown(host, "MainPID") != before
    assert not host.file(f"{CHECKOUT}.gone").exists


def test_a_start_that_takes_too_long_is_ended_and_tried_twice_more(host: Host) -> None:
    try:
        refuses("converge.yml", f"Unable to use {UNIT}", kokoro_start_timeout_s=1, kokoro_beside=False)
        host.check_output(f"timeout 60 sh -c 'until systemctl is-failed --quiet {UNIT}; do sleep 1; done'")
        words = "Unable to start Kokoro: it was not loaded and warm within 1 seconds"
        assert host.check_output(f"journalctl --sync && journalctl --unit {UNIT} | grep -c '{words}'") == "3"
    finally:
        passes("converge.yml")


# Changes while people listen.


BESIDE = "kokoro-beside"
AT_ONCE = {"kokoro_queue": "0s"}
"""Nobody may wait for the server."""


def is_gone(host: Host) -> bool:
    """Whether nothing is left of a second server."""
    left = f"ls -d /run/systemd/system/{BESIDE}* /sys/fs/cgroup/system.slice/{BESIDE}* 2> /dev/null"
    return not host.run(left).stdout and host.run(f"systemctl is-failed {BESIDE}").stdout.strip() == "inactive"


def heard_while(host: Host, happening: Callable[[], object]) -> Counter[int]:
    """How often a short text was answered with which status meanwhile; 0 stands for one without a sound."""
    over = threading.Event()
    heard: Counter[int] = Counter()

    def listen() -> None:
        while not over.is_set():
            status, sound = asked(host, input=SHORT)
            heard[status if status != http.client.OK or len(sound) > 1000 else 0] += 1

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        happening()
    finally:
        over.set()
        listener.join(PATIENCE_S)
    return heard


def test_a_changed_server_takes_over_beside_the_one_before_and_nobody_waits(host: Host) -> None:
    passes("converge.yml", **AT_ONCE)
    before = shown(host, "MainPID")
    heard = heard_while(host, lambda: passes("converge.yml", **AT_ONCE, kokoro_max_input=20001))
    assert set(heard) == {200}, heard
    assert heard[200] > 5
    assert shown(host, "MainPID") != before
    assert "--max-input 20001" in host.file(f"/etc/systemd/system/{UNIT}").content_string
    assert is_gone(host)


def test_exchanged_without_one_beside_requests_are_refused_where_they_may_not_wait(host: Host) -> None:
    """The same change, so that what the test before counts is not what any change would give."""
    heard = heard_while(host, lambda: passes("converge.yml", **AT_ONCE, kokoro_beside=False))
    assert heard[503] > 0, heard
    passes("converge.yml")


def test_one_that_fails_its_proof_beside_changes_nothing(host: Host) -> None:
    before = shown(host, "MainPID"), host.file(f"/etc/systemd/system/{UNIT}").content_string
    words = "tried beside the server that serves, the new one failed its proof. That one was not touched"
    refuses("converge.yml", words, kokoro_start_timeout_s=1)
    assert (shown(host, "MainPID"), host.file(f"/etc/systemd/system/{UNIT}").content_string) == before
    assert is_gone(host)
    passes("verify_alone.yml")


# Commits.


def test_a_commit_without_the_settings_is_patched_and_unpatched(host: Host) -> None:
    passes("converge.yml", which="older", kokoro_web_player=True)
    changed = host.check_output(f"git -C {CHECKOUT} diff --name-only").split()
    assert changed == ["api/src/inference/kokoro_v1.py", "web/src/services/AudioService.js"]
    assert look(host, "/web/src/services/AudioService.js")[0] == look(host, "/web/")[0] == 200
    assert spoken(host)["problem"] == ""
    passes("converge.yml", which="older", kokoro_web_player=True, kokoro_patches="none", kokoro_streaming="off")
    assert host.check_output(f"git -C {CHECKOUT} status --porcelain --ignored") == ""
    assert "it does not stream: 1 burst" in spoken(host)["problem"]


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (
            "has no such voice. It has af_bella, af_heart, af_sky, bm_fable",
            {"kokoro_voices": ["af_nobody"]},
        ),
        ("Unable to patch commit", {"which": "odd"}),
        ("Write patches: auto, streaming:", {"which": "older", "kokoro_patches": "none"}),
        ("Unable to fetch commit 0000000000", {"kokoro_commit": "0" * 40}),
    ],
    ids=["voice", "shape", "no patches", "commit"],
)
def test_what_the_commit_cannot_do_is_refused_and_the_server_goes_on(
    host: Host, words: str, values: dict[str, Any]
) -> None:
    before = shown(host, "MainPID"), host.check_output(f"git -C {CHECKOUT} rev-parse HEAD")
    refuses("converge.yml", words, **values)
    assert (shown(host, "MainPID"), host.check_output(f"git -C {CHECKOUT} rev-parse HEAD")) == before


@pytest.mark.parametrize(
    "command",
    ["echo broken >> api/src/main.py", "rm .git/HEAD && truncate -s 100 api/src/core/config.py"],
    ids=["by hand", "by a power cut"],
)
def test_what_was_changed_is_replaced(host: Host, command: str) -> None:
    host.check_output(f"cd {CHECKOUT} && {command}")
    passes("converge.yml")
    assert not host.file(f"{CHECKOUT}.gone").exists
    assert host.check_output(f"git -C {CHECKOUT} status --porcelain --ignored") == ""
    assert spoken(host)["problem"] == ""
