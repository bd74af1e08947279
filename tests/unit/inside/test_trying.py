"""``trying``: how one context of an engine went, told apart, with nothing left of the trial."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from provisioner.inside import trial, trial_unit
from provisioner.measuring.pause import WITHOUT
from provisioner.measuring.probe import BEGINNING, PLACES, Heard, doubts, places_in
from tests.doubles.openai import limited_engine
from tests.processes import free_port

KEY = "canary-of-the-engine-0123456789"
SYSTEMCTL = """#!PYTHON
import json, os, pathlib, re, shlex, signal, subprocess, sys, time
units, state = pathlib.Path("UNITS"), pathlib.Path("STATE")
known = json.loads(state.read_text()) if state.exists() else {"starts": 0}
verb = sys.argv[1]
if verb == "cat":
    print((units.parent / sys.argv[2]).read_text())
def alive(pid):
    try:
        return pid and open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
if verb == "start":
    text = (units / sys.argv[2]).read_text()
    command = shlex.split(re.search("^ExecStart=(.*)$", text, re.M)[1])
    known["starts"] += 1
    log = open("LOG", "wb")
    known["pid"] = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True).pid
    state.write_text(json.dumps(known))
elif verb == "stop" and alive(known.get("pid")):
    os.kill(known["pid"], signal.SIGKILL)
elif verb == "show" and "--property=MemoryCurrent" in sys.argv:
    print(4096)
elif verb == "show":
    runs = alive(known.get("pid"))
    print("ActiveState=" + ("active" if runs else "failed"), "Result=RESULT", "ExecMainStatus=9", sep="\\n")
    print(f"MainPID={known.get('pid', 0)}", f"InvocationID={known['starts']}", sep="\\n")
