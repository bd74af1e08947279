"""``bench --kind load``: what is asked, told, kept and judged; guidellm is played by what a real one reported."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from provisioner.cli import bench_llm
from provisioner.measuring import load
from provisioner.measuring.history import result_in
from provisioner.values.errors import PreflightError
from tests.doubles.openai.timed_engine import StandIn, serving
from tests.raising import raising
from tests.unit.cli.conftest import BENCHMARKS, World

KEY = "canary-of-a-cloud-0f3a"


class Tool:
    """Plays guidellm: what it was told, and how much longer than a real one its answers take."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.times = 1.0
        self.fails = self.some_fail = self.few = False
        self.prompts: list[str] = []

    def lines_of(
        self, _python: Path, _start: str, words: Sequence[str], folder: Path, _within_s: float
    ) -> Generator[str]:
        """One start."""
        assert KEY not in json.dumps(words)
        self.told.append(json.loads((folder / "asked.json").read_text())["spec"])
        self.prompts = (folder / "prompts.jsonl").read_text().splitlines()
        report = json.loads((BENCHMARKS / "guidellm_report.json").read_text())
        by_clients = {one["config"]["strategy"]["streams"]: one for one in report["benchmarks"]}
        chosen = [by_clients.get(number) for number in self.told[-1]["profile"]["streams"]]
        for one in filter(None, chosen):
            for request in one["requests"]["successful"]:
                request["time_to_first_token_ms"] *= self.times
                request["request_latency"] *= self.times
            if self.some_fail:
                one["requests"]["errored"] = [{"info": {"error": "HTTP 503: too many"}}] * 7
            if self.few:
                del one["requests"]["successful"][9:]
            if self.fails:
                error = {"info": {"error": "HTTP 503: too many"}}
                one["requests"] = {"successful": [], "errored": [error]}
        (folder / "report.json").write_text(json.dumps({"benchmarks": [one for one in chosen if one]}))
        yield ""


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Tool:
    played = Tool()
    monkeypatch.setattr(load, "python_of", lambda _tool, _emit: Path("python"))
    monkeypatch.setattr(load, "lines_of", played.lines_of)
    return played


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """A service that nobody here runs, and the key to it."""
    monkeypatch.setenv("PROVISION_SECRET_CLOUD_KEY", KEY)
    with serving(StandIn(key=KEY)) as stand_in:
        yield stand_in


def bench(cloud: StandIn, *more: str) -> tuple[str, ...]:
    asked = ("bench", "--kind", "load", "--url", cloud.url, "--model", "m", "--key", "cloud_key", "--yes")
    return (*asked, "--tokens", "128", "16", "--clients", "4,1", *more)


def test_each_number_of_clients_has_its_line_and_is_kept(
    world: World, cloud: StandIn, tool: Tool, tmp_path: Path
) -> None:
    answer = world.done(*bench(cloud))
    assert answer.printed == world.snapshot
    assert [spec["profile"]["streams"] for spec in tool.told] == [[1], [4]], "each with texts of its own"
    assert {json.dumps(spec["constraints"]) for spec in tool.told} == {'[{"kind": "max_duration", "seconds": 135.0}]'}
    assert len({len(json.loads(line)["prompt"].split()) for line in tool.prompts}) == 1
    words = len(json.loads(tool.prompts[0])["prompt"].split())
    assert words * cloud.per_word + 9 == pytest.approx(128, abs=2)
    (file,) = (tmp_path / "state").rglob("benchmarks/_url.127.0.0.1*.jsonl")
    kept = [result_in(line) for line in file.read_text().splitlines()]
    assert [(one.kind, one.setting.options["c"]) for one in kept] == [("load", "1"), ("load", "4")]
    assert KEY not in answer.out + answer.err + json.dumps(tool.told) + file.read_text()


def test_goodput_is_what_is_good(world: World, cloud: StandIn, tool: Tool) -> None:
    (result,) = world.command(*bench(cloud, "--within", "0.1", "0.1", "--json")).of("result")
    assert [level["good"] for level in result["levels"]] == [0, 0], "the first token came after 0.2 s"
    (result,) = world.command(*bench(cloud, "--within", "1", "0.1", "--json")).of("result")
    assert [level["good"] for level in result["levels"]] == [1, 1]
    assert [level["good_per_s"] for level in result["levels"]] == [pytest.approx(9 / 5), pytest.approx(36 / 5)]
    assert len(tool.told) == 4


def test_where_nobody_is_answered_nothing_is_kept(world: World, cloud: StandIn, tool: Tool, tmp_path: Path) -> None:
    tool.fails = True
    assert world.command(*bench(cloud)).ended(3) == world.snapshot
    assert not list((tmp_path / "state").rglob("benchmarks/*"))


def test_a_prompt_of_that_length_is_asked_once_before(world: World, cloud: StandIn, tool: Tool) -> None:
    """The tool itself hangs where all requests fail."""
    cloud.ceiling = 100
    assert world.command(*bench(cloud)).ended(3) == world.snapshot
    assert tool.told == []


@pytest.mark.parametrize("word", ["--gate", "--accept"])
def test_fast_answers_beside_failed_ones_are_no_pass(
    world: World, cloud: StandIn, tool: Tool, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.setattr(bench_llm, "check_accepted", lambda *_: None)
    tool.some_fail = True
    assert world.command(*bench(cloud, word)).ended(3) == world.snapshot
    assert world.command(*bench(cloud)).code == 0, "it is told, and nobody is judged"


@pytest.mark.parametrize("word", ["--gate", "--accept"])
def test_few_answers_judge_nothing(
    world: World, cloud: StandIn, tool: Tool, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.setattr(bench_llm, "check_accepted", lambda *_: None)
    tool.few = True
    assert world.command(*bench(cloud, word)).ended(4) == world.snapshot


def test_a_report_of_other_clients_is_none(world: World, cloud: StandIn, tool: Tool) -> None:
    answer = world.command(*bench(cloud, "--clients", "1,3"))
    assert answer.code != 0
    assert answer.printed == world.snapshot
    assert len(tool.told) == 2


@pytest.mark.usefixtures("tool")
def test_nothing_is_fetched_or_asked_without_a_yes(
    world: World, cloud: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_llm, "is_made", lambda _tool: False)
    monkeypatch.setattr(load, "python_of", raising(PreflightError("fetched without a question")))
    assert world.command(*[word for word in bench(cloud) if word != "--yes"]).ended(4) == world.snapshot
    assert cloud.asked == []


def test_an_upstream_cannot_be_gated_as_nobody_tells_its_model(world: World, cloud: StandIn, tool: Tool) -> None:
    four = bench(cloud, "--clients", "4")
    assert world.command(*four, "--gate").code == 4
    assert world.command(*four, "--accept").code == 0
    assert "nobody tells which one it is" in world.command(*four, "--gate").ended(4)
    assert len(tool.told) == 1, "it is known before anything is asked"


@pytest.mark.parametrize(
    "more",
    [
        *("--clients 0", "--clients 1,x", "--clients 1000", f"--clients {','.join(map(str, range(1, 30)))}"),
        *("--within 0 1", "--depth 5", "--trials 10", "--sweep batch=1", "--refuse", "--chunks 4"),
    ],
)
def test_what_cannot_be_asked_is_refused(world: World, cloud: StandIn, tool: Tool, more: str) -> None:
    answer = world.command(*bench(cloud, *more.split()))
    assert answer.code == 64, answer.out + answer.err
    assert tool.told == []
