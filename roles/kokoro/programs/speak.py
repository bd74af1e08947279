"""Has a text spoken, tells how it came: ``speak.py < JSON`` of ``port``, ``input``, ``voice``, ``format``, ``stream``.

With ``idle_s`` the server is to be idle before: one that computes for others answers late, and all at once, whatever it
is; where it stays busy for so many seconds it is not asked.

Answers as JSON: ``status``, ``chunks`` (seconds and bytes of each piece as it came, with ``keep_chunks``), ``first_s``,
``last_s``, ``bursts``, ``bytes``, ``late`` (it came in bursts, and late, or somebody else was served first), and what
is wrong with the audio (``problem``, empty where it is speech). With ``bursts`` it has to stream, too. Needs nothing
but Python.
"""

from __future__ import annotations

import array
import http.client
import json
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

RATE = 24000
FORMATS = {"wav": "wav", "pcm": "pcm"}
"""Those that are judged by their samples; of others only that there is something."""
OPEN_ENDED = (0, 0xFFFFFFFF)
"""The size that a header of a stream has whose end was not known when it was written."""
SILENCE = 200
"""Of 32767: what a mean amplitude of speech is above, and that of a file of nothing is not."""
FASTEST, SLOWEST = 40.0, 4.0
"""Characters of text in a second of speech, further than any reader goes."""
LEAST_GAP_S, GAP_SHARE = 0.005, 0.1
BURSTS, FIRST_SHARE = 2, 0.6
PIECE = 1 << 16
IDLE_ANSWER_S, IDLE_POLL_S = 2.0, 0.5
"""An idle server says at once how it does; one that computes says nothing until it is done."""
QUEUED_S = 1.0
"""A stream's head is sent before its first word is made, unless somebody else is served at that moment."""
FORMAT_SIZE = 16
"""Bytes of the chunk of a WAV file that says its format."""

Chunk = tuple[float, int]


def main() -> None:
    """Ask, measure and judge."""
    asked = json.load(sys.stdin)
    busy_s = waited_for_idle(asked) if "idle_s" in asked else None
    answer = ask(asked) if busy_s is None else not_asked(busy_s)
    body, head_s = answer.pop("body"), answer.pop("head_s")
    told = told_of(answer.pop("chunks"), keep=asked.get("keep_chunks", False))
    told["late"] = told["late"] or bool(asked.get("bursts") and told["bytes"] and head_s > QUEUED_S)
    sys.stdout.write(json.dumps({**answer, **told, "problem": answer["problem"] or judged(asked, body, told)}))


def waited_for_idle(asked: Mapping[str, Any]) -> float | None:
    """None once the server answers at once; the seconds it was waited for where it does not."""
    began = time.monotonic()
    while not is_idle(asked):
        if time.monotonic() - began > asked["idle_s"]:
            return time.monotonic() - began
        time.sleep(IDLE_POLL_S)
    return None


def is_idle(asked: Mapping[str, Any]) -> bool:
    """Whether it says how it does without having to end something else first."""
    connection = http.client.HTTPConnection(asked.get("host", "127.0.0.1"), asked["port"], timeout=IDLE_ANSWER_S)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def not_asked(busy_s: float) -> dict[str, Any]:
    """The answer of a server that was busy all the time."""
    problem = f"not asked: it was busy with something else for {busy_s:.0f} s"
    return {"status": 0, "chunks": [], "body": b"", "problem": problem, "head_s": 0.0}


