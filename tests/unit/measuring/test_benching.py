"""The verb ``bench``: who is asked, what for, and what an answer that is no speech becomes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from provisioner.hosts.base import Provider
from provisioner.lab.opening import Lab, open_lab
from provisioner.measuring.speech import Speaker, asks, measure, speakers_of
from provisioner.values.address import Address
from provisioner.values.errors import InputError, ProvisionError
from provisioner.values.events import Event
from provisioner.values.state import Execution

PROGRAM = "/usr/local/lib/kokoro/speak.py"
SPEAKER = Speaker(Address("voice/kokoro"), "kokoro.service", 8880, ("af_sky", "bm_fable"), PROGRAM, "USE_GPU")
FILE = """\
name: lab
containers:
  voice: { services: { kokoro: { default_voice: "af_bella(2)+af_sky", voices: [bm_fable], port: 8881 } } }
  other: { services: { kokoro: {} } }
"""


class Told:
    """A provider whose container answers ``bench`` as it is told."""

    def __init__(
        self, problem: str = "", *, gpu: bool = False, memory: str = "1048576000", cards: str = "850\n"
    ) -> None:
        self.problem, self.gpu, self.memory, self.cards = problem, gpu, memory, cards
        self.asked: list[dict[str, Any]] = []

    def execute(self, _name: str, command: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 0) -> Execution:
        """Answer."""
        assert timeout_s > 0
        said = ""
        if command[0] == "python3":
            self.asked.append(json.loads(stdin))
            chunks = [[0.5, 10], [1.0, 10]]
            said = json.dumps({"problem": self.problem, "first_s": 0.5, "last_s": 1.0, "bursts": 2, "chunks": chunks})
        elif command[0] == "sh":
            said = "true\n" if self.gpu else "false\n"
        elif command[0] == "systemctl":
            said = self.memory
        elif self.gpu:
            said = self.cards
        return Execution(0, said.encode(), b"")


def measured(told: Told, **more: Any) -> Any:
    """What was measured there, and what was said meanwhile."""
    events: list[Event] = []
    words: dict[str, Any] = {"runs": 2, "long": 300, **more}
    asked = asks(SPEAKER.voices, words.pop("long"))
    return measure(SPEAKER, cast("Provider", told), asked, emit=events.append, **words), events


def test_everything_is_asked_as_often_as_it_should_be() -> None:
    told = Told()
    bench, events = measured(told)
    assert len(told.asked) == len(events) == 10 + 1, "a first one is kept apart"
    assert {(one["port"], one["stream"], one["keep_chunks"]) for one in told.asked} == {(8880, True, True)}
    assert [len(one.runs) for one in bench.series] == [2] * 5
    assert (bench.device, bench.ram, bench.vram) == ("cpu", 1048576000, None)
    assert events[0] != events[1]


def test_a_card_s_memory_is_looked_at_where_one_computes() -> None:
    bench, _ = measured(Told(gpu=True, memory="[not set]"), runs=1, long=0)
    assert (bench.device, bench.ram, bench.vram) == ("gpu", None, 850 * 2**20)


@pytest.mark.parametrize(("cards", "mib"), [("850\n30\n", 880), ("[N/A]\n", None), ("850\n[N/A]\n", None), ("", None)])
def test_several_cards_are_added_up(cards: str, mib: int | None) -> None:
    bench, _ = measured(Told(gpu=True, cards=cards), runs=1, long=0)
    assert bench.vram == (None if mib is None else mib * 2**20)


def test_an_answer_that_is_no_speech_is_an_error() -> None:
    with pytest.raises(ProvisionError, match="Unable to measure voice/kokoro") as caught:
        measured(Told("1.80 s of silence"))
    assert caught.value.details == "1.80 s of silence"


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """A lab with two that speak."""
    file = tmp_path / "homelab.yml"
    file.write_text(FILE, encoding="utf-8")
    return open_lab(file)


def test_all_that_speak_are_measured_or_those_that_are_named(lab: Lab) -> None:
    voice, other = speakers_of(lab, ())
    assert (voice.container, voice.port, voice.voices) == ("voice", 8881, ("af_bella(2)+af_sky", "bm_fable"))
    assert (other.container, other.port, other.voices) == ("other", 8880, ("af_heart",))
    assert speakers_of(lab, ("other",)) == (other,)


def test_who_does_not_speak_cannot_be_measured(lab: Lab) -> None:
    with pytest.raises(InputError, match="Unable to measure silent: no service there speaks"):
        speakers_of(lab, ("silent", "other"))
