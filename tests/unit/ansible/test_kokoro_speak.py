"""The proof of role ``kokoro``: what is speech, what is none, and what streams."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.openai.speech import OPEN_ENDED, Speech, speaking, tone, wav
from tests.waiting import PATIENCE_S

PROGRAM = Path(__file__).resolve().parents[3] / "roles/kokoro/programs/speak.py"
TEXT = "The lamp in the hall is on."
HALF = (0.0, tone(0.9))

GOOD = {
    "a whole file": wav(tone(1.8)),
    "a stream, whose header does not know its end": wav(tone(1.8), size=OPEN_ENDED),
    "a stream with nothing for its size": wav(tone(1.8), size=0),
}
BAD = {
    "silence": (wav(bytes(86400)), "1.80 s of silence"),
    "cut at the end": (wav(tone(1.8))[:-40000], "the WAV file is cut: 46400 of 86400 bytes are there"),
    "cut in a sample": (wav(tone(1.8), size=OPEN_ENDED)[:-1], "in the middle of a sample"),
    "cut before its header could say so": (
        wav(tone(0.4), size=OPEN_ENDED),
        "27 characters in 0.40 s of audio: it is cut",
    ),
    "far too long": (wav(tone(30)), "27 characters in 30.00 s"),
    "another rate": (wav(tone(1.8, 22050), 22050), "the sample rate is 22050 and should be 24000"),
    "two channels": (wav(tone(1.8), channels=2), "of one channel of 16 bits but of 2 of 16"),
    "eight bits": (wav(tone(1.8), bits=8), "but of 1 of 8"),
    "no audio in it": (wav(b""), "there is no audio"),
    "a header alone": (wav(b"")[:12], "the WAV file holds no audio"),
    "no format": (b"RIFF\0\0\0\0WAVEdata\4\0\0\0abcd", "does not say its sample rate"),
    "a format that says nothing": (b"RIFF\0\0\0\0WAVEfmt \4\0\0\0\1\0\1\0", "the WAV file's format is cut"),
    "cut in its format": (wav(tone(1.8))[:30], "the WAV file's format is cut"),
    "no WAV": (b'{"detail": "nothing was said"}', "is no WAV file"),
    "nothing": (b"", "the answer is empty"),
}
STREAMS = {
    "two bursts": ([(0.1, tone(0.9)), (0.4, tone(0.9))], ""),
    "one burst of many pieces": (
        [(0.4, tone(0.6)), (0.0, tone(0.6)), (0.0, tone(0.6))],
        "it does not stream: 1 burst,",
    ),
    "one piece": ([(0.3, tone(1.8))], "it does not stream: 1 burst, first audio after "),
    "two late ones": ([(0.8, tone(0.9)), (0.2, tone(0.9))], "it does not stream: 2 bursts, first audio after "),
}


def told(speech: Speech, **asked: Any) -> Any:
    """What the program says of that server."""
    with speaking(speech):
        return run({**asking(speech), **asked})


def asking(speech: Speech) -> dict[str, Any]:
    """What is asked where nothing else is said."""
    words = {"input": TEXT, "voice": "af_sky", "format": "wav", "stream": False, "timeout_s": 20}
    return {"port": speech.port, **words}


@contextmanager
def one_that_is_busy(speech: Speech, seconds: float) -> Iterator[Speech]:
    """That server, which serves somebody else for so long from now on."""
    with speaking(speech):
        speech.turn.acquire(timeout=PATIENCE_S)
        end = threading.Timer(seconds, speech.turn.release)
        end.start()
        try:
            yield speech
        finally:
            end.join(PATIENCE_S)


def run(asked: dict[str, Any]) -> Any:
    """What the program says."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM)], input=json.dumps(asked), capture_output=True, text=True, check=True, timeout=120
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("audio", GOOD.values(), ids=GOOD)
def test_speech_is_speech(audio: bytes) -> None:
    speech = Speech([(0, audio)])
    answer = told(speech)
    assert answer["problem"] == ""
    assert answer["bytes"] == len(audio)
    assert speech.seen[0] == {
        "model": "kokoro",
        "input": TEXT,
        "voice": "af_sky",
        "response_format": "wav",
        "stream": False,
    }