def ask(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What the server answered, each piece with its time."""
    connection = http.client.HTTPConnection(
        asked.get("host", "127.0.0.1"), asked["port"], timeout=asked.get("timeout_s", 300)
    )
    chunks: list[Chunk] = []
    body, status, problem, head_s = bytearray(), 0, "", 0.0
    began = time.perf_counter()
    try:
        connection.request("POST", "/v1/audio/speech", request_of(asked), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        status, head_s = answer.status, time.perf_counter() - began
        while piece := answer.read1(PIECE):
            chunks.append((time.perf_counter() - began, len(piece)))
            body += piece
        if answer.length:  # read1 ends with nothing said where a connection does before the length that was promised
            problem = f"the answer was cut after {len(body)} bytes"
    except http.client.IncompleteRead as error:
        problem = f"the answer was cut after {len(body) + len(error.partial)} bytes"
    except (OSError, http.client.HTTPException) as error:
        problem = f"{type(error).__name__}: {error}"
    finally:
        connection.close()
    if status != http.client.OK and not problem:
        problem = f"HTTP {status}: {bytes(body[:600]).decode(errors='replace')}"
    return {"status": status, "chunks": chunks, "body": bytes(body), "problem": problem, "head_s": head_s}


def request_of(asked: Mapping[str, Any]) -> str:
    """The same in OpenAI's words."""
    fields = {name: asked[name] for name in ("input", "voice", "stream")}
    return json.dumps({"model": "kokoro", "response_format": asked["format"], **fields})


def told_of(chunks: Sequence[Chunk], *, keep: bool) -> dict[str, Any]:
    """When it began, when it was done, and in how many bursts it came."""
    last = chunks[-1][0] if chunks else 0.0
    gap = max(LEAST_GAP_S, GAP_SHARE * last)
    pauses = sum(later[0] - earlier[0] > gap for earlier, later in pairwise(chunks))
    told = {
        "first_s": round(chunks[0][0], 4) if chunks else 0.0,
        "last_s": round(last, 4),
        "bursts": pauses + 1 if chunks else 0,
        "bytes": sum(size for _, size in chunks),
        "late": pauses > 0 and chunks[0][0] >= FIRST_SHARE * last,
    }
    return {**told, "chunks": [[round(at, 4), size] for at, size in chunks]} if keep else told


def judged(asked: Mapping[str, Any], body: bytes, told: Mapping[str, Any]) -> str:
    """What is wrong with the audio, or with the way it came; empty where nothing is."""
    kind = FORMATS.get(asked["format"])
    if not body:
        return "the answer is empty"
    if kind:
        try:
            samples = samples_of(body) if kind == "wav" else pcm(body)
        except ValueError as error:
            return str(error)
        if problem := heard(samples, len(asked["input"])):
            return problem
    if asked.get("bursts") and (told["bursts"] < BURSTS or told["first_s"] >= FIRST_SHARE * told["last_s"]):
        came = f"{told['bursts']} burst{'' if told['bursts'] == 1 else 's'}, first audio after {told['first_s']:.2f} s"
        return f"it does not stream: {came} of {told['last_s']:.2f} s, which is to be less than {FIRST_SHARE} of it"
    return ""


def samples_of(wav: bytes) -> array.array[int]:
    """The samples of a WAV file. Raises ``ValueError`` for one that is none, is cut, or has another rate."""
    if wav[:4] != b"RIFF" or wav[8:12] != b"WAVE":
        raise ValueError(f"the answer is no WAV file, it begins with {wav[:12]!r}")
    at, rate = 12, 0
    while at + 8 <= len(wav):
        name, size = wav[at : at + 4], struct.unpack_from("<I", wav, at + 4)[0]
        at += 8
        if name == b"fmt ":
            if size < FORMAT_SIZE or at + FORMAT_SIZE > len(wav):
                raise ValueError("the WAV file's format is cut")
            kind, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", wav, at)
            if (kind, channels, bits) != (1, 1, 16):
                raise ValueError(f"the WAV file is not of one channel of 16 bits but of {channels} of {bits}")
            if rate != RATE:
                raise ValueError(f"the sample rate is {rate} and should be {RATE}")
        if name == b"data":
            if not rate:
                raise ValueError("the WAV file does not say its sample rate")
            rest = wav[at:] if size in OPEN_ENDED else wav[at : at + size]
            if size not in OPEN_ENDED and len(rest) < size:
                raise ValueError(f"the WAV file is cut: {len(rest)} of {size} bytes are there")
            return pcm(rest)
        at += size + size % 2
    raise ValueError("the WAV file holds no audio")


def pcm(data: bytes) -> array.array[int]:
    """Samples of 16 bits. Raises ``ValueError`` where half of one is missing."""
    if len(data) % 2:
        raise ValueError(f"the audio is cut in the middle of a sample: {len(data)} bytes")
    samples = array.array("h", data)
    if sys.byteorder == "big":
        samples.byteswap()
    return samples


def heard(samples: Sequence[int], characters: int) -> str:
    """What keeps the samples from being speech of a text of so many characters; empty where nothing does."""
    seconds = len(samples) / RATE
    if not seconds:
        return "there is no audio"
    if sum(map(abs, samples)) / len(samples) < SILENCE:
        return f"{seconds:.2f} s of silence"
    if not characters / FASTEST <= seconds <= max(1.0, characters / SLOWEST):
        return f"{characters} characters in {seconds:.2f} s of audio: it is cut, or of another sample rate"
    return ""


if __name__ == "__main__":
    main()
