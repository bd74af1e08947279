"""Holds what was read while tests ran against what they are said to depend on; ``python -m tests.inputs.recorded``."""

from __future__ import annotations

import sys
from pathlib import Path, PurePosixPath

from tests.inputs.digests import Digests
from tests.inputs.graph import NO_INPUT

ROOT = Path(__file__).resolve().parents[2]


def read_notes(file: Path) -> tuple[str, frozenset[str]]:
    """The part to which a file of notes belongs, and the files of the checkout that its processes read."""
    part = file.stem.replace("+", "/")
    lines = file.read_text(encoding="utf-8").splitlines()
    return part, frozenset(line.removeprefix("read ") for line in lines if line.startswith("read "))


def hidden(digests: Digests, part: str, read: frozenset[str]) -> list[str]:
    """What was read and belongs to the checkout, and is in no digest of that part.

    Roles are copied with their READMEs, which nobody reads.
    """
    outside = (read & digests.tree.files) - digests.inputs(part)
    return sorted(file for file in outside if PurePosixPath(file).name not in NO_INPUT)


def main(folder: Path) -> int:
    """Write a line for each file that was read and is no input; the exit code is 1 where there is one."""
    digests = Digests(ROOT)
    found = 0
    for file in sorted(folder.glob("*.txt")):
        part, read = read_notes(file)
        missing = hidden(digests, part, read)
        found += len(missing)
        known, inputs = len(read & digests.tree.files), len(digests.inputs(part))
        lines = [f"{part}: {known} files read, {inputs} inputs, {len(missing)} read that are no input"]
        lines += [f"  {name}" for name in missing]
        sys.stdout.write("\n".join([*lines, ""]))
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
