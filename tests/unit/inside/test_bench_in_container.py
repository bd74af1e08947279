"""``bench_in_container``: the words that an engine is served with, and one measurement, with nothing left of it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from provisioner.inside import cpu_waits, trial_unit
from provisioner.inside import engine_bench as program
from provisioner.inside.answers import DamagedAnswerError, bench_answer, served_answer
from provisioner.inside.bundle import program_of
from provisioner.inside.trial_unit import OUTCOMES

UNIT = """# /etc/systemd/system/llama-server.service
[Unit]
OnFailure=switch-gone.service
X-Artifact={build}
X-Model={model}

[Service]
ExecStartPre=/usr/bin/install key running
ExecStart=/opt/bin/llama-server "--model" "/srv/a b.gguf" "--alias" "50%% \\"off\\" $$5"
ExecStop=/bin/drain
""".format(build="b" * 64, model="e" * 64)
DROP_IN = """
# /etc/systemd/system/llama-server.service.d/limit.conf
[Service]
CPUQuota=90%
StandardOutput=journal
ExecStart=
ExecStart=/opt/bin/llama-server "--model" "/srv/a b.gguf" "--alias" "50%% \\"off\\" $$5"
"""
SHELL = (
    """ExecStart=/bin/sh -c 'exec "$$0" --threads "$$(nproc)" "$$@"' /opt/bin/llama-server "--model" "/srv/m.gguf"\n"""
)
SYSTEMCTL = """#!PYTHON
import json, pathlib, re, shlex, subprocess, sys, time
units, state = pathlib.Path("UNITS"), pathlib.Path("STATE")
verb = sys.argv[1]
if verb == "cat":
    print((units.parent / sys.argv[2]).read_text())
elif verb == "start":
    if HANGS:
        time.sleep(60)
    assert sys.argv[2] == "--wait"
    text = (units / sys.argv[3]).read_text()
    (units.parent / "seen").write_text(text)
    words = shlex.split(re.findall("^ExecStart=(.*)$", text, re.M)[-1])
    command = [word.replace("%%", "%").replace("$$", "$") for word in words]
    kind, _, file = re.findall("^StandardOutput=(.*)$", text, re.M)[-1].partition(":")
    def run(words):
        with open(file, {"truncate": "wb", "append": "ab"}[kind]) as out:  # anew for each process, as systemd does
            return subprocess.run(words, stdout=out, stderr=subprocess.DEVNULL).returncode
    code = run(command)
    after = re.findall("^ExecStopPost=-[+](.*)$", text, re.M)
    for line in after:
        run([word.replace("$$", "$") for word in shlex.split(line)])
    state.write_text("inactive" if code == 0 else "failed")
elif verb == "show":
    print("ActiveState=" + ("active" if HANGS else state.read_text()), "Result=exit-code", sep="\\n")
    print("ExecMainStatus=1", "MainPID=0", "InvocationID=1", sep="\\n")
