"""What ``bench`` asks, what times come to, and what it says of them."""

from __future__ import annotations

import pytest

from provisioner.measuring.speech import (
    LONGEST,
    SHORT,
    Ask,
    Bench,
    Run,
    Series,
    asks,
    bench_content,
    bench_text,
    long_text,
    run_of,
    timeline,
    verdict,
)

MIB = 2**20


def series(text: str, *runs: tuple[float, float], form: str = "mp3") -> Series:
    """Answers with these times."""
    ask = Ask(text, SHORT if text == "short" else "x" * 2000, form, "af_sky")
    return Series(ask, tuple(Run(first, last, 2, ((first, 100), (last, 50))) for first, last in runs))


CPU = Bench("slow", "cpu", (series("short", (0.6, 1.5), (0.5, 1.4), (0.7, 9.0)), series("long", (2, 200))), 1200 * MIB)
GPU = Bench("fast", "gpu", (series("short", (0.45, 1.0)), series("long", (0.3, 10))), 1900 * MIB, 850 * MIB)


def test_the_short_text_is_asked_in_all_formats_and_by_all_voices_and_the_long_one_once() -> None:
    found = [(one.text, one.format, one.voice) for one in asks(["a", "b"], 500)]
    assert found == [
        ("short", "pcm", "a"),
        ("short", "wav", "a"),
        ("short", "mp3", "a"),
        ("short", "mp3", "b"),
        ("long", "mp3", "a"),
    ]
    assert [one.text for one in asks(["a"], 0)] == ["short"] * 3


@pytest.mark.parametrize("length", [300, 2000, LONGEST])
def test_a_long_text_is_whole_sentences(length: int) -> None:
    text = long_text(length)
    assert length - 130 < len(text) <= length
    assert text.endswith(".")


def test_times_are_medians() -> None:
    one = CPU.series[0]
    assert (one.first_s, one.total_s) == (0.6, 1.5)
    assert one.characters_per_s == pytest.approx(len(SHORT) / 1.5)
    assert one.typical.last_s == 1.5


def test_what_the_program_answers_becomes_a_run() -> None:
    answer = {"first_s": 0.5, "last_s": 1, "bursts": 2, "bytes": 3, "chunks": [[0.5, 2], [1.0, 1]]}
    assert run_of(answer) == Run(0.5, 1.0, 2, ((0.5, 2), (1.0, 1)))


def test_a_card_that_is_not_worth_it_for_talks_may_be_for_long_texts() -> None:
    assert verdict([CPU, GPU]) == (
        "slow: two sentences are heard after 0.40 of the time that all of them take.",
        "fast: two sentences are heard after 0.45 of the time that all of them take.",
        "For talks and chats slow will do: on the card first audio comes 1.3 times as early as on the CPU.",
        "For long texts take fast: on the card it is done 20.0 times as early as on the CPU.",
    )
    assert len(verdict([CPU])) == 1
    assert len(verdict([CPU, Bench("fast", "gpu", GPU.series[:1])])) == 3


def test_the_table_says_all_of_it() -> None:
    lines = bench_text([CPU, GPU]).splitlines()
    assert lines[0].split() == [
        "container",
        "on",
        "text",
        "format",
        "voice",
        "first",
        "audio",
        "all",
        "of",
        "it",
        "share",
        "bursts",
        "chars/s",
    ]
    assert lines[1].split() == [
        "slow",
        "cpu",
        "short",
        f"({len(SHORT)})",
        *["mp3", "af_sky", "0.60", "s", "1.50", "s", "0.40", "2", "59"],
    ]
    assert "slow: memory 1200 MiB" in lines
    assert "fast: memory 1900 MiB, of the card 850 MiB" in lines
    assert "When audio of the short text arrived, in 1.50 s:" in lines
    content = bench_content([CPU])["benches"][0]
    assert content["series"][0]["runs"][0] == {
        "first_s": 0.6,
        "last_s": 1.5,
        "bursts": 2,
        "chunks": ((0.6, 100), (1.5, 50)),
    }


@pytest.mark.parametrize(
    ("run", "line"),
    [
        (Run(0.5, 1.0, 2, ((0.5, 1), (1.0, 1))), "." * 15 + "#" + "-" * 14 + "#" + " " * 29),
        (Run(2.0, 2.0, 1, ((2.0, 1),)), "." * 59 + "#"),
        (Run(0.0, 0.0, 0), "." * 60),
    ],
    ids=["two", "one at the end", "none"],
)
def test_the_plot_shows_when_something_came(run: Run, line: str) -> None:
    assert timeline(run, 2.0) == line
