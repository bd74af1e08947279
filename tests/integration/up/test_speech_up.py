"""Speech in a lab's file, up on a real host: heard through the gateway, and a finding where it no longer is.

Upstream's server and its weights are stand-ins of ours; the library that speaks, torch and LiteLLM are the real ones.
"""

from __future__ import annotations

import json
import secrets
import shlex
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenario_programs import module_at
from tests.speech_lab import MASTER_KEY, SpeechLab, speech_lab
from tests.waiting import wait_until

pytestmark = [pytest.mark.incus, pytest.mark.network, pytest.mark.slow]

SPEAK = module_at(Path(__file__).resolve().parents[3] / "roles/kokoro/programs/speak.py")
SENTENCE = "The lamp in the hall is on."
UNIT = "kokoro.service"
DROP_IN = f"/run/systemd/system/{UNIT}.d"
CHECKOUT = "/opt/kokoro_fastapi/"
BLOCK = b'{"input": "block 60", "voice": "af_sky", "response_format": "pcm"}'
JSON = "{'Content-Type': 'application/json'}"
VOICE = f"{CHECKOUT}api/src/voices/v1_0/af_heart.pt"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, incus_lab: object) -> Iterator[SpeechLab]:
    """The lab up."""
    assert incus_lab
    with speech_lab(tmp_path_factory.mktemp("lab"), f"s{secrets.token_hex(3)}", gateway=True) as made:
        made.well("up", "--yes")
        yield made


@pytest.fixture
def restarted(lab: SpeechLab) -> Iterator[SpeechLab]:
    """The lab, whose server runs as its unit says again afterwards."""
    yield lab
    lab.inside(f"rm -rf {DROP_IN} && systemctl daemon-reload && systemctl restart {UNIT}")


def told_to(lab: SpeechLab, client: str) -> dict[str, str]:
    """The variables that this client is told to take, the key in its place."""
    words = shlex.split(lab.well("show", f"--client={client}"), comments=True)
    lines = dict(word.split("=", 1) for word in words if "=" in word)
    return {name: MASTER_KEY if value.startswith("$") else value for name, value in lines.items()}


def heard(url: str, key: str, model: str, voice: str) -> tuple[int, bytes]:
    """Status and answer where a client asks for speech."""
    asked = {"model": model, "voice": voice, "input": SENTENCE, "response_format": "wav"}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"{url}/audio/speech", json.dumps(asked).encode(), headers)  # noqa: S310  # our own
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(request, timeout=120) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def finds(lab: SpeechLab, *words: str, of: str = "") -> None:
    """``verify``, perhaps of one container, ends with 3 and says all of this."""
    done = lab.provision("verify", *([of] if of else []))
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 3, said
    assert [one for one in words if one not in said] == [], said
    assert MASTER_KEY not in said


def test_what_clients_are_told_is_heard(lab: SpeechLab) -> None:
    told = told_to(lab, "openwebui")
    assert told["AUDIO_TTS_MODEL"] == "tts"
    names = ("AUDIO_TTS_OPENAI_API_BASE_URL", "AUDIO_TTS_OPENAI_API_KEY", "AUDIO_TTS_MODEL", "AUDIO_TTS_VOICE")
    url, key, model, voice = (told[name] for name in names)
    openai = told_to(lab, "openai")
    assert (url, key) == (openai["OPENAI_BASE_URL"], openai["OPENAI_API_KEY"])
    status, sound = heard(url, key, model, voice)
    assert status == 200, sound
    assert SPEAK.heard(SPEAK.samples_of(sound), len(SENTENCE)) == ""
    assert heard(url, "sk-wrong", model, voice)[0] in (400, 401)


def test_a_second_up_changes_nothing(lab: SpeechLab) -> None:
    assert "No changes" in lab.well("up")
    assert "kokoro" in lab.well("status")


def health(lab: SpeechLab) -> str:
    """What ``status`` says of the server, which drifts in no case."""
    seen = [json.loads(line) for line in lab.well("status", lab.voice, "--json").splitlines()]
    (voice,) = [one for one in seen if one["type"] == "container"]
    assert voice["drift"] == []
    (service,) = voice["services"]
    return str(service["health"])


@pytest.fixture
def busy(lab: SpeechLab) -> Iterator[SpeechLab]:
    """The lab, whose server computes for somebody for a minute."""
    request = f"r.Request('http://127.0.0.1:8880/v1/audio/speech', {BLOCK!r}, {JSON})"
    ask = f"import urllib.request as r; r.urlopen({request}).read()"  # one that leaves is no client any more
    lab.inside(f"systemd-run --quiet --unit=client python3 -c {shlex.quote(ask)}")
    wait_until(lambda: health(lab) == "busy", timeout_s=50)
    yield lab
    lab.inside(f"systemctl stop client 2>/dev/null; systemctl restart {UNIT}")
    lab.well("up", "--yes")


def test_a_busy_server_is_healthy_and_nothing_is_done_about_it(busy: SpeechLab) -> None:
    assert "No changes" in busy.well("up", "--yes")
    said = busy.provision("verify")
    assert said.returncode == 0, said.stdout + said.stderr
    assert f"ok   {busy.voice}/kokoro: works" in said.stdout


def test_a_gateway_with_nobody_behind_it_is_a_finding(restarted: SpeechLab) -> None:
    restarted.inside(f"systemctl stop {UNIT}")
    finds(restarted, f"FAIL {restarted.voice}/kokoro: unit {UNIT} is inactive")
    finds(
        restarted, "what speaks in this lab is not heard through the gateway. tts: status 503, ", of=restarted.gateway
    )


def test_a_server_that_collects_is_a_finding(restarted: SpeechLab) -> None:
    line = "[Service]\\nEnvironment=TARGET_MIN_TOKENS=175 TARGET_MAX_TOKENS=250"
    restarted.inside(f"mkdir -p {DROP_IN} && printf '{line}' > {DROP_IN}/off.conf && systemctl daemon-reload")
    restarted.inside(f"systemctl restart {UNIT}")
    finds(restarted, "two sentences, streamed: it does not stream: 1 burst, first audio after")


def test_a_damaged_voice_is_a_finding_that_up_mends_as_it_says(lab: SpeechLab) -> None:
    lab.inside(f"printf damaged | dd of={VOICE} conv=notrunc status=none")
    said = f'with changes in {VOICE.removeprefix(CHECKOUT)}. Run "provision up --full"'
    finds(lab, said)
    lab.inside(f"systemctl restart {UNIT}")  # it reads the voice, and dies of it
    finds(lab, said)
    lab.well("up", "--full", "--yes")
    lab.well("verify")
