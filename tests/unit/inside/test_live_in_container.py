"""``live_in_container``: what services are asked, and above all what they are not."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from provisioner.inside import activity as program
from provisioner.inside.agent import System
from provisioner.inside.answers import DamagedAnswerError, live_answer
from provisioner.measuring.live import program_text
from provisioner.services.base import Metrics
from provisioner.services.llama_cpp import SERIES
from tests.http_servers import HERE, QuietHandler, served
from tests.waiting import PATIENCE_S

KEY = "canary-engine-5d1c"
PAGE = """\
# HELP llamacpp:tokens_predicted_total Number of generation tokens processed
# TYPE llamacpp:tokens_predicted_total counter
llamacpp:tokens_predicted_total 1200
llamacpp:prompt_tokens_total 362
llamacpp:prompt_tokens_seconds 424.9
llamacpp:requests_processing {running}
llamacpp:requests_deferred 0
"""
"""As llama-server 0.5.0 says it, shortened."""
SLOTS = [
    {"id": 0, "n_ctx": 2048, "speculative": False, "is_processing": False},
    {
        "id": 1,
        "n_ctx": 2048,
        "is_processing": True,
        "n_prompt_tokens": 368,
        "n_prompt_tokens_processed": 362,
        "next_token": [{"has_next_token": True, "n_remain": 1194, "n_decoded": 6}],
    },
]
"""The same of its slots."""
RUNS = {"ActiveState": "active", "InvocationID": "first"}
STATISTICS = """# pxname,svname,scur,stot,status,check_status,
answers,{slot},{running},40,{status},{check},
answers,hold,1,2,no check,,
answers,BACKEND,{all},41,UP,,
looks-a,BACKEND,7,99,UP,,

"""
PORTS = """1
# be_id be_name srv_id srv_name srv_addr srv_op_state srv_port
4 answers 1 {slot} 127.0.0.1 2 {port}
4 answers 3 hold 127.0.0.1 2 1

