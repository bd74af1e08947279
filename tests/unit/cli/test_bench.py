"""``bench`` on a host in memory: the table, the picture, and what is refused before anything is measured."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from provisioner.hosts.fake import Container
from provisioner.services.kokoro import SPEAKER
from provisioner.values.state import Execution, Instance
from tests.unit.cli.conftest import World
from tests.unit.cli.test_bench_llm import kept

FILE = """\
name: homelab
hosts: { box: { incus: local } }
containers:
  voice: { services: { kokoro: {} } }
"""
CHUNKS = [[0.5, 100], [1.0, 100]]
SLOW = [1.0]
"""Seconds that an answer takes."""
TEN = ("bench", "--trials", "10", "--long=0")


@pytest.fixture
def asked(world: World, lab: Path) -> list[Sequence[str]]:
    """What is run where a service speaks: a container that runs, and answers."""
    ran: list[Sequence[str]] = []
    inside = world.host.programs["python3"]

    def speaks(container: Container, command: Sequence[str], stdin: bytes, env: Mapping[str, str]) -> Execution:
        return (answer if SPEAKER in command else inside)(container, command, stdin, env)

    def answer(_container: Container, command: Sequence[str], _stdin: bytes, _env: Mapping[str, str]) -> Execution:
        ran.append(command)
        slow = SLOW[0] * (1 + len(ran) % 5 / 1000)
        told = {"problem": "", "first_s": slow / 2, "last_s": slow, "bursts": 2, "chunks": CHUNKS}
        return Execution(0, {"python3": json.dumps(told), "sh": "false"}.get(command[0], "1048576").encode(), b"")

    SLOW[0] = 1.0
    world.host.programs |= {"python3": speaks, "sh": answer, "systemctl": answer}
    lab.write_text(FILE)
    world.host.start(world.host.create(Instance("voice", "box", "homelab", "debian/12")))
    return ran


def test_the_table_is_printed_and_the_picture_is_written(world: World, lab: Path, asked: list[Sequence[str]]) -> None:
    assert world.command("bench", "--runs=1", "--long=0", "--plot", "speech.svg").ended(0) == world.snapshot
    assert sum(SPEAKER in one for one in asked) == 1 + 3
    root = ET.parse(lab.parent / "speech.svg").getroot()  # noqa: S314  # our own file
    assert len(list(root.iter("{http://www.w3.org/2000/svg}circle"))) == 3 * len(CHUNKS)


@pytest.mark.usefixtures("asked")
def test_json_names_the_picture(world: World) -> None:
    (result,) = world.command("bench", "--runs=1", "--long=300", "--plot=speech.svg", "--json").of("result")
    assert (result["kind"], result["file"]) == ("tts", "speech.svg")
    assert [one["text"] for one in result["benches"][0]["series"]] == ["short", "short", "short", "long"]


def test_a_picture_without_a_place_is_refused_before_anything_is_measured(
    world: World, lab: Path, asked: list[Sequence[str]]
) -> None:
    assert world.command("bench", "--plot", "no/such/folder.svg").ended(64) == world.snapshot
    assert asked == []
    (lab.parent / "folder").mkdir()
    assert (world.command("bench", "--plot", "folder").code, asked) == (64, [])
    assert list((lab.parent / "folder").iterdir()) == []


@pytest.mark.usefixtures("asked")
def test_every_answer_is_kept_with_what_it_was_measured_on(world: World, lab: Path) -> None:
    world.card = "NVIDIA H100"
    assert world.command("bench", "--runs=2", "--long=300").code == 0
    (result,) = kept(lab.parent, "voice.kokoro")
    setting = result.setting
    assert (result.kind, result.service, setting.host) == ("tts", "voice/kokoro", "box")
    assert (setting.build, setting.model, setting.processor) == ("b" * 64, "e" * 64, "EPYC, 2 of them")
    assert (setting.card, setting.driver) == ("", ""), "it computes on the CPU, whatever card is there"
    assert setting.options["short"] == "89"
    assert 200 < int(setting.options["long"]) <= 300
    names = [series.name for series in result.series]
    assert names[:3] == [f"{word} @ short pcm af_heart" for word in ("first audio", "all audio", "characters")]
    assert names[-1] == "characters @ long mp3 af_heart"
    assert len(names) == 4 * 3
    first, whole, rate = result.series[:3]
    assert [len(one.trials) for one in (first, whole, rate)] == [2, 2, 2]
    assert (first.unit, whole.unit, rate.unit) == ("s", "s", "characters/s")
    assert rate.values == pytest.approx([89 / value for value in whole.values])
    assert {trial.waited for trial in first.trials} == {0.25}
    assert result.cold.keys() == {"first audio", "all audio"}


def test_results_are_listed_and_held_against_each_other(world: World, asked: list[Sequence[str]]) -> None:
    for seconds in (1.0, 2.0):
        SLOW[0] = seconds
        assert world.command(*TEN).code == 0
    measured = len(asked)
    shown = world.command("bench", "voice", "--history")
    assert (shown.code, shown.out.count("first audio @ short mp3 af_heart")) == (0, 2), shown.err
    assert world.command("bench", "voice", "--compare", "1", "last").ended(0) == world.snapshot
    assert len(asked) == measured > 0


@pytest.mark.usefixtures("asked")
def test_the_gate_ends_with_3_where_it_speaks_slower(world: World) -> None:
    refused = world.command(*TEN, "--gate")
    assert refused.code == 4
    assert refused.printed == world.snapshot
    assert world.command(*TEN, "--accept").code == 0
    assert world.command(*TEN, "--gate").code == 0
    SLOW[0] = 1.2
    slower = world.command(*TEN, "--gate", "--json")
    assert slower.code == 3
    (result,) = slower.of("result")
    assert {one["worse"] for one in result["compared"]} == {True}
    assert [one["container"] for one in result["benches"]] == ["voice"]
    assert world.command(*TEN, "--gate", "--threshold", "50").code == 0
    longer = world.command("bench", "--trials=10", "--long=300", "--gate")
    assert (longer.code, longer.printed) == (4, refused.printed)
    world.model = "d" * 64
    other = world.command(*TEN, "--gate")
    assert (other.code, f"model: {'e' * 64} and {'d' * 64}" in other.err) == (4, True)


@pytest.mark.parametrize("words", [("--gate",), ("--accept",), ("--gate", "--runs=9"), ("--accept", "--trials=9")])
def test_fewer_than_ten_answers_judge_nothing(world: World, asked: list[Sequence[str]], words: tuple[str, ...]) -> None:
    assert world.command("bench", *words).ended(64) == world.snapshot
    assert asked == []


@pytest.mark.usefixtures("asked")
def test_runs_and_trials_are_not_both_taken(world: World) -> None:
    assert world.command("bench", "--runs=3", "--trials=10").code == 64


@pytest.mark.usefixtures("asked")
def test_each_of_several_keeps_and_is_judged_by_its_own(world: World, lab: Path) -> None:
    lab.write_text(FILE.replace("{ kokoro: {} } }", "{ kokoro: {} } }\n  other: { services: { kokoro: {} } }"))
    world.host.start(world.host.create(Instance("other", "box", "homelab", "debian/12")))
    assert world.command(*TEN, "voice", "--accept").code == 0
    assert world.command(*TEN, "voice", "other", "--gate").ended(4) == world.snapshot
    assert world.command(*TEN, "voice", "other", "--accept").code == 0
    judged = world.done(*TEN, "voice", "other", "--gate", "--json")
    (result,) = judged.of("result")
    assert [one["service"] for one in result["results"]] == ["voice/kokoro", "other/kokoro"]
    assert len(result["compared"]) == 2 * 3 * 3
    assert [len(kept(lab.parent, f"{one}.kokoro")) for one in ("voice", "other")] == [3, 2]
    assert {one.service for one in kept(lab.parent, "other.kokoro")} == {"other/kokoro"}


@pytest.mark.usefixtures("asked")
def test_requests_of_others_meanwhile_are_told(world: World) -> None:
    world.strangers = [7]
    assert world.command("bench", "--runs=2", "--long=0").ended(0) == world.snapshot


@pytest.mark.usefixtures("asked")
def test_the_page_of_the_lab_shows_them_over_time(world: World, lab: Path) -> None:
    for seconds in (1.0, 2.0):
        SLOW[0] = seconds
        assert world.command("bench", "--runs=2", "--long=0").code == 0
    assert world.command("report", "lab.html").code == 0
    page = (lab.parent / "lab.html").read_text(encoding="utf-8")
    assert "bench --kind tts" in page
    assert "first audio @ short mp3 af_heart: from 0.50 to 1.00 s in 2 measurements" in page
    assert "characters @ short wav af_heart: from " in page
