"""Which card a toolkit compiles for, in CMake's words."""

from __future__ import annotations

import pytest

from provisioner.cuda.architectures import architecture_problem


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("75", "13.2"),
        ("86", "13.0"),
        ("89-real", "13.0"),
        ("90a", "13.1"),
        ("90a-virtual", "13.5"),
        ("120f", "13.2"),
        ("all-major", "13.2"),
    ],
)
def test_what_the_toolkit_knows_is_taken(name: str, version: str) -> None:
    assert architecture_problem(name, version) is None


@pytest.mark.parametrize(
    ("name", "version", "words"),
    [
        ("native", "13.2", "no card"),
        ("61", "13.0", "compiles for 75 and newer"),
        ("8.6", "13.2", "no architecture"),
        ("sm_86", "13.2", "no architecture"),
        ("86;89", "13.2", "no architecture"),
        ("", "13.2", "no architecture"),
    ],
)
def test_what_it_does_not_know_is_refused(name: str, version: str, words: str) -> None:
    problem = architecture_problem(name, version)
    assert problem is not None
    assert words in problem