"""
"""Both as HAProxy 2.6 writes them, with fewer columns."""


@dataclass
class Engine:
    """A server that says these pages, each a text or what a status is; and what it was asked."""

    pages: Mapping[str, Any]
    """A text, a status, or what gives one."""
    port: int = 0
    asked: list[str] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)


@contextmanager
def serving(engine: Engine) -> Iterator[Engine]:
    class Answer(QuietHandler):
        def do_GET(self) -> None:  # the library's name
            engine.asked.append(self.path)
            engine.keys.add(self.headers.get("Authorization", ""))
            page = engine.pages.get(self.path, 404)
            text = page() if callable(page) else page
            self.send_response(text if isinstance(text, int) else 200)
            self.end_headers()
            if isinstance(text, str):
                self.wfile.write(text.encode())

    with served(ThreadingHTTPServer(HERE, Answer)) as server:
        engine.port = server.server_port
        yield engine


@contextmanager
def switch(path: Path, answers: Mapping[str, str]) -> Iterator[list[str]]:
    """A switch that answers commands by their first words; what it was asked."""
    asked: list[str] = []
    over = threading.Event()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen()
        listening.settimeout(0.05)

        def answer() -> None:
            while not over.is_set():
                try:
                    connection, _ = listening.accept()
                except TimeoutError:
                    continue
                with connection:
                    command = connection.recv(1000).decode()
                    asked.append(command)
                    connection.sendall(answers[" ".join(command.split()[:2])].encode())

        answering = threading.Thread(target=answer, daemon=True)
        answering.start()
        try:
            yield asked
        finally:
            over.set()
            answering.join(PATIENCE_S)


def asked_of(engine: Engine, path: str = "", **metrics: Any) -> dict[str, Any]:
    """What the program is asked of a service; ``metrics``: how its engine says what it does."""
    how = asdict(Metrics(**metrics)) if metrics else None
    asked = {"address": "llama/llama_cpp", "unit": "llama-server.service", "socket": path, "port": engine.port}
    return {**asked, "health": "/health", "metrics": how}


def llama_cpp(key_file: Path, **changes: Any) -> dict[str, Any]:
    key_file.write_text(f"{KEY}\nthe-former-key\n")
    return {"page": "/metrics", "series": SERIES, "slots": "/slots", "key_file": str(key_file), **changes}


def test_an_engine_says_what_it_does_and_how_far_its_requests_are(tmp_path: Path) -> None:
    pages = {"/health": "ok", "/props": '{"is_sleeping": false}', "/metrics": PAGE.format(running=1)}
    with serving(Engine({**pages, "/slots": json.dumps(SLOTS)})) as engine:
        asked = asked_of(engine, **llama_cpp(tmp_path / "key", sleeping="/props"))
        said = program.service_of(asked, RUNS)
    (model,) = said["models"]
    assert dict(model["samples"]) == {
        SERIES["written"]: 1200,
        SERIES["read"]: 362,
        SERIES["running"]: 1,
        SERIES["waiting"]: 0,
    }
    assert model["slots"] == [[2048, 0, 0, 0], [2048, 368, 362, 6]]
    assert (said["unit"], said["status"], said["problem"]) == ("active", "UP", "")
    assert engine.keys == {"", f"Bearer {KEY}"}
    assert KEY not in json.dumps(said)
    live_answer({"services": {"llama/llama_cpp": said}, "cards": []}, ["llama/llama_cpp"])


def test_slots_are_of_the_moment_of_the_counters(tmp_path: Path) -> None:
    """A request that ends between both looks would count twice, or not at all."""
    said_so_far = iter([PAGE.format(running=1), PAGE.format(running=1).replace("1200", "1206"), PAGE.format(running=0)])
    pages: dict[str, str | Callable[[], str]] = {"/health": "ok", "/slots": json.dumps(SLOTS)}
    pages["/metrics"] = lambda: next(said_so_far)
    with serving(Engine(pages)) as engine:
        said = program.service_of(asked_of(engine, **llama_cpp(tmp_path / "key")), RUNS)
    (model,) = said["models"]
    assert (dict(model["samples"])[SERIES["running"]], model["slots"]) == (0, [])


def test_a_server_that_sleeps_is_asked_nothing_that_wakes_it(tmp_path: Path) -> None:
    with serving(Engine({"/health": "ok", "/props": '{"is_sleeping": true}'})) as engine:
        said = program.service_of(asked_of(engine, **llama_cpp(tmp_path / "key", sleeping="/props")), RUNS)
    assert engine.asked == ["/health", "/props"]
    assert (said["sleeps"], said["models"], said["problem"]) == (True, [], "")


def test_slots_are_not_asked_where_nothing_runs(tmp_path: Path) -> None:
    """To be asked for its slots wakes a server that has just fallen asleep."""
    with serving(Engine({"/health": "ok", "/metrics": PAGE.format(running=0)})) as engine:
        program.service_of(asked_of(engine, **llama_cpp(tmp_path / "key")), RUNS)
    assert engine.asked == ["/health", "/metrics"]


def test_of_several_models_those_in_memory_alone_are_asked(tmp_path: Path) -> None:
    states = {"one/a b": "loaded", "two": "unloaded", "three": "sleeping", "four": "loading"}
    models = {"data": [{"id": name, "status": {"value": state}} for name, state in states.items()]}
    page = "/metrics?model=one%2Fa%20b&autoload=false"
    with serving(Engine({"/health": "ok", "/models": json.dumps(models), page: PAGE.format(running=0)})) as engine:
        said = program.service_of(asked_of(engine, **llama_cpp(tmp_path / "key", models="/models")), RUNS)
    assert engine.asked == ["/health", "/models", page]
    assert [one["name"] for one in said["models"]] == ["one/a b"]


@pytest.mark.parametrize("state", ["asleep", "inactive", "failed", "activating", "deactivating"])
def test_a_unit_that_does_not_run_is_asked_nothing(state: str, tmp_path: Path) -> None:
    with serving(Engine({})) as engine:
        said = program.service_of(asked_of(engine, **llama_cpp(tmp_path / "key")), {"ActiveState": state})
    assert engine.asked == []
    assert said["unit"] == state


def test_models_that_take_a_card_are_told_with_what_they_take() -> None:
    models = [{"name": "qwen3:0.6b", "size": 9, "size_vram": 5}, {"name": "b", "size": 7, "size_vram": 7}]
    with serving(Engine({"/health": "ok", "/api/ps": json.dumps({"models": models})})) as engine:
        said = program.service_of(asked_of(engine, held="/api/ps"), RUNS)
    assert said["vram"] == 12
    assert [one["name"] for one in said["models"]] == ["qwen3:0.6b", "b"]


def test_the_switch_tells_which_engine_serves_and_how_many_wait(tmp_path: Path) -> None:
    with serving(Engine({"/metrics": PAGE.format(running=0)})) as engine:
        rows = STATISTICS.format(slot="b", running=2, status="UP", check="L7OK", all=7)
        answers = {"show stat": rows, "show servers": PORTS.format(slot="b", port=engine.port)}
        with switch(tmp_path / "s", answers) as commands:
            asked = {**asked_of(engine, str(tmp_path / "s"), **llama_cpp(tmp_path / "key")), "port": 1}
            said = program.service_of(asked, RUNS)
    assert (said["running"], said["waiting"], said["status"], said["check"]) == (2, 5, "UP", "L7OK")
    assert engine.asked == ["/metrics"], "its health is the switch's to ask"
    assert said["start"] == f"first {engine.port}"
    assert {command.split()[0] for command in commands} == {"show"}, "nothing is changed"


def test_an_engine_that_is_not_in_service_is_not_asked(tmp_path: Path) -> None:
    with serving(Engine({})) as engine:
        rows = STATISTICS.format(slot="a", running=0, status="DOWN", check="L4CON", all=3)
        answers = {"show stat": rows, "show servers": PORTS.format(slot="a", port=engine.port)}
        with switch(tmp_path / "s", answers):
            said = program.service_of(asked_of(engine, str(tmp_path / "s"), **llama_cpp(tmp_path / "key")), RUNS)
    assert (engine.asked, said["status"], said["waiting"]) == ([], "DOWN", 3)


def test_a_switch_that_does_not_answer_is_told(tmp_path: Path) -> None:
    with serving(Engine({})) as engine:
        said = program.service_of(asked_of(engine, str(tmp_path / "nowhere"), **llama_cpp(tmp_path / "key")), RUNS)
    assert said["problem"] == "the switch before it does not answer"
    assert (said["running"], said["waiting"]) == (-1, -1)


@pytest.mark.parametrize(
    ("pages", "problem"),
    [
        ({"/metrics": 401}, "/metrics answered 401"),
        ({"/metrics": "a" * (program.LARGEST_ANSWER + 1)}, "/metrics has no end"),
        ({"/metrics": "", "/models": "["}, "/models is no JSON"),
        ({"/metrics": "", "/models": "[" * 100_000}, "/models is no JSON"),
        ({"/metrics": "", "/models": '{"data": [1]}'}, "what it says of its models has another form"),
    ],
)
def test_what_an_engine_does_not_say_is_told_as_that(pages: dict[str, Any], problem: str, tmp_path: Path) -> None:
    models = "/models" if "/models" in pages else ""
    with serving(Engine({"/health": "ok", **pages})) as engine:
        said = program.service_of(asked_of(engine, **llama_cpp(tmp_path / "key", models=models)), RUNS)
    assert said["problem"] == problem
    live_answer({"services": {"llama/llama_cpp": said}, "cards": []}, ["llama/llama_cpp"])


def test_slots_that_it_does_not_tell_are_told_as_unknown(tmp_path: Path) -> None:
    with serving(Engine({"/health": "ok", "/metrics": PAGE.format(running=1), "/slots": 501})) as engine:
        said = program.service_of(asked_of(engine, **llama_cpp(tmp_path / "key")), RUNS)
    assert said["models"][0]["slots"] is None
    live_answer({"services": {"llama/llama_cpp": said}, "cards": []}, ["llama/llama_cpp"])


def test_labels_are_left_out_and_what_is_no_number_too() -> None:
    text = (
        'a:b{model="x} 9",engine="0"} 1.5e3\na:b{engine="1"} 2\na:b NaN\na:b -1\na:b +Inf\na:b 1e30\na:bc 5\nother 1\n'
    )
    assert program.samples(text, ["a:b"]) == [["a:b", 1500.0], ["a:b", 2.0]]


def test_memory_of_a_card_is_told_of_own_processes_or_not_at_all() -> None:
    rows = [["11", "500"], ["12", "20"], ["13", "[N/A]"], ["14"]]
    assert program.used_by(rows, [11, 12]) == 520 * program.MIB
    assert program.used_by(rows, [13, 14, 99]) == program.NOBODY_TELLS
    cards = [["RTX 5090", "1024", "32607"], ["odd", "[N/A]", "5"], ["No devices were found"]]
    assert program.cards_in(cards) == [["RTX 5090", 2**30, 32607 * program.MIB]]


def test_a_card_is_let_rest_where_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[Any] = []
    state = {"value": "asleep"}

    def said(command: Any) -> list[list[str]]:
        commands.append(command)
        return []

    monkeypatch.setattr(program, "said_by_card", said)
    monkeypatch.setattr(System, "units", lambda _self: {"llama-server.service": {"ActiveState": state["value"]}})
    request = {"card": True, "services": [asked_of(Engine({}, port=1))]}
    program.look(request)
    assert commands == []
    state["value"] = "active"
    program.look(request)
    assert commands == [program.PROCESSES, program.CARDS]


def test_it_runs_where_nothing_is_installed() -> None:
    request = {"do": "live", "card": True, "services": [asked_of(Engine({}, port=1))]}
    text = zlib.decompress(program_text()).decode()
    script = f"import sys\n__name__ = 'agent'\n{text}\nmain(sys.stdin.buffer.read())"
    command = [sys.executable, "-IS", "-c", script]
    done = subprocess.run(command, input=json.dumps(request).encode(), capture_output=True, timeout=60, check=True)
    answer = live_answer(json.loads(done.stdout), ["llama/llama_cpp"])
    assert answer["services"]["llama/llama_cpp"]["models"] == []


@pytest.mark.parametrize(
    "change",
    [
        {"unit": None},
        {"running": -2},
        {"vram": 1.5},
        {"sleeps": 1},
        {"at_s": -1.0},
        {"more": 1},
        {"models": [{"name": "x", "samples": [["a", True]], "slots": []}]},
        {"models": [{"name": "x", "samples": [["a", -1]], "slots": []}]},
        {"models": [{"name": "x" * 5000, "samples": [], "slots": []}]},
        {"models": [{"name": "x", "samples": [], "slots": [[1, 2, 3]]}]},
        {"models": [{"name": "x", "samples": [], "slots": [[1, 2, 3, -4]]}]},
    ],
)
def test_an_answer_of_another_kind_is_damaged(change: dict[str, Any]) -> None:
    said = program.service_of(asked_of(Engine({}, port=1)), {})
    live_answer({"services": {"a/b": said}, "cards": [["card", 1, 2]]}, ["a/b"])
    with pytest.raises(DamagedAnswerError):
        live_answer({"services": {"a/b": {**said, **change}}, "cards": []}, ["a/b"])
    with pytest.raises(DamagedAnswerError):
        live_answer({"services": {"a/b": said}, "cards": [["card", 1]]}, ["a/b"])
    with pytest.raises(DamagedAnswerError):
        live_answer({"services": {}, "cards": []}, ["a/b"])
