"""One-line mistakes and the test files that fail with them: what is chosen by digests must hold each of these files.

The table is ``tests/data/mutations.yml``. ``python -m tests.inputs.mutations [TEST_FILE ...]`` makes each mistake in
this checkout, runs the files that the table names for it (or those that are given), says which fail, and takes it back.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
TABLE = "tests/data/mutations.yml"
TIMEOUT_S = 1800
WELL = (0, 5)
"""pytest's exit codes where tests passed, and where there are none."""


@dataclass(frozen=True)
class Mutation:
    """A mistake in one line of a file."""

    file: str
    was: str
    becomes: str
    fails: tuple[str, ...]
    """The test files that failed when somebody made it."""


def recorded(root: Path) -> list[Mutation]:
    """The table."""
    page: list[dict[str, Any]] = yaml.safe_load((root / TABLE).read_text(encoding="utf-8"))
    return [Mutation(one["file"], one["was"], one["becomes"], tuple(one["fails"])) for one in page]


@contextmanager
def made(root: Path, mutation: Mutation) -> Iterator[None]:
    """The mistake, while the context lasts; ``ValueError`` where the file does not have that text exactly once."""
    file = root / mutation.file
    text = file.read_text(encoding="utf-8")
    if text.count(mutation.was) != 1:
        raise ValueError(f"{mutation.file} has {text.count(mutation.was)} times: {mutation.was}")
    file.write_text(text.replace(mutation.was, mutation.becomes), encoding="utf-8")
    try:
        yield
    finally:
        file.write_text(text, encoding="utf-8")


def fails(root: Path, test_file: str) -> bool:
    """Whether the tests of a file fail now."""
    command = [sys.executable, "-m", "pytest", "-q", "--exitfirst", "--tb=no", test_file]
    done = subprocess.run(command, cwd=root, stdout=subprocess.DEVNULL, timeout=TIMEOUT_S, check=False)
    return done.returncode not in WELL


def main(test_files: Sequence[str]) -> int:
    """Make each; the exit code is 1 where a file that the table names for it does not fail."""
    unexpected = 0
    for mutation in recorded(ROOT):
        with made(ROOT, mutation):
            failing = [file for file in test_files or mutation.fails if fails(ROOT, file)]
        unexpected += 0 if test_files else len(set(mutation.fails) - set(failing))
        sys.stdout.write(f"{mutation.file}: {mutation.was!r}: {', '.join(failing) or 'nothing'} failed\n")
        sys.stdout.flush()
    return int(unexpected > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
