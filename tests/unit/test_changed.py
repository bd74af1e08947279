"""The table of rules from changed paths to what tries them: it covers every file, and each rule chooses something."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.changed import COVERED, REPRESENTATIVES, RULES, NotCoveredError, changed_paths, parts_for
from tests.checkout import tracked_files
from tests.circles import all_parts

ROOT = Path(__file__).resolve().parents[2]
PARTS = all_parts(ROOT)


def test_every_file_of_the_product_is_tried_by_something() -> None:
    files = [name for name in tracked_files(ROOT) if name.startswith(COVERED)]
    assert files
    assert [name for name in files if not parts_for([name], PARTS)] == []


def test_a_path_without_a_rule_is_refused() -> None:
    with pytest.raises(NotCoveredError, match=r"src/provisioner/new_room/plan\.py"):
        parts_for(["src/provisioner/new_room/plan.py"], PARTS)
    assert parts_for(["docs/tour.md"], PARTS) == []


@pytest.mark.parametrize("globs", [globs for _, globs in RULES], ids=[pattern for pattern, _ in RULES])
def test_every_name_of_a_rule_is_there(globs: tuple[str, ...]) -> None:
    named = [glob for glob in globs if "{" not in glob]
    missing = [glob for glob in named if not parts_for_glob(glob)]
    assert missing == []


def parts_for_glob(glob: str) -> list[str]:
    """Return the parts that one glob of a rule chooses."""
    from fnmatch import fnmatch

    return [part for part in PARTS if fnmatch(part, glob)]


@pytest.mark.parametrize(
    ("path", "chosen", "left_out"),
    [
        ("roles/litellm/tasks/main.yml", "molecule/litellm", "molecule/kokoro"),
        ("roles/llama_cpp/defaults/main.yml", "tests/integration/test_llama_cpp_sources.py", "molecule/kokoro"),
        ("molecule/door/converge.yml", "molecule/door", "molecule/base"),
        ("src/provisioner/hosts/incus/api.py", "tests/integration/test_incus.py", "molecule/kokoro"),
        ("src/provisioner/reconcile/plan.py", "molecule/kokoro", "nothing"),
        ("src/provisioner/cluster/read_node.py", "tests/integration/cluster/test_cluster_check.py", "molecule/base"),
        ("tests/integration/up/test_drift.py", "tests/integration/up/test_drift.py", "tests/integration/test_lock.py"),
    ],
)
def test_a_change_is_tried_where_it_shows(path: str, chosen: str, left_out: str) -> None:
    parts = parts_for([path], PARTS)
    assert chosen in parts
    assert left_out not in parts


def test_the_representatives_are_there() -> None:
    assert set(REPRESENTATIVES) <= set(PARTS)


def test_changes_are_told_by_git_and_an_unknown_commit_is_no_empty_change(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        command = ("git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example", *words)
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()

    git("init", "-q")
    (tmp_path / "one").write_text("1")
    (tmp_path / "two").write_text("2")
    git("add", ".")
    git("commit", "-qm", "Begin")
    base = git("rev-parse", "HEAD")
    assert changed_paths(tmp_path, base) == []
    (tmp_path / "one").unlink()
    (tmp_path / "three").write_text("3")
    git("commit", "-qam", "Remove")
    assert changed_paths(tmp_path, base) == ["one", "three"]
    assert changed_paths(tmp_path, "0" * 40) is None
    assert changed_paths(tmp_path / "one", base) is None
