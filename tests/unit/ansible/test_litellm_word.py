"""The word that role ``litellm`` has said through the gateway: what is told of each answer."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.openai.speech import Speech, speaking
from tests.scenario_programs import module_at

PROGRAM = module_at(Path(__file__).resolve().parents[3] / "roles/litellm/programs/word.py")


def told(port: int) -> Any:
    """What the program tells of the gateway at that port."""
    asked = {"key": "sk-canary", "model": "tts", "voice": "af_sky", "timeout_s": 5}
    return PROGRAM.told({**asked, "url": f"http://127.0.0.1:{port}"})


@pytest.mark.parametrize(
    ("speech", "answer"),
    [
        (Speech([(0.0, b"audio"), (0.05, b"more")]), {"status": 200, "bytes": 9, "said": ""}),
        (Speech(), {"status": 200, "bytes": 0, "said": ""}),
        (Speech([(0.0, b"x" * 999)], status=500), {"status": 500, "bytes": 0, "said": "x" * 300}),
        (Speech([(0.0, b"audio")], cut=True), {"status": 0, "bytes": 0}),
    ],
    ids=["speech", "nothing", "an error", "cut"],
)
def test_an_answer_is_told_as_it_was(speech: Speech, answer: dict[str, Any]) -> None:
    with speaking(speech):
        found = told(speech.port)
    assert {name: found[name] for name in answer} == answer
    assert speech.seen == [{"model": "tts", "input": "Hello.", "voice": "af_sky", "response_format": "mp3"}]


def test_nobody_is_no_answer() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        found = told(taken.getsockname()[1])
    assert (found["status"], found["bytes"]) == (0, 0)
    assert "refused" in found["said"]
