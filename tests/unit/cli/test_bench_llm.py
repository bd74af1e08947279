"""``bench --kind llm``: what is asked, what counts, what is kept and judged; llama-benchy is played here.

What a real one says is held against the same server in ``tests/integration/test_llm_bench.py``.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Generator, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from provisioner.measuring import endpoints, llm
from provisioner.measuring.endpoints import filler
from provisioner.measuring.history import Result, result_in
from provisioner.measuring.llm import SCHEMA
from tests.doubles.openai.timed_engine import StandIn, serving
from tests.snapshots import case_name
from tests.unit.cli.conftest import ENGINE_KEY, World

KEY = "canary-of-a-cloud-0f3a"
TRIALS = ("--yes", "--trials", "10", "--tokens", "256", "16")


@pytest.fixture
def cloud() -> Iterator[StandIn]:
    """A service that nobody here runs."""
    with serving(StandIn(key=KEY, first_s=0.01, step_s=0.001)) as stand_in:
        yield stand_in


@pytest.fixture
def cloud_of(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A lab that has the key of the cloud."""
    monkeypatch.setenv("PROVISION_SECRET_CLOUD_KEY", KEY)
    return world


@pytest.fixture(autouse=True)
def tool(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Plays llama-benchy: asks as it does, and says what it says; the words of each start."""
    started: list[list[str]] = []

    def lines_of(_python: Path, _start: str, words: Sequence[str], folder: Path, _within_s: float) -> Generator[str]:
        started.append(list(words))
        assert len((next(folder.glob(".cache/llama-benchy/*.txt"))).read_text().split()) >= 20_000
        yield from played(words)

    monkeypatch.setattr(llm, "python_of", lambda _tool, _emit: Path("python"))
    monkeypatch.setattr(llm, "lines_of", lines_of)
    monkeypatch.setattr(llm, "SPREAD_S", 0.0)
    return started


def played(words: Sequence[str]) -> Iterator[str]:
    """The progress of one start."""
    told = dict(pairwise(words))
    depths = words[words.index("--depth") + 1 : words.index("--no-cache")]
    number = 0
    yield line("header")
    for depth in depths:
        for run in range(int(told["--runs"])):
            counts = {"context_size": int(depth), "prompt_size": int(told["--pp"]), "response_size": int(told["--tg"])}
            yield line("request_start", request_id=number, run_index=run, **counts)
            yield from asked(told, number, counts, exact="--exact-tg" in words)
            number += 1
    yield line("bench_complete", status="ok")


def asked(told: dict[str, str], number: int, counts: dict[str, int], *, exact: bool) -> Iterator[str]:
    parts = urlsplit(told["--base-url"])
    messages = [{"role": "user", "content": filler(counts["prompt_size"] - 1, number) + " 5c1f-identifier"}]
    if counts["context_size"]:
        messages.insert(0, {"role": "system", "content": filler(counts["context_size"], number)})
    body = {"model": told["--model"], "messages": messages, "max_tokens": counts["response_size"], "stream": True}
    body |= {"cache_prompt": False, **({"ignore_eos": True} if exact else {})}
    there = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    began, first_s, pieces, usage, error = time.perf_counter(), 0.0, 0, {"prompt_tokens": 0, "completion_tokens": 0}, ""
    there.request("POST", f"{parts.path}/chat/completions", json.dumps(body))
    answer = there.getresponse()
    try:
        if answer.status != 200:
            error = f"HTTP {answer.status}: {answer.read().decode()}"
        for event in () if error else answer:
            said = event.decode().removeprefix("data: ").strip()
            value = json.loads(said) if said.startswith("{") else {"choices": []}
            if value["choices"]:
                first_s = first_s or time.perf_counter() - began
                pieces += 1
                if pieces == 1:
                    yield line("request_first_token", request_id=number, ttft_s=first_s)
                yield line("tokens", request_id=number, count=1, snippet="word ")
            usage = value.get("usage", usage)
    except http.client.HTTPException as broken:
        error = repr(broken)
    there.close()
    rest_s = time.perf_counter() - began - first_s if first_s else 0.0
    totals = {"total_tokens": usage["completion_tokens"], "prompt_tokens": usage["prompt_tokens"]}
    yield line("request_end", request_id=number, decode_seconds=rest_s, error=error, **totals)


def line(kind: str, **fields: Any) -> str:
    return json.dumps({"schema": SCHEMA, "type": kind, "ts": 0.0, **fields})


def kept(folder: Path, pattern: str) -> list[Result]:
    """The results that were kept."""
    (file,) = (folder / "state").rglob(f"benchmarks/{pattern}.jsonl")
    return [result_in(one) for one in file.read_text().splitlines()]


def url_words(cloud: StandIn) -> tuple[str, ...]:
    return ("bench", "--kind", "llm", "--url", cloud.url, "--model", "vendor/m", "--key", "cloud_key", *TRIALS)


def test_any_address_is_measured_with_its_key(
    world: World, cloud: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: list[list[str]]
) -> None:
    monkeypatch.setenv("PROVISION_SECRET_CLOUD_KEY", KEY)
    answer = world.done(*url_words(cloud), "--depth", "0,1000")
    assert cloud.keys == {f"Bearer {KEY}"}
    one, other = kept(tmp_path, "_url.127.0.0.1*")
    assert [series.name for series in one.series] == ["first token", "pp256", "tg16"]
    assert [series.name for series in other.series] == [f"{name} @ d1000" for name in ("first token", "pp256", "tg16")]
    assert {len(series.trials) for result in (one, other) for series in result.series} == {10}
    assert one.cold["first token"] >= 0.01
    assert other.setting.options == {"model": "vendor/m", "p": "256", "n": "16", "d": "1000"}
    assert KEY not in answer.out + answer.err + json.dumps(tool)
    assert "The first time at depth 1000: first token" in answer.out
    fields = {name for question in cloud.asked for name in question}
    assert not fields & endpoints.ONLY_OURS, "others refuse what they do not know"
    prompts = [cloud.tokens_of(question) for question in cloud.asked if question.get("stream")][2:]
    assert {round(tokens / 100) for tokens in prompts} == {3, 13}, "256 tokens, and 1256"


def test_an_upstream_of_the_file_is_asked_for_what_it_may_cost(world: World, cloud: StandIn, tmp_path: Path) -> None:
    file = tmp_path / "homelab.yml"
    upstream = f'upstreams:\n  far: {{ model: "openai/m", base_url: "{cloud.url}", api_key: !secret engine_key }}\n'
    file.write_text(file.read_text() + upstream)
    cloud.key = ENGINE_KEY
    assert world.command("bench", "far", "--kind", "llm").ended(4) == world.snapshot
    assert cloud.asked == []
    world.done("bench", "far", "--kind", "llm", "--yes", "--tokens", "256", "16")
    (result,) = kept(tmp_path, "_upstream.far")
    assert len(result.series[0].trials) == 10, "as few as judge anything, where that may cost money"
    assert world.command("bench", "far", "--history").code == 0
    assert world.command("bench", "far", "--kind", "llm", "--model", "x", *TRIALS).code == 64


@pytest.mark.parametrize(
    "fault",
    [{"key": "another"}, {"counts": False}, {"ceiling": 200}, {"keeps": 200}, {"says": 0}, {"breaks": True}],
    ids=case_name,
)
def test_what_does_not_answer_as_asked_is_told_and_not_kept(
    cloud_of: World, cloud: StandIn, tmp_path: Path, fault: dict[str, Any]
) -> None:
    for name, value in fault.items():
        setattr(cloud, name, value)
    answer = cloud_of.command(*url_words(cloud))
    assert answer.code == 3, answer.err
    assert answer.printed == cloud_of.snapshot
    assert KEY not in answer.out + answer.err
    assert not list(tmp_path.rglob("benchmarks/*"))


def test_a_burst_is_no_stream(world: World, cloud: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVISION_SECRET_CLOUD_KEY", KEY)
    cloud.burst = True
    answer = world.done(*url_words(cloud))
    assert "Not streaming: answers come in one piece." in answer.out
    (result,) = kept(tmp_path, "_url.127.0.0.1*")
    assert [(series.name, series.unit) for series in result.series] == [("whole answer", "s")]


def test_what_was_measured_of_an_address_is_shown(cloud_of: World, cloud: StandIn, tmp_path: Path) -> None:
    words = url_words(cloud)
    for _ in range(2):
        assert cloud_of.command(*words).code == 0
    shown = cloud_of.command("bench", "--kind", "llm", "--url", cloud.url, "--history")
    assert (shown.code, shown.out.count("llm")) == (0, 2), shown.err
    compared = cloud_of.done("bench", "--kind", "llm", "--url", cloud.url, "--compare", "1", "2")
    assert "first token" in compared.out
    assert len(kept(tmp_path, "_url.127.0.0.1*")) == 2


def test_nobody_listens_there(world: World, cloud: StandIn) -> None:
    words = [
        word.replace(cloud.url, "http://127.0.0.1:1/v1")
        for word in url_words(cloud)
        if word not in ("--key", "cloud_key")
    ]
    assert world.command(*words).ended(4) == world.snapshot


@pytest.mark.parametrize(
    "line",
    [
        *("--url ftp://x/v1 --model m", "--url http://me:secret@x/v1 --model m", "--url http://x/v1?key=1 --model m"),
        *("--url http://[x/v1 --model m", "--url http://127.0.0.1:9/v1", "llama --key cloud_key", "llama --depth -1"),
        *("llama --depth 1e9", "llama --depth 200000", "llama --depth 4096", "llama --sweep batch=1", "llama --refuse"),
        *("llama --url http://127.0.0.1:9/v1 --model m", "llama --model nobody", "nobody", ""),
    ],
)
def test_what_cannot_be_asked_is_refused(world: World, line: str) -> None:
    assert world.command("up", "--yes").code == 0
    answer = world.command("bench", *line.split(), "--kind", "llm", "--yes")
    assert answer.code == 64, answer.out + answer.err
    assert "secret@" not in answer.out + answer.err


@pytest.mark.parametrize("word", ["--depth", "--model", "--url", "--key"])
def test_options_of_one_kind_are_none_of_another(world: World, word: str) -> None:
    value = {"--depth": "5", "--url": "http://x/v1"}.get(word, "x")
    assert world.command("bench", "llama", "--kind", "engine", word, value).code == 64
    assert world.command("bench", "llama", word, value).code == 64
    assert world.command("bench", "llama", "--kind", "llm", "--clients", "4").code == 64
    assert world.command("bench", "llama", "--kind", "engine", "--within", "1", "1").code == 64


@pytest.fixture
def ours(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """The engine of the lab, which answers at its address and port, with its key."""
    with serving(StandIn(key=ENGINE_KEY, first_s=0.01, step_s=0.001)) as stand_in:
        file = tmp_path / "homelab.yml"
        file.write_text(file.read_text().replace("{ model: tiny,", f"{{ model: tiny, port: {stand_in.port},"))
        monkeypatch.setattr("provisioner.cli.gateways.address_of", lambda *_, **__: "127.0.0.1")
        assert world.command("up", "--yes").code == 0
        world.requests = lambda: sum(bool(question.get("stream")) for question in stand_in.asked)
        yield stand_in


def test_an_engine_of_the_lab_is_asked_as_its_clients_do(world: World, ours: StandIn, tmp_path: Path) -> None:
    answer = world.done("bench", "llama", "--kind", "llm", *TRIALS)
    (result,) = kept(tmp_path, "llama.llama_cpp")
    assert (result.kind, result.setting.host, result.setting.model) == ("llm", "box", "e" * 64)
    assert {trial.waited for series in result.series for trial in series.trials} == {0.25}
    assert ours.keys == {f"Bearer {ENGINE_KEY}"}
    assert any(question.get("ignore_eos") for question in ours.asked)
    assert ENGINE_KEY not in answer.out + answer.err
    assert "too long" not in answer.err


@pytest.mark.usefixtures("ours")
def test_trials_while_others_ask_are_made_again_and_then_given_up(world: World, tmp_path: Path) -> None:
    world.strangers = [0, 3]
    answer = world.done("bench", "llama", "--kind", "llm", *TRIALS)
    assert "3 requests of others" in answer.err + answer.out
    (result,) = kept(tmp_path, "llama.llama_cpp")
    assert len(result.series[0].trials) == 10
    world.strangers = [1] * 99
    assert world.command("bench", "llama", "--kind", "llm", *TRIALS).ended(4) == world.snapshot
    assert len(kept(tmp_path, "llama.llama_cpp")) == 1


def test_the_gate_ends_with_3_where_clients_wait_longer(world: World, ours: StandIn) -> None:
    bench = ("bench", "llama", "--kind", "llm", *TRIALS)
    assert world.command(*bench, "--gate").code == 4, "nothing was accepted"
    assert world.command(*bench, "--accept").code == 0
    ours.first_s = 0.05
    slower = world.command(*bench, "--gate", "--threshold", "30")
    assert slower.code == 3, slower.out + slower.err
    assert "slower" in slower.out
    ours.burst = True
    assert world.command(*bench, "--gate").code == 4, "what was accepted is not measured any more"
    assert world.command(*bench, "--gate", "--depth", "5").code == 4


def test_it_is_drawn(world: World, cloud: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVISION_SECRET_CLOUD_KEY", KEY)
    assert world.command(*url_words(cloud), "--plot", str(tmp_path / "x.svg")).code == 0
    assert "first token" in (tmp_path / "x.svg").read_text()


@pytest.mark.usefixtures("ours")
def test_the_gate_judges_no_other_model_and_no_other_way_of_serving(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = {"cache": "8,8"}
    monkeypatch.setattr("provisioner.services.base.Knowledge.ways_of_writing", lambda *_: ways)
    bench = ("bench", "llama", "--kind", "llm", *TRIALS)
    assert world.command(*bench, "--accept").code == 0
    (result,) = kept(tmp_path, "llama.llama_cpp")
    told = {"model": "tiny", "p": "256", "n": "16", "d": "0", "engine": "llama_cpp", "cache": "8,8"}
    assert (result.setting.options, result.setting.model) == (told, "e" * 64)
    ways["cache"] = "FP16"
    assert world.command(*bench, "--gate").ended(4) == world.snapshot
    ways["cache"] = "8,8"
    world.model = "d" * 64
    assert world.command(*bench, "--gate").ended(4) == world.snapshot
    world.model = ""
    assert world.command(*bench, "--gate").ended(4) == world.snapshot
