"""Count how many of the mistakes of ``tests/data/mutations.yml`` a command finds.

``python -m tests.mutations [--only ID]… [--within SECONDS] -- COMMAND…`` makes each mistake in a copy of the last
commit with the checkout's ``.venv``, and runs the command there. It prints a line for each: found (the command fails)
or missed, seconds, and the first test that failed. Before them, the command has to pass in a copy without a mistake;
with ``--only`` that is left out. The exit code is 0 when all are found, 1 when one is missed, 2 when the command fails
without any.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import yaml

from tests.records import cache_file

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tests/data/mutations.yml"
MADE = "PROVISION_MUTATION"
"""The variable that tells tests which mistake is made: the test of the list itself would find each of them."""
AUTHOR = ("-c", "user.name=mutations", "-c", "user.email=mutations@localhost")
CARRIED = (".venv", ".mypy_cache", ".ruff_cache")
STAMP = Path(".venv/installed")
LEADING_ELSEWHERE = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
LONGEST_S, STOP_S, GIT_S = 3600.0, 30.0, 120.0
FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Mutation:
    """A mistake in one place of a file, of which ``before`` is the text without it."""

    id: str
    kind: str
    file: str
    origin: str
    before: str
    after: str
    breaks: str

    def applied(self, text: str) -> str:
        """The file's text with the mistake; ``ValueError`` where the place is not there exactly once."""
        if text.count(self.before) != 1:
            raise ValueError(f"{self.id}: {self.file} has {text.count(self.before)} times: {self.before}")
        return text.replace(self.before, self.after)


def listed() -> list[Mutation]:
    """The mistakes, in the order of the list."""
    entries: list[dict[str, str]] = yaml.safe_load(LIST.read_text(encoding="utf-8"))["mutations"]
    renamed = {"from": "before", "to": "after"}
    return [Mutation(**{renamed.get(key, key): value for key, value in entry.items()}) for entry in entries]


@contextmanager
def copied(root: Path, mutation: Mutation | None) -> Iterator[Path]:
    """A clone of the checkout with the mistake as its last commit, and a venv that leads to nothing but it."""
    folder = Path(mkdtemp(prefix="m"))
    try:
        folder.chmod(0o755)  # as a checkout: services' accounts read files in it
        copy = folder / "c"
        _git(folder, "clone", "--quiet", str(root), str(copy))
        if mutation is not None:
            changed = copy / mutation.file
            changed.write_text(mutation.applied(changed.read_text(encoding="utf-8")), encoding="utf-8")
        _git(copy, *AUTHOR, "commit", "--quiet", "--allow-empty", "--all", "--message", "Change one place")
        for name in CARRIED:
            if (root / name).is_dir():
                shutil.copytree(root / name, copy / name, symlinks=True, copy_function=_linked)
        _lead_to_itself(copy, root)
        yield copy
    finally:
        with _uninterrupted():
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """No signal that asks to end is heard meanwhile."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _linked(source: str, target: str) -> None:
    """Give the file a second name, or copy it to another file system: pip, mypy and Python replace files as a whole."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _lead_to_itself(copy: Path, root: Path) -> None:
    """Have the programs of the copy's venv start its own Python, and that import the copy's sources."""
    programs = [file for file in (copy / ".venv/bin").iterdir() if file.is_file() and not file.is_symlink()]
    for file in (*programs, *(copy / ".venv").glob("lib/*/site-packages/*.pth")):
        content = file.read_bytes()
        if content.startswith(b"#!") or file.suffix == ".pth":
            _replaced(file, content.replace(os.fsencode(root), os.fsencode(copy)))
    stamp = copy / STAMP
    if stamp.exists():  # make would install the packages again, as the clone's lock is newer
        _replaced(stamp, stamp.read_bytes())


def _replaced(file: Path, content: bytes) -> None:
    mode = file.stat().st_mode
    file.unlink()
    file.write_bytes(content)
    file.chmod(mode)


@contextmanager
def _records_kept() -> Iterator[None]:
    """What this machine knows of the last runs of tests is afterwards what it was: copies run other commits."""
    file = cache_file()
    before = file.read_bytes() if file.exists() else None
    try:
        yield
    finally:
        if before is not None:
            file.write_bytes(before)
        else:
            file.unlink(missing_ok=True)


def run(copy: Path, command: Sequence[str], within_s: float, made: str) -> tuple[bool, float, str]:
    """Whether the command passes there, how many seconds it takes, and the first test that fails."""
    environment = {name: value for name, value in os.environ.items() if name not in LEADING_ELSEWHERE}
    environment |= {MADE: made, "PATH": f"{copy / '.venv/bin'}{os.pathsep}{os.environ['PATH']}"}
    began = time.monotonic()
    with (copy.parent / "output").open("w+b") as output:
        process = subprocess.Popen(
            command, cwd=copy, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = process.wait(within_s)
        except subprocess.TimeoutExpired:
            return False, time.monotonic() - began, f"it took longer than {within_s:g} s"
        finally:
            with _uninterrupted():
                _end(process)
        output.seek(0)
        first = FAILED.search(output.read().decode(errors="replace"))
    words = first[1] if first else f"exit code {code}"
    return code == 0, time.monotonic() - began, "" if code == 0 else words


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the command, and what is left of all that it started in its session."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, number)
            process.wait(STOP_S)


def _git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, check=True, timeout=GIT_S)


def main(arguments: Sequence[str]) -> int:
    """Try all that is asked for; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations")
    parser.add_argument("--only", action="append", default=[], choices=[one.id for one in listed()], metavar="ID")
    parser.add_argument("--within", type=float, default=LONGEST_S, metavar="SECONDS")
    parser.add_argument("command", nargs="+")
    asked = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that copies are removed
    chosen = [one for one in listed() if not asked.only or one.id in asked.only]
    found = 0
    for mutation in chosen if asked.only else (None, *chosen):
        name = mutation.id if mutation else "none"
        with _records_kept(), copied(ROOT, mutation) as copy:
            passes, seconds, words = run(copy, asked.command, asked.within, name)
        outcome = "missed" if passes else "found"
        if mutation is None:
            outcome = "passes" if passes else "fails"
        sys.stdout.write(f"{name}: {outcome}, {seconds:.0f} s {words}".rstrip() + "\n")
        sys.stdout.flush()
        if mutation is None and not passes:
            return 2
        found += mutation is not None and not passes
    sys.stdout.write(f"{found} of {len(chosen)} found\n")
    return int(found < len(chosen))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
