"""Every test file that failed with a recorded mistake is chosen when the file of that mistake changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.inputs.digests import Digests
from tests.inputs.mutations import Mutation, fails, made, recorded
from tests.unit.inputs.conftest import ROOT

MUTATIONS = recorded(ROOT)


@pytest.fixture(scope="module")
def digests() -> Digests:
    return Digests(ROOT)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.file for mutation in MUTATIONS])
def test_each_file_that_fails_is_chosen(digests: Digests, mutation: Mutation) -> None:
    text = (ROOT / mutation.file).read_text(encoding="utf-8")
    assert text.count(mutation.was) == 1, "the line was changed: record the mistake anew"
    left_out = [file for file in mutation.fails if mutation.file not in digests.inputs(file)]
    assert left_out == []


def test_there_are_enough_of_them() -> None:
    assert len(MUTATIONS) >= 5
    assert len({mutation.file for mutation in MUTATIONS}) == len(MUTATIONS)


def test_a_mistake_is_taken_back_whatever_happens(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it():\n    assert 1\n")
    mutation = Mutation("test_it.py", "assert 1", "assert 0", ("test_it.py",))
    seen = []
    with pytest.raises(ZeroDivisionError), made(tmp_path, mutation):
        seen.append(fails(tmp_path, "test_it.py") / 0)
    assert seen == []
    with made(tmp_path, mutation):
        assert fails(tmp_path, "test_it.py")
    assert not fails(tmp_path, "test_it.py")


@pytest.mark.parametrize("text", ["", "x x"])
def test_a_mistake_that_could_be_anywhere_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(ValueError, match="times: x"), made(tmp_path, Mutation("file", "x", "y", ())):
        pass
