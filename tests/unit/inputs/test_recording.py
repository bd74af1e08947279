"""What processes of a test read is noted, and what of it is in no digest of that test is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.inputs.digests import Digests
from tests.inputs.recorded import hidden, read_notes
from tests.unit.inputs.conftest import Run

PART = "tests/integration/test_one.py"
HIDDEN = "roles/engine/tasks/main.yml"
NAMES = """
import os, subprocess, sys
NAME = "/".join(["ro" "les", "eng" + "ine", "tasks", "main." + "yml"])
PROGRAM = "/".join(["bench" + "marks", "pro" + "gram.py"])
READ = "import sys; open(sys.argv[1])"
"""
READS = {
    "in the test": """
def test_a():
    open(NAME).read()
""",
    "in a process": """
def test_a():
    subprocess.run([sys.executable, '-c', READ, NAME], check=True)
""",
    "by a program's own file": """
def test_a():
    subprocess.run([sys.executable, PROGRAM], check=True)
""",
    "in a fork": """
def test_a():
    if not os.fork():
        open(NAME).close()
        os._exit(0)
    os.wait()
""",
}


def noted(run: Run, checkout: Path, text: str) -> tuple[Digests, frozenset[str]]:
    """The digests of the checkout, and what was noted of a run of the file with that text."""
    (checkout / PART).write_text(text)
    said = run(PART, "--record-inputs", "../notes")
    assert "1 passed" in said, said
    (file,) = (checkout.parent / "notes").glob("*.txt")
    part, read = read_notes(file)
    assert part == PART
    return Digests(checkout), read


@pytest.mark.parametrize("how", READS)
def test_what_is_read_and_no_input_is_found(run: Run, checkout: Path, how: str) -> None:
    (checkout / "benchmarks/program.py").write_text("")
    digests, read = noted(run, checkout, NAMES + READS[how])
    wanted = "benchmarks/program.py" if how == "by a program's own file" else HIDDEN
    assert hidden(digests, PART, read) == [wanted]


def test_what_is_read_and_is_an_input_is_well(run: Run, checkout: Path) -> None:
    digests, read = noted(run, checkout, f"def test_a(helped):\n    open({HIDDEN!r}).read()\n")
    assert {PART, HIDDEN, "benchmarks/helper.py"} <= read
    assert hidden(digests, PART, read) == []


def test_a_constant_names_what_cannot_be_seen(run: Run, checkout: Path) -> None:
    digests, read = noted(run, checkout, f'REACHES = ("roles/engine",){NAMES}{READS["in the test"]}')
    assert HIDDEN in read
    assert hidden(digests, PART, read) == []
