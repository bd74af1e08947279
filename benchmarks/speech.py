"""Two sentences and a long text, spoken on the CPU: first audio beside the last one, in three formats."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.labs import Labs
from benchmarks.measuring import Row, say
from provisioner.hosts import provider_for
from provisioner.hosts.base import Provider
from provisioner.lab.opening import open_lab
from provisioner.measuring.speech import FORMATS, Ask, Run, Speaker, long_text, measure, speakers_of
from tests.speech_lab import speech_lab

NAME = "bench-speech"
FIRST_SHARE = "first / last audio"
TWO = (
    "The kettle has boiled, the bread is still warm, and there is room for everybody at the long table. "
    "When you have eaten, take the small path behind the house, past the old pear tree and the wall that fell down "
    "last winter, and tell whoever sits by the water that a boat waits till the wind has turned."
)
"""300 characters; the first sentence is the shorter one, as in a talk."""
LONG = 1000
ROUNDS, LONG_ROUNDS = 3, 1
"""An answer takes a minute, and several."""


def rows(_labs: Labs, rounds: int) -> list[Row]:
    """Seconds and shares of each text and format, all formats in turns."""
    with tempfile.TemporaryDirectory(prefix=f"{NAME}-") as place, speech_lab(Path(place), NAME) as lab:
        say("speech: bringing up a service that speaks")
        lab.well("up", "--yes")
        (speaker,) = speakers_of(open_lab(lab.file), ())
        provider = provider_for("local", "incus")
        two = spoken(speaker, provider, TWO, min(rounds, ROUNDS))
        long = spoken(speaker, provider, long_text(LONG), min(rounds, LONG_ROUNDS))
    return [*rows_of("two sentences", two), *rows_of(f"{LONG} characters", long)]


def spoken(speaker: Speaker, provider: Provider, words: str, rounds: int) -> dict[str, list[Run]]:
    """What ``bench`` measures of the text, by format, round by round; all formats have their turn in each."""
    taken: dict[str, list[Run]] = {form: [] for form in FORMATS}
    for _ in range(rounds):
        for form, runs in taken.items():
            ask = Ask("benchmark", words, form, speaker.voices[0])
            (series,) = measure(speaker, provider, (ask,), runs=1, emit=lambda _: None, is_warm=True).series
            say(f"speech: {len(words)} characters, {form}: {series.first_s:.2f} of {series.total_s:.2f} s")
            runs.extend(series.runs)
    return taken


def rows_of(text: str, taken: dict[str, list[Run]]) -> list[Row]:
    """Three rows for each format."""
    return [row for form, runs in taken.items() for row in _rows(f"speech, {text}, {form}", runs)]


def _rows(what: str, runs: Sequence[Run]) -> list[Row]:
    return [
        Row(f"{what}: first audio", [one.first_s for one in runs], "s"),
        Row(f"{what}: last audio", [one.last_s for one in runs], "s"),
        Row(f"{what}: {FIRST_SHARE}", [one.first_s / one.last_s for one in runs], "x"),
    ]