"""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the program is asked, by context and by what the engine does; its systemd is played."""
    units, programs = tmp_path / "units", tmp_path / "bin"
    units.mkdir()
    programs.mkdir()
    (tmp_path / "key").write_text(f"{KEY}\nformer\n")
    played = SYSTEMCTL.replace("PYTHON", sys.executable).replace("UNITS", str(units))
    played = played.replace("STATE", str(tmp_path / "state")).replace("LOG", str(tmp_path / "log"))
    journal = f"#!/bin/sh\necho offloaded 1/3 layers\necho offloaded 2/3 layers\ncat {tmp_path}/log\n"
    cards = "#!/bin/sh\necho 5\necho 7\n"
    for name, text in (("systemctl", played), ("journalctl", journal), ("nvidia-smi", cards)):
        (programs / name).write_text(text)
        (programs / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(trial_unit, "UNITS", units)
    port = free_port()

    def ask(context: int, *words: str, result: str = "exit-code", **more: Any) -> dict[str, Any]:
        (programs / "systemctl").write_text(played.replace("RESULT", result))
        command = f'{sys.executable} {limited_engine.__file__} "--port" "8080" "--ctx-size" "512" {" ".join(words)}'
        unit = tmp_path / "engine.service"
        unit.write_text(f"[Unit]\nOnFailure=switch-gone.service\n[Service]\nExecStart={command}\nExecStop=/bin/drain\n")
        tokens = context * 95 // 100
        ask = {
            "path": trial.NATIVE,
            "url": f"http://127.0.0.1:{port}",
            "key_file": "",
            "key_name": "",
            "encode": "",
            "model": "tiny",
            "tokens": tokens,
        }
        return {
            "unit": unit.name,
            "without": ["OnFailure=", "ExecStop="],
            "changes": [
                ['"--port" "[0-9]+"', f'"--port" "{port}"'],
                ['"--ctx-size" "[0-9]+"', f'"--ctx-size" "{context}"'],
            ],
            "shows": ["--ctx-size", str(context)],
            "health": f"http://127.0.0.1:{port}/health",
            "load_s": 20,
            "answer_s": 20,
            "no_room": ["out of memory"],
            "placed": r"offloaded (\d+)/(\d+) layers",
            "ask": {**ask, "first": 100, "last": 400, "changed": [None, None, *places_in(tokens).values()]},
            **more,
        }

    yield ask
    left = [*units.iterdir()]
    trial_unit.systemctl("stop", trial_unit.TRIAL)
    assert left == [], "nothing of a trial is left"


def told(found: dict[str, Any]) -> list[str]:
    """What is doubted of the answers."""
    plain, again, *changed = (Heard(**one) for one in found["heard"])
    return list(doubts(found["sent"], plain, again, dict(zip(PLACES, changed, strict=True))))


def test_a_context_that_answers_is_told_with_what_was_heard(asked: Any) -> None:
    found = trial.tried(asked(4096))
    assert (found["outcome"], found["words"], len(found["heard"])) == ("answered", "", 5)
    assert found["load_s"] > 0
    assert (found["layers"], found["memory"], found["card"]) == ([2, 3], 4096, 12 * trial.MIB)
    assert found["left"] > 0
    assert told(found) == []


def of_text(question: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    """The same question to an engine that takes text alone, with a key beside another one."""
    keys = tmp_path / "keys.yml"
    keys.write_text(f'# ours\napi_key: "{KEY}"\nadmin_key: "canary-of-another"\n')
    more = {"path": trial.OPENAI, "encode": "/v1/token/encode", "key_file": str(keys), "key_name": "api_key"}
    return {**question, "ask": {**question["ask"], **more}}


@pytest.mark.parametrize(("does", "doubted"), [("", 0), ("drop", 1)])
def test_an_engine_that_takes_text_alone_is_asked_with_as_much_of_it(
    asked: Any, tmp_path: Path, does: str, doubted: int
) -> None:
    (tmp_path / "only").write_text(KEY)
    words = ["--api-key-file", str(tmp_path / "only"), *(["--does", does] if does else [])]
    question = of_text(asked(4096, *words), tmp_path)
    found = trial.tried(question)
    assert (found["outcome"], found["words"]) == ("answered", "")
    wanted = 4096 * 95 // 100
    assert wanted * trial.CLOSE <= found["sent"] <= wanted
    assert {one["tokens"] for one in found["heard"]} == {found["sent"]}
    assert len(told(found)) == doubted


def test_where_no_text_becomes_as_long_as_wanted_that_is_told(asked: Any) -> None:
    ask = {**asked(4096)["ask"], "encode": "/v1/token/encode"}
    with pytest.raises(trial_unit.FailedError, match="no text of 3891 tokens could be made"):
        trial.prompts_of(ask, lambda _: 1)


def test_an_engine_that_drops_a_part_of_its_prompt_is_doubted(asked: Any) -> None:
    found = trial.tried(asked(4096, "--does", "drop"))
    assert found["outcome"] == "answered"
    assert told(found) == [f"another token near the {BEGINNING} of its prompt changed nothing of the answer"]


@pytest.mark.parametrize(
    ("words", "result", "outcome", "said"),
    [
        ((), "exit-code", "no room", "out of memory"),
        (("--does", "crash"), "signal", "crashed", "Segmentation fault"),
        (("--does", "crash"), "oom-kill", "no room", "oom-kill"),
        (("--does", "hang"), "exit-code", "hung", "it was not ready after 1 s"),
        (("--does", "answer-late"), "exit-code", "no room", "out of memory"),
    ],
)
def test_what_does_not_answer_is_told_apart(
    asked: Any, words: tuple[str, ...], result: str, outcome: str, said: str
) -> None:
    limit = {"load_s": 1} if outcome == "hung" else {}
    found = trial.tried(asked(8192, "--ceiling", "8191", *words, result=result, **limit))
    assert (found["outcome"], found["heard"]) == (outcome, [])
    assert said in found["words"]


@pytest.mark.parametrize(("counts", "outcome"), [([3, 4], "no room"), ([3, 3], "crashed")])
def test_what_the_kernel_ended_for_its_containers_memory_had_no_room(
    asked: Any, monkeypatch: pytest.MonkeyPatch, counts: list[int], outcome: str
) -> None:
    """Of that systemd says ``signal``: it looks at the limit of the unit alone."""
    counted = iter(counts)
    monkeypatch.setattr(trial_unit, "oom_kills", lambda: next(counted))
    found = trial.tried(asked(8192, "--ceiling", "8191", "--does", "crash", result="signal"))
    assert found["outcome"] == outcome


def test_the_kernels_count_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert trial_unit.oom_kills() >= 0
    monkeypatch.setattr(trial_unit, "COUNTED", tmp_path / "vmstat")
    (tmp_path / "vmstat").write_text("nr_free_pages 5\noom_kill 7\n")
    assert trial_unit.oom_kills() == 7


def test_a_process_with_other_words_is_taken_for_no_answer(asked: Any) -> None:
    """An earlier text may have been started again by systemd."""
    question = asked(4096)
    question["shows"] = ["--ctx-size", "8192"]
    found = trial.tried(question)
    assert (found["outcome"], found["words"]) == ("refused", "it runs without 8192")


def test_the_key_is_read_where_it_lies_and_said_nowhere(asked: Any, tmp_path: Path) -> None:
    question = asked(4096, "--api-key-file", str(tmp_path / "only"))
    (tmp_path / "only").write_text(KEY)
    assert "HTTP 401" in trial.tried(question)["words"]
    question["ask"]["key_file"] = str(tmp_path / "key")
    found = trial.tried(question)
    assert found["outcome"] == "answered"
    assert KEY not in json.dumps([question, found])


def test_a_unit_in_which_nothing_can_be_changed_is_refused() -> None:
    with pytest.raises(ValueError, match="ctx does not stand in the unit"):
        trial_unit.trial_of("[Service]\nExecStart=/bin/true\n", "engine.service", [], [["ctx", "x"]], 60)


def test_the_trial_is_not_started_again_and_tells_nobody() -> None:
    hooks = "ExecStartPre=-+/x/switch/control.py ready a\nRestart=always\n"
    text = f"[Unit]\nOnFailure=switch-gone.service\n[Service]\n{hooks}"
    made = trial_unit.trial_of(text, "engine.service", ["switch", "Restart="], [], 90)
    assert "switch" not in made
    assert made.splitlines() == [
        "[Unit]",
        "Conflicts=engine.service",
        "After=engine.service",
        "[Service]",
        "Restart=no",
        "OOMPolicy=stop",
        "TimeoutStopSec=10",
        "RuntimeMaxSec=90",
    ]


def test_no_line_of_the_engine_lets_its_trial_take_longer_to_end() -> None:
    text = "[Unit]\n[Service]\nTimeoutStopSec=1900\nExecStop=/x/drain.py\n"
    made = trial_unit.trial_of(text, "engine.service", WITHOUT, [], 90)
    assert "ExecStop" not in made
    assert [line for line in made.splitlines() if line.startswith("TimeoutStopSec")] == ["TimeoutStopSec=10"]


def test_it_may_run_for_as_long_as_its_start_and_all_of_its_answers_may_take(asked: Any) -> None:
    question = asked(4096)
    text = trial.Trial(question).text()
    answers = len(question["ask"]["changed"])
    assert f"RuntimeMaxSec={20 + answers * 20 + trial.MARGIN_S:.0f}\n" in text


def test_prompts_differ_in_the_one_token_that_is_changed() -> None:
    ask = {"tokens": 5000, "first": 100, "last": 400}
    plain, changed = trial.prompt_of(ask, None), trial.prompt_of(ask, 2500)
    assert [at for at in range(5000) if plain[at] != changed[at]] == [2500]
    assert {*plain} == {*range(100, 400)}
    assert changed[2500] == 400


def test_a_port_that_is_free_stands_where_it_is_asked_for(asked: Any, capsys: pytest.CaptureFixture[str]) -> None:
    question = json.dumps(asked(4096))
    port = str(json.loads(question)["health"]).rpartition(":")[2].partition("/")[0]
    trial.main(question.replace(port, "{port}").encode())
    assert json.loads(capsys.readouterr().out)["outcome"] == "answered"
