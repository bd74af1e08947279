"""Programs of others: what they are told is seen by nobody, they find nothing of ours, and they end."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from provisioner.measuring.tools import ToolError, lines_of

PYTHON = Path(sys.executable)
READS = "import json, sys; words = json.load(sys.stdin)\n"


def lines(script: str, home: Path, words: list[str] | None = None, within_s: float = 60) -> list[str]:
    return list(lines_of(PYTHON, READS + script, words or [], home, within_s))


def test_it_reads_its_words_and_they_stand_in_no_command_line(tmp_path: Path) -> None:
    script = "print(words[0]); print('of-a-' + 'path' in open('/proc/self/cmdline').read())"
    assert lines(script, tmp_path, ["canary-of-a-path"]) == ["canary-of-a-path\n", "False\n"]


def test_it_finds_nothing_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "OPENAI_API_KEY", "PROVISION_SECRET_X", "PYTHONPATH"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    script = (
        "import os; print(sorted(name for name in os.environ if name != 'LC_CTYPE')); print(os.path.expanduser('~'))"
    )
    (names, home) = lines(script, tmp_path)
    assert names == "['HF_HUB_DISABLE_TELEMETRY', 'HF_HUB_OFFLINE', 'HOME', 'LANG', 'PATH', 'TRANSFORMERS_OFFLINE']\n"
    assert home == f"{tmp_path}\n"


def test_lines_come_as_they_are_written(tmp_path: Path) -> None:
    script = "print('one'); import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.01)\nprint('two')"
    with closing(lines_of(PYTHON, READS + script, [], tmp_path, 60)) as written:
        assert next(written) == "one\n"
        (tmp_path / "go").touch()
        assert next(written) == "two\n"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("sys.exit('it went wrong')", "it went wrong"),
        ("sys.exit(7)", "it ended with 7"),
        ("import os; os.kill(os.getpid(), 9)", "it ended with -9"),
        ("import no_such_module", "no_such_module"),
    ],
)
def test_how_it_ended_badly_is_told(tmp_path: Path, script: str, words: str) -> None:
    with pytest.raises(ToolError, match=words):
        lines(f"print('x'); {script}", tmp_path)


def test_one_that_hangs_is_ended(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(ToolError, match="has not ended in 1 s"):
        lines("import time; time.sleep(600)", tmp_path, within_s=1)
    assert time.monotonic() - began < 60


def test_one_of_which_nothing_more_is_wanted_is_ended(tmp_path: Path) -> None:
    with closing(
        lines_of(PYTHON, READS + "import os, time; print(os.getpid()); time.sleep(600)", [], tmp_path, 600)
    ) as written:
        process = int(next(written))
    assert not Path(f"/proc/{process}").exists()
    assert not [one for one in threading.enumerate() if isinstance(one, threading.Timer) and not one.finished.is_set()]


def test_what_it_has_started_is_ended_with_it(tmp_path: Path) -> None:
    script = "import subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True); sys.exit('gone')"
    began = time.monotonic()
    with pytest.raises(ToolError, match="gone"):
        lines(script, tmp_path, within_s=300)
    assert time.monotonic() - began < 60, "the child has its output, and is not waited for"


def test_one_that_does_not_read_is_told_how_it_ended(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="early"):
        list(lines_of(PYTHON, "import sys; sys.exit('early')", ["x" * 10**6], tmp_path, 60))
    assert [one.name for one in tmp_path.iterdir()] == ["said"]
