"""The edit on NVIDIA's own headers, release by release: checked, fixed, fixed again, reverted, edited by hand."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from provisioner.cuda.glibc import Version
from provisioner.cuda.headers import State
from provisioner.cuda.look import look_at
from provisioner.cuda.toolkit import write_headers
from tests.unit.cuda.wheels import HEADERS, unpack

pytestmark = pytest.mark.network

NAMES = ("math_functions.h", "math_functions.hpp")
ALL = ("rsqrt", "rsqrtf", "sinpi", "sinpif", "cospi", "cospif")
FACTS: dict[str, tuple[State, int, tuple[str, ...], tuple[str, ...]]] = {
    "12.4": ("bare", 13, ALL[2:], ALL),
    "12.9": ("bare", 14, ALL[2:], ALL),
    "13.0": ("bare", 15, (), ALL[:2]),
    "13.1": ("bare", 15, (), ALL[:2]),
    "13.2": ("guarded", 15, (), ()),
    "13.5": ("guarded", 16, (), ()),
}
"""By release: whose guard it bears, the newest GCC that it takes, what conflicts with glibc 2.41 and with 2.43."""


@pytest.fixture(params=FACTS)
def version(request: pytest.FixtureRequest) -> str:
    """A release."""
    return str(request.param)


@pytest.fixture
def toolkit(version: str, tmp_path: Path) -> Path:
    """Its headers, unpacked."""
    return unpack(HEADERS[version], tmp_path / "cuda", "include/")


def digests(toolkit: Path) -> list[str]:
    return [hashlib.sha256((toolkit / "include/crt" / name).read_bytes()).hexdigest() for name in NAMES]


def test_it_is_seen_as_measured(toolkit: Path, version: str) -> None:
    state, gcc_limit, with_2_41, with_2_43 = FACTS[version]
    expected: dict[Version, tuple[str, ...]] = {(2, 36): (), (2, 41): with_2_41, (2, 43): with_2_43}
    for glibc, conflicts in expected.items():
        look = look_at(toolkit, glibc)[0]
        assert (look.toolkit.version, look.toolkit.gcc_limit) == (version, gcc_limit)
        assert (look.headers.state, look.conflicts) == (state, conflicts)


def test_it_is_fixed_once_and_reverted_byte_for_byte(toolkit: Path, version: str) -> None:
    before = digests(toolkit)
    look = look_at(toolkit, (2, 43))[0]
    changed = write_headers(look.toolkit, look.headers.mended)
    assert len(changed) == (2 if FACTS[version][0] == "bare" else 0)
    fixed = look_at(toolkit, (2, 43))[0]
    assert fixed.headers.state == ("fixed" if changed else "guarded")
    assert not any(fixed.headers.conflicts((2, minor)) for minor in range(30, 60))
    assert sum(one.origin == "ours" for one in fixed.headers.places) == 3 * len(FACTS[version][3])
    assert write_headers(fixed.toolkit, fixed.headers.mended) == ()
    write_headers(fixed.toolkit, fixed.headers.original)
    assert digests(toolkit) == before


@pytest.mark.parametrize("version", [name for name, (state, *_) in FACTS.items() if state == "bare"], indirect=True)
@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("math_functions.h", " rsqrt(double x);"),
        ("math_functions.h", "__func__(double rsqrt(double a));"),
        ("math_functions.hpp", "__func__(double rsqrt(const double a))"),
    ],
)
def test_a_hand_edit_is_found(toolkit: Path, name: str, line: str) -> None:
    header = toolkit / "include/crt" / name
    before = header.read_text(encoding="latin-1")
    assert before.count(line) == 1
    header.write_text(before.replace(line, line.replace(")", ") noexcept(true)", 1)), encoding="latin-1")
    look = look_at(toolkit, (2, 36))[0]
    number = before[: before.index(line)].count("\n") + 1
    assert look.headers.edits == (f"{name}:{number}: rsqrt bears 'noexcept(true)'",)
    assert look.conflicts == ("rsqrt",)