"""


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A container: its systemd is played, its llama-bench is a shell script."""
    units, programs = tmp_path / "units", tmp_path / "bin"
    units.mkdir()
    programs.mkdir()
    (tmp_path / "engine.service").write_text(UNIT + DROP_IN)
    (tmp_path / "pressure").write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=1000\n")
    play(tmp_path)
    write(programs / "journalctl", "#!/bin/sh\necho not enough room\n")
    write(programs / "nvidia-smi", "#!/bin/sh\necho NVIDIA H100, 580.95\n")
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setattr(trial_unit, "UNITS", units)
    monkeypatch.setattr(program, "SAID", tmp_path / "said")
    monkeypatch.setattr(cpu_waits, "PRESSURE", tmp_path / "pressure")
    for module in (cpu_waits, program):
        monkeypatch.setattr(module, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(program, "LIMITED", tmp_path / "limited")
    monkeypatch.setattr(program, "TEXT", tmp_path / "text")
    monkeypatch.setattr(program, "STATE", tmp_path)
    return tmp_path


def play(there: Path, *, hangs: bool = False) -> None:
    """Have a systemd there."""
    words = {
        "PYTHON": sys.executable,
        "UNITS": str(there / "units"),
        "STATE": str(there / "state"),
        "HANGS": str(hangs),
    }
    text = SYSTEMCTL
    for name, value in words.items():
        text = text.replace(name, value)
    write(there / "bin/systemctl", text)


def write(file: Path, text: str) -> None:
    """A program."""
    file.write_text(text)
    file.chmod(0o755)


def asked(*command: str, **more: Any) -> dict[str, Any]:
    """What the program is asked."""
    told = {"unit": "engine.service", "program": "llama-server", "without": ["switch-", "ExecStop="], "within_s": 20}
    told |= {"begins": "{", "text": "", "most_bytes": 0}
    return {**told, "no_room": ["out of memory"], "command": list(command), **more}


def measured(there: Path, script: str, **more: Any) -> dict[str, Any]:
    """What came of a llama-bench that does this."""
    write(there / "bench", f"#!/bin/sh\n{script}\n")
    found = program.measured(asked(str(there / "bench"), 'a "b" c', "50% $HOME", **more))
    assert [*(there / "units").iterdir()] == [], "nothing of a trial is left"
    assert not (there / "said").exists()
    assert not (there / "limited").exists()
    return bench_answer(json.loads(json.dumps(found)), OUTCOMES)


@pytest.mark.usefixtures("there")
def test_it_says_with_which_words_an_engine_is_served_and_on_what() -> None:
    found = served_answer(json.loads(json.dumps(program.served(asked()))))
    assert found["words"] == ["/opt/bin/llama-server", "--model", "/srv/a b.gguf", "--alias", '50% "off" $5']
    assert (found["card"], found["driver"]) == ("NVIDIA H100", "580.95")
    assert (found["build"], found["model"]) == ("b" * 64, "e" * 64)
    assert found["threads"] >= 1
    assert found["processor"]


def test_what_nobody_tells_is_empty(there: Path) -> None:
    write(there / "bin/nvidia-smi", "#!/bin/sh\nexit 9\n")
    (there / "engine.service").write_text("[Service]\nExecStart=/bin/true\n")
    found = program.served(asked())
    assert [found[word] for word in ("words", "card", "driver", "build", "model")] == [[], "", "", "", ""]


def test_of_a_shell_that_counts_processors_the_server_s_words_are_told() -> None:
    assert program.words_in(SHELL, "llama-server") == ["/opt/bin/llama-server", "--model", "/srv/m.gguf"]


def test_the_last_command_of_a_unit_counts() -> None:
    text = 'ExecStart=/a/llama-server "1"\nExecStart=\nExecStart=/b/llama-server "2"\n'
    assert program.words_in(text, "llama-server") == ["/b/llama-server", "2"]


@pytest.mark.parametrize("word", ["plain", "a b", 'say "so"', "50%", "$HOME", "back\\slash", "", "'", "é", "%%$$"])
def test_a_word_stays_what_it_is(word: str) -> None:
    line = f"ExecStart={program.command_line(['/bin/llama-server', word])}"
    assert program.words_in(line, "llama-server") == ["/bin/llama-server", word]


def test_what_it_wrote_is_told_in_lines_and_it_ran_as_the_engine_would(there: Path) -> None:
    found = measured(there, """echo words; echo '{"a": 1}'; printf '{"words": "%s|%s"}\\n' "$1" "$2" | tr '"' "'" """)
    assert found["outcome"] == "answered"
    assert found["lines"] == ['{"a": 1}', "{'words': 'a 'b' c|50% $HOME'}"]
    seen = (there / "seen").read_text()
    assert "CPUQuota=90%" in seen, "what stands beside the unit counts as well"
    assert "Conflicts=engine.service" in seen
    assert "ExecStartPre=/usr/bin/install key running" in seen
    assert len(re.findall("^ExecStart=", seen, re.MULTILINE)) == 1
    for line in ("ExecStop=", "switch-", "llama-server"):
        assert line not in seen.replace("# /etc/systemd/system/llama-server", "")


def test_which_part_of_the_time_something_waited_is_told(there: Path) -> None:
    found = measured(there, f"""echo '{{"a": 1}}'; sleep 0.5; echo 'some total=201000' > {there}/pressure""")
    assert found["waited"] == pytest.approx(0.2 / found["took_s"])


def own_group() -> str:
    """The control group of this process, without the slash that it begins with."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    (group,) = [line.removeprefix("0::/") for line in lines if line.startswith("0::")] or [""]
    return group


def test_what_waits_by_its_own_limit_is_not_disturbed(there: Path) -> None:
    (there / "groups").mkdir()
    stat = there / "groups/cpu.stat"
    own = there / "groups" / own_group() / "cpu.stat"
    own.parent.mkdir(parents=True, exist_ok=True)
    script = f"""echo '{{"a": 1}}'; echo 'some total=200001000' > {there}/pressure; sleep 0.5"""
    assert measured(there, script)["waited"] == 1
    own.write_text("throttled_usec 200000000\n")
    (there / "pressure").write_text("some total=1000\n")
    assert measured(there, script)["waited"] == 0
    (there / "groups/cpu").mkdir(exist_ok=True)
    stat.write_text("nr_throttled 1\nthrottled_usec 5000\n")
    (there / "groups/cpu/cpu.stat").write_text("throttled_time 7000000\n")
    assert cpu_waits.waits().throttled_us == 5000 + 7000
    assert cpu_waits.throttled_us(stat) == 5000
    before, after = cpu_waits.Waits(5.0, 1000, 10), cpu_waits.Waits(6.0, 201_000, 160_010)
    assert before.share_until(after) == pytest.approx(0.04)
    assert before.share_until(cpu_waits.Waits(6.0, 201_000, 900_000)) == 0
    assert before.share_until(cpu_waits.Waits(6.0, -1, 0)) == cpu_waits.UNKNOWN


def test_what_a_trial_has_written_is_room_for_the_next_one_and_is_forgotten(
    there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = there / program.FOLDER
    folder.mkdir()
    (folder / "logits").write_bytes(b"x" * 2**22)
    assert program._free() >= shutil.disk_usage(there).free + 2**21
    for forget, is_there in ((False, True), (True, False)):
        program.main(json.dumps(asked() | {"forget": forget}).encode())
        assert served_answer(json.loads(capsys.readouterr().out))
        assert folder.exists() == is_there


def test_a_trial_reads_its_text_and_writes_into_its_folder(there: Path) -> None:
    script = f"""cat {program.TEXT}; echo; echo '[1]'"""
    found = measured(there, script, text="Good morning.", begins="", most_bytes=2**30)
    assert found["lines"] == ["Good morning.", "[1]"]
    unit = (there / "seen").read_text()
    assert f"StateDirectory={program.FOLDER}" in unit
    assert f"LimitFSIZE={2**30}" in unit
    assert not program.TEXT.exists()


def test_where_the_kernel_tells_nothing_of_waiting_nothing_is_said(there: Path) -> None:
    (there / "pressure").unlink()
    assert measured(there, """echo '{"a": 1}'""")["waited"] == -1


def test_a_program_that_fails_is_told_with_its_words(there: Path) -> None:
    found = measured(there, "exit 1")
    assert (found["outcome"], found["words"]) == ("crashed", "exit-code: not enough room")
    assert measured(there, "exit 1", no_room=["enough room"])["outcome"] == "no room"


def test_a_program_that_says_no_figure_is_told(there: Path) -> None:
    assert measured(there, "echo hello")["words"] == "it ended without a figure"


def test_a_program_that_does_not_end_hangs(there: Path) -> None:
    play(there, hangs=True)
    assert measured(there, "true", within_s=0.5)["outcome"] == "hung"


def test_what_is_written_beyond_its_limit_is_cut(there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "MOST_SAID", 9)
    assert measured(there, """echo '{"a": 1}'; echo '{"b": 2}'""")["lines"] == ['{"a": 1}']


@pytest.mark.usefixtures("there")
def test_it_is_carried_as_one_text_that_python_alone_runs() -> None:
    text = program_of(program, cpu_waits, trial_unit)
    run = "import sys; scope = {'__name__': 'agent'}; exec(sys.argv[1], scope); scope['main'](sys.stdin.buffer.read())"
    done = subprocess.run(
        [sys.executable, "-IS", "-c", run, text],
        input=json.dumps(asked()).encode(),
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert served_answer(json.loads(done.stdout))["words"][0] == "/opt/bin/llama-server"


WHOLE = {"outcome": "answered", "words": "", "lines": ["{}"], "took_s": 1.0, "waited": 0.1}
SERVED = {
    **dict.fromkeys(("processor", "card", "driver", "build", "model"), "x"),
    "words": ["a"],
    "threads": 2,
    "free": 5,
}


@pytest.mark.parametrize(
    "more",
    [
        {"outcome": "well"},
        {"outcome": ["answered"]},
        {"words": 5},
        {"lines": "{}"},
        {"lines": [5]},
        {"lines": ["x" * 5000]},
        {"took_s": -1},
        {"took_s": "1"},
        {"waited": -2},
        {"waited": True},
        {"more": 1},
    ],
)
def test_an_answer_of_another_shape_is_damaged(more: dict[str, Any]) -> None:
    assert bench_answer(WHOLE, OUTCOMES) == WHOLE
    with pytest.raises(DamagedAnswerError):
        bench_answer({**WHOLE, **more}, OUTCOMES)


@pytest.mark.parametrize(
    "more", [{"words": "a"}, {"words": [None]}, {"threads": -1}, {"threads": True}, {"card": None}, {"more": 1}]
)
def test_a_look_of_another_shape_is_damaged(more: dict[str, Any]) -> None:
    assert served_answer(SERVED) == SERVED
    with pytest.raises(DamagedAnswerError):
        served_answer({**SERVED, **more})


def test_the_build_is_the_commit_with_its_patches_the_stack_and_the_artifact(there: Path) -> None:
    commit, artifact = "5f" * 20, "b" * 64
    unit = there / "engine.service"
    for lines, told in (
        (f"X-Commit={commit}\n", commit),
        (f"X-Commit={commit} split guard\nX-Artifact={artifact}\n", f"{commit} split guard {artifact}"),
        (f"X-Commit=main\nX-Artifact={artifact}\n", artifact),
        ("X-Python=/opt/provision/stacks/0123456789abcdef\n", "0123456789abcdef"),
        (f"X-Commit={commit}\nX-Python=/opt/stacks/0123456789abcdef\n", f"{commit} 0123456789abcdef"),
        ("X-Python=/usr\n", ""),
    ):
        unit.write_text(f"[Unit]\n{lines}X-Model={'e' * 64}\n[Service]\nExecStart=/bin/true\n")
        found = program.served(asked())
        assert (found["build"], found["model"]) == (told, "e" * 64)
