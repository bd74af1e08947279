"""What was tried of an engine and is kept: for the same one alone, and nothing that may go otherwise the next time."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from provisioner.measuring.probe import Tried, digest_of, keep, tried_before, tries_in
from provisioner.values.state import Device, Instance

INPUTS: dict[str, Any] = {"role": "r", "variables": {"llama_cpp_context": "a", "llama_cpp_threads": "b"}}
CARD = Device("card", "gpu", {"pci": "0000:01:00.0"})
CONTAINER = Instance("llama", "box", "lab", "debian/12", cpu=2, memory=2**30, devices=(CARD,))


def kept(file: Path, *tries: Tried, digest: str = "same") -> dict[int, str]:
    """What is known after these were kept."""
    for one in tries:
        keep(file, digest, one)
    return {context: one.outcome for context, one in tried_before(file, "same").items()}


def test_another_context_leaves_it_the_same_engine_and_whatever_else_does_not() -> None:
    same = digest_of(INPUTS, "context", CONTAINER)
    other_context = {**INPUTS, "variables": {**INPUTS["variables"], "llama_cpp_context": "z"}}
    assert digest_of(other_context, "context", CONTAINER) == same
    others = [
        digest_of({**INPUTS, "variables": {**INPUTS["variables"], "llama_cpp_threads": "z"}}, "context", CONTAINER),
        digest_of({**INPUTS, "role": "z"}, "context", CONTAINER),
        digest_of(INPUTS, "context", replace(CONTAINER, memory=2**31)),
        digest_of(INPUTS, "context", replace(CONTAINER, host="other")),
        digest_of(INPUTS, "context", replace(CONTAINER, devices=())),
        digest_of(INPUTS, "context", replace(CONTAINER, devices=(replace(CARD, properties={"pci": "0000:02:00.0"}),))),
    ]
    assert same not in others
    assert len({*others}) == len(others)


def test_what_was_tried_of_another_engine_or_was_cut_by_a_kill_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "one.jsonl"
    kept(file, Tried(1024, "answered"), digest="other")
    known = kept(file, Tried(2048, "answered"), Tried(4096, "no room", "full"))
    assert known == {2048: "answered", 4096: "no room"}
    with file.open("a") as stream:
        stream.write('{"digest": "same", "context": 51')
    assert kept(file) == known
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(("outcome", "counts"), [("no room", 1), ("doubtful", 1), ("crashed", 0), ("hung", 0)])
def test_what_may_go_otherwise_is_tried_again(tmp_path: Path, outcome: str, counts: int) -> None:
    assert len(kept(tmp_path / "one.jsonl", Tried(4096, outcome))) == counts


def test_an_answer_counts_more_than_what_became_of_a_shorter_one(tmp_path: Path) -> None:
    tries = [Tried(4096, "no room"), Tried(8192, "answered"), Tried(16384, "no room")]
    assert kept(tmp_path / "one.jsonl", *tries) == {8192: "answered", 16384: "no room"}


def test_everything_that_was_tried_is_told_with_its_time_and_lines_of_earlier_versions_without(tmp_path: Path) -> None:
    file = tmp_path / "one.jsonl"
    keep(file, "same", Tried(4096, "answered"))
    keep(file, "other", Tried(8192, "crashed", "signal"))
    first, second = tries_in(file)
    assert (first.digest, first.tried) == ("same", Tried(4096, "answered"))
    assert (second.digest, second.tried) == ("other", Tried(8192, "crashed", "signal"))
    assert datetime.fromisoformat(first.at).tzinfo is not None
    line = json.loads(file.read_text().splitlines()[0])
    del line["at"]
    file.write_text(f"{json.dumps(line)}\n[]\ncut")
    assert [one.at for one in tries_in(file)] == [""]
    assert tries_in(tmp_path / "none.jsonl") == []
