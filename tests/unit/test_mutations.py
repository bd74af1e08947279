"""The mistakes by which the tests are measured can still be made, and the runner tells what finds them."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import yaml

from tests.mutations import MADE, ROOT, Mutation, copied, listed, run
from tests.waiting import wait_until

MUTATIONS = listed()
GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@localhost")

pytestmark = pytest.mark.skipif(MADE in os.environ, reason="one of them is made: its text is not there")


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[one.id for one in MUTATIONS])
def test_it_can_be_made_and_its_file_is_read_then(mutation: Mutation) -> None:
    text = (ROOT / mutation.file).read_text(encoding="utf-8")
    changed = mutation.applied(text)
    assert changed != text
    if mutation.file.endswith(".py"):
        ast.parse(changed)
    else:
        assert yaml.safe_load(changed) != yaml.safe_load(text)


def test_their_number_and_kinds_hold() -> None:
    assert Counter(one.kind for one in MUTATIONS) == {"core": 10, "role": 8, "driver": 6, "module": 6}
    assert len({one.id for one in MUTATIONS}) == len(MUTATIONS)
    assert len({(one.file, one.before) for one in MUTATIONS}) == len(MUTATIONS)


def test_at_least_ten_were_faults_that_somebody_mended() -> None:
    mended = [one for one in MUTATIONS if re.fullmatch(r"[0-9a-f]{8} \S.+", one.origin)]
    assert len(mended) >= 10
    assert all(re.fullmatch(r"line [1-9]\d*", one.origin) for one in MUTATIONS if one not in mended)


@pytest.mark.parametrize("text", ["", "x x"])
def test_a_mistake_that_could_be_anywhere_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="times: x"):
        Mutation("id", "core", "file", "line 1", "x", "y", "").applied(text)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with a source, and a venv of a program and a path that lead to it."""
    root = tmp_path / "root"
    packages = root / ".venv/lib/python3/site-packages"
    for folder in (root / ".venv/bin", packages):
        folder.mkdir(parents=True)
    (root / "source.py").write_text("sure = 1\n")
    (root / ".gitignore").write_text(".venv/\n")
    (packages / "ours.pth").write_text(str(root))
    (root / ".venv/bin/program").write_text(f"#!{root}/.venv/bin/python\n")
    (root / ".venv/bin/program").chmod(0o755)
    (root / ".venv/bin/__pycache__").mkdir()
    (root / ".venv/installed").touch()
    (root / ".venv/bin/compiled").write_bytes(b"\x7fELF" + bytes(root))
    for words in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "--message", "Begin")):
        subprocess.run([*GIT, *words], cwd=root, check=True, timeout=60)
    return root


def test_a_copy_has_the_mistake_and_leads_to_itself_alone(checkout: Path) -> None:
    mistake = Mutation("id", "core", "source.py", "line 1", "1", "0", "")
    with copied(checkout, mistake) as copy:
        assert (copy / "source.py").read_text() == "sure = 0\n"
        assert (copy / ".venv/lib/python3/site-packages/ours.pth").read_text() == str(copy)
        assert (copy / ".venv/bin/program").read_text() == f"#!{copy}/.venv/bin/python\n"
        assert os.access(copy / ".venv/bin/program", os.X_OK)
        assert (copy / ".venv/installed").stat().st_mtime >= (copy / "source.py").stat().st_mtime
        assert (copy / ".venv/bin/compiled").read_bytes() == b"\x7fELF" + bytes(checkout)
        status = subprocess.run(["git", "status", "--porcelain"], cwd=copy, capture_output=True, check=True, timeout=60)
        assert status.stdout == b""
    assert (checkout / "source.py").read_text() == "sure = 1\n"
    assert (checkout / ".venv/lib/python3/site-packages/ours.pth").read_text() == str(checkout)
    assert (checkout / ".venv/bin/program").read_text() == f"#!{checkout}/.venv/bin/python\n"
    assert not copy.parent.exists()


def test_a_copy_is_removed_where_a_run_is_interrupted(checkout: Path) -> None:
    seen: list[Path] = []

    def interrupted() -> None:
        with copied(checkout, None) as copy:
            seen.append(copy)
            assert (copy / "source.py").is_file()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [copy.parent.exists() for copy in seen] == [False]


def shell(text: str, folder: Path, within_s: float = 60) -> tuple[bool, str]:
    copy = folder / "c"
    copy.mkdir(exist_ok=True)
    passes, _, words = run(copy, ["sh", "-c", text], within_s, "id")
    return passes, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("exit 0", (True, "")),
        ("exit 3", (False, "exit code 3")),
        (
            "echo 'FAILED tests/a.py::test_a - no'; echo 'FAILED tests/b.py::test_b'; exit 1",
            (False, "tests/a.py::test_a"),
        ),
        (f'[ "${MADE}" = id ] && [ "${{PATH%%:*}}" = "$PWD/.venv/bin" ]', (True, "")),
    ],
)
def test_what_a_command_says(tmp_path: Path, text: str, expected: tuple[bool, str]) -> None:
    assert shell(text, tmp_path) == expected


def test_nothing_is_left_of_a_command_that_runs_too_long(tmp_path: Path) -> None:
    number = tmp_path / "number"
    text = f"sleep 600 & echo $! > {shlex.quote(str(number))}; wait"
    assert shell(text, tmp_path, within_s=1) == (False, "it took longer than 1 s")
    left = Path("/proc", number.read_text().strip(), "cwd")
    wait_until(lambda: not left.exists())  # also of one that has ended and that nobody has waited for
