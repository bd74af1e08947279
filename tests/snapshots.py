"""Texts that people read, compared with files: ``assert answer.out == snapshot``.

Each case has a file ``__snapshots__/<module>/<test>.txt`` beside its test. ``make snapshots`` writes the files anew;
read their diff before you commit it. Where the environment has ``CI``, nothing is written.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from syrupy.types import PropertyFilter, PropertyMatcher, SerializableData, SerializedData

NORMALISED: tuple[tuple[str, str], ...] = (
    (r"\x1b\[[0-9;?]*[A-Za-z]", ""),
    (r"/(?:[^\s:=,;'\"()]*/)?(?:pytest-of-[^/\s]+/pytest-\d+|popen-gw\d+)/\S*?(?=/|[\s:'\",;)\]]|$)", "<tmp>"),
    (re.escape(str(Path(__file__).resolve().parents[1])), "<checkout>"),
    (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?", "<time>"),
    (r"\b\d{8}T\d{6}Z", "<time>"),
    (r"\bafter \d+(?:\.\d+)? ?s\b", "after <duration>"),
    (r"\b(?:\d+m )?\d+\.\d+s\b", "<duration>"),
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<id>"),
    (r"\b(?:[0-9a-f]{40,64}|[0-9a-f]{16})\b(?!…)", "<digest>"),
    (r"\b127\.0\.0\.1[:.][3-6]\d{4}\b", "127.0.0.1:<port>"),
    (r"\b[\w.-]+@[\w.-]+, pid \d+\b", "<user>@<machine>, pid <pid>"),
    (r"(<time>|<duration>|<tmp>) {2,}", r"\1  "),
    (r"[ \t]+$", ""),
)
"""Patterns of what differs from run to run or between machines, each with what stands for it in a snapshot."""


def normalised(text: str) -> str:
    """Return the text with times, durations, ids, digests and paths of this machine replaced."""
    for pattern, replacement in NORMALISED:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return text


def case_name(value: object) -> str:
    """Return a parameter as the id of its case, without what no file can be called: pytest's ``ids=case_name``."""
    return re.sub(r'[\\/?*:|"<>]', "-", str(value))


class TextFile(SingleFileSnapshotExtension):
    """A snapshot that is a text file of its own."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"

    def serialize(
        self,
        data: SerializableData,
        *,
        exclude: PropertyFilter | None = None,
        include: PropertyFilter | None = None,
        matcher: PropertyMatcher | None = None,
    ) -> SerializedData:
        """Return the normalised text, with one line end after its last line."""
        del exclude, include, matcher  # they select properties of objects
        return self.text_of(data).rstrip("\n") + "\n"

    def text_of(self, data: SerializableData) -> str:
        """Return the text without what differs between runs."""
        return normalised(str(data))


class ExactTextFile(TextFile):
    """A snapshot of a text whose times and ids the test itself chose: they are compared, too."""

    def text_of(self, data: SerializableData) -> str:
        """Return the text as it is."""
        return str(data)


@pytest.fixture
def exact_snapshot(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    """A snapshot that compares times, durations and ids as well: for texts that are made of values alone."""
    return snapshot.use_extension(ExactTextFile)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to write snapshots where the environment has ``CI``."""
    if config.getoption("update_snapshots", None) and os.environ.get("CI"):
        raise pytest.UsageError("CI writes no snapshots: run `make snapshots`, read the diff and commit it")