@pytest.mark.parametrize(("audio", "problem"), BAD.values(), ids=BAD)
def test_what_is_no_speech_is_refused(audio: bytes, problem: str) -> None:
    assert problem in told(Speech([(0, audio)] if audio else []))["problem"]


@pytest.mark.parametrize(("pieces", "problem"), STREAMS.values(), ids=STREAMS)
def test_only_what_comes_early_streams(pieces: list[tuple[float, bytes]], problem: str) -> None:
    answer = told(Speech(pieces), format="pcm", stream=True, bursts=True, keep_chunks=True)
    assert answer["problem"].startswith(problem)
    assert bool(answer["problem"]) == bool(problem)
    assert answer["late"] == ("2 bursts" in problem)
    assert answer["last_s"] == answer["chunks"][-1][0]
    assert sum(size for _, size in answer["chunks"]) == answer["bytes"]


def test_one_that_serves_somebody_else_is_waited_for_and_not_accused() -> None:
    words = {"format": "pcm", "stream": True, "bursts": True}
    pieces = [(0.1, tone(0.9)), (0.4, tone(0.9))]
    with one_that_is_busy(Speech(pieces, one_at_a_time=True), 5.0) as speech:
        hasty = run({**asking(speech), **words})
        assert hasty["problem"].startswith("it does not stream: 1 burst"), "it was queueing"
        assert hasty["late"], "which is why it is asked again"
    with one_that_is_busy(Speech(pieces, one_at_a_time=True), 3.0) as speech:
        patient = run({**asking(speech), **words, "idle_s": 20})
        assert (patient["problem"], patient["late"]) == ("", False)


def test_one_that_collects_is_found_although_it_is_waited_for() -> None:
    with one_that_is_busy(Speech([(0.5, tone(1.8))], one_at_a_time=True), 1.0) as speech:
        words = {"format": "pcm", "stream": True, "bursts": True, "idle_s": 20}
        assert run({**asking(speech), **words})["problem"].startswith("it does not stream: 1 burst")


def test_one_that_stays_busy_is_not_asked() -> None:
    with speaking(Speech([(0, wav(tone(1.8)))], one_at_a_time=True)) as speech, speech.turn:
        answer = run({**asking(speech), "idle_s": 1})
        assert answer["problem"].startswith("not asked: it was busy with something else for ")
        assert (answer["status"], answer["bytes"], answer["late"]) == (0, 0, False)
        assert speech.seen == []


def test_an_answer_that_ends_early_is_told_as_that() -> None:
    assert told(Speech([HALF], cut=True), format="pcm")["problem"].startswith("the answer was cut after 43200 bytes")


@pytest.mark.parametrize("kind", ["wav", "mp3"])
def test_less_than_was_promised_is_told_as_that(kind: str) -> None:
    """As a server answers that is killed: neither a WAV file of open end nor an MP3 shows it."""
    audio = wav(tone(1.8), size=OPEN_ENDED)
    part = audio[: len(audio) * 4 // 10]
    said = told(Speech([(0, part)], length=len(audio)), format=kind)["problem"]
    assert said == f"the answer was cut after {len(part)} bytes"
    assert told(Speech([(0, audio)], length=len(audio)), format=kind)["problem"] == ""


def test_other_formats_have_to_be_something() -> None:
    assert told(Speech([(0, b"\xff\xfb")]), format="mp3")["problem"] == ""
    assert told(Speech([]), format="mp3")["problem"] == "the answer is empty"


def test_what_the_server_says_instead_of_audio_is_passed_on() -> None:
    answer = told(Speech([(0, b'{"detail": "no voice af_sky"}')], status=400))
    assert (answer["status"], answer["problem"]) == (400, 'HTTP 400: {"detail": "no voice af_sky"}')


def test_a_server_that_is_not_there_is_a_problem() -> None:
    with speaking(Speech()) as speech:
        port = speech.port
    asked = {"port": port, "input": TEXT, "voice": "af_sky", "format": "wav", "stream": False}
    assert run(asked)["problem"].startswith("ConnectionRefusedError")
