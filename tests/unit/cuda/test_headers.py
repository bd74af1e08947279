"""The guarded edit: what it touches, that it is taken back byte for byte, and whose hand it recognises."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.cuda.glibc import SINCE, Version, machine_glibc, version_of, version_text
from provisioner.cuda.headers import examine, is_mended, reverted
from provisioner.cuda.places import Headers, places_of
from provisioner.values.errors import ExitCode, PreflightError
from tests.unit.cuda.synthetic import DEVICE, Generation, made

RSQRT = ("rsqrt", "rsqrtf")
PI = ("sinpi", "sinpif", "cospi", "cospif")
RSQRT_LINE = f"{DEVICE} double    rsqrt(double x)"


def blog_edit(headers: Headers, specifier: str = " noexcept(true)") -> Headers:
    """The hand edit that is handed around: a specifier at the end of two lines, for every glibc."""
    text = headers.declarations
    for line in (" rsqrt(double x)", " rsqrtf(float x)"):
        assert text.count(f"{line};") == 1
        text = text.replace(f"{line};", f"{line}{specifier};")
    return replace(headers, declarations=text)


@pytest.mark.parametrize(
    ("generation", "glibc", "conflicts"),
    [
        ("12", (2, 36), ()),
        ("12", (2, 40), ()),
        ("12", (2, 41), PI),
        ("12", (2, 42), RSQRT + PI),
        ("12", (2, 43), RSQRT + PI),
        ("13.0", (2, 36), ()),
        ("13.0", (2, 41), ()),
        ("13.0", (2, 42), RSQRT),
        ("13.0", (2, 43), RSQRT),
        ("13.2", (2, 36), ()),
        ("13.2", (2, 43), ()),
    ],
)
def test_toolkit_and_glibc_conflict_as_measured(
    generation: Generation, glibc: Version, conflicts: tuple[str, ...]
) -> None:
    seen = examine(made(generation))
    assert seen.conflicts(glibc) == conflicts
    assert seen.is_pending(glibc) == bool(conflicts)
    assert seen.state == ("guarded" if generation == "13.2" else "bare")


@pytest.mark.parametrize(("generation", "number"), [("12", 18), ("13.0", 6)])
def test_the_edit_reaches_every_place_and_ends_every_conflict(generation: Generation, number: int) -> None:
    before = made(generation)
    fixed = examine(examine(before).mended)
    assert sum(place.origin == "ours" for place in fixed.places) == number
    assert fixed.state == "fixed"
    assert is_mended(fixed.headers)
    for minor in range(30, 60):
        assert fixed.conflicts((2, minor)) == ()
    assert fixed.mended == fixed.headers, "a second edit changes something"
    assert reverted(fixed.headers) == fixed.original == before


def test_the_edit_touches_nothing_else() -> None:
    before = made("12")
    mended = examine(before).mended
    for text, now, number in (
        (before.declarations, mended.declarations, 12),
        (before.definitions, mended.definitions, 6),
    ):
        gone = [line for line in text.splitlines() if line not in now.splitlines()]
        assert len(gone) == number
        assert all(any(f" {function}(" in line for function in SINCE) for line in gone), gone


def test_the_macros_are_guarded_by_glibc_and_defined_before_their_use() -> None:
    text = examine(made("12")).mended.declarations
    for macro, minor in (("_PROVISIONER_GLIBC_RSQRT_SPEC", 42), ("_PROVISIONER_GLIBC_PI_SPEC", 41)):
        assert f"# if __GLIBC_PREREQ(2, {minor})\n#  define {macro} __THROW\n" in text
        assert f"#ifndef {macro}\n# define {macro}\n#endif\n" in text
        assert text.index(f"# define {macro}\n") < text.index(f" {macro};")


def test_what_nvidia_guards_comes_out_unchanged() -> None:
    seen = examine(made("13.2"))
    assert seen.mended == seen.original == seen.headers == made("13.2")


@pytest.mark.parametrize("first", ["declarations", "definitions"])
def test_one_file_of_two_is_seen_and_completed_in_both_directions(first: str) -> None:
    before = made("13.0")
    mended = examine(before).mended
    half = examine(replace(before, **{first: getattr(mended, first)}))
    assert half.state == "half"
    assert half.is_pending((2, 36))
    assert (half.mended, half.original) == (mended, before)


@pytest.mark.parametrize("specifier", [" noexcept(true)", " noexcept", " __THROW", " throw()", " noexcept (true) "])
def test_the_unguarded_hand_edit_is_named_and_its_consequence_known(specifier: str) -> None:
    seen = examine(blog_edit(made("13.0"), specifier))
    line = seen.headers.declarations[: seen.headers.declarations.index(RSQRT_LINE)].count("\n") + 1
    assert seen.state == "edited"
    assert f"math_functions.h:{line}: rsqrt bears {specifier.strip()!r}" in seen.edits
    assert len(seen.edits) == 2
    assert seen.conflicts((2, 36)) == RSQRT, "noexcept there, the prototype without: an older glibc's g++ refuses it"
    assert seen.conflicts((2, 41)) == RSQRT
    assert seen.conflicts((2, 43)) == (), "there it agrees with glibc"


def test_a_hand_edit_of_the_definitions_is_named() -> None:
    before = made("13.0")
    line = "__func__(double rsqrt(const double a)"
    seen = examine(replace(before, definitions=before.definitions.replace(f"{line})", f"{line} noexcept)")))
    assert [edit.partition(": ")[2] for edit in seen.edits] == ["rsqrt bears 'noexcept'"]
    assert seen.edits[0].startswith("math_functions.hpp:")


@pytest.mark.parametrize("field", ["declarations", "definitions"])
def test_a_change_after_the_fix_is_named(field: str) -> None:
    mended = examine(made("13.0")).mended
    changed = replace(mended, **{field: getattr(mended, field) + "/* mine */\n"})
    name = "math_functions.h" + ("pp" if field == "definitions" else "")
    assert examine(changed).edits == (f"{name}: changed by somebody after it was fixed",)


def test_a_damaged_edit_of_ours_is_named() -> None:
    mended = examine(made("13.0")).mended
    damaged = replace(mended, declarations=mended.declarations.replace("/* END provisioner */\n", ""))
    assert examine(damaged).edits == ("math_functions.h: our edit in it is damaged",)
    twice = mended.declarations.replace("_SPEC;", "_SPEC noexcept;", 1)
    assert examine(replace(mended, declarations=twice)).state == "edited"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (f"{RSQRT_LINE};\n", "", "math_functions.h: extern of rsqrt found 0 times"),
        (f"{RSQRT_LINE};\n", f"// {RSQRT_LINE};\n", "math_functions.h: extern of rsqrt found 0 times"),
        (f"{RSQRT_LINE};\n", f"{RSQRT_LINE};\n" * 2, "math_functions.h: extern of rsqrt found 2 times"),
        ("__func__(float cospif(", "__host__(float cospif(", "math_functions.h: prototype of cospif found 0 times"),
        ("&& defined(__CUDACC__)\n", "&& 1\n", "the line that begins what nvcc sees found 0 times"),
    ],
)
def test_an_unknown_layout_is_refused_with_what_is_missing(old: str, new: str, problem: str) -> None:
    before = made("13.0")
    assert old in before.declarations
    with pytest.raises(PreflightError, match="no layout that is known") as caught:
        examine(replace(before, declarations=before.declarations.replace(old, new)))
    assert caught.value.exit_code == ExitCode.REFUSED
    assert problem in caught.value.details
    assert caught.value.resolution


@pytest.mark.parametrize("text", ["", "int x;\n", "\0\xff" * 50])
def test_what_is_no_header_is_refused(text: str) -> None:
    with pytest.raises(PreflightError):
        examine(Headers(text, text))


def test_windows_line_ends_survive() -> None:
    before = made("12")
    crlf = Headers(before.declarations.replace("\n", "\r\n"), before.definitions.replace("\n", "\r\n"))
    seen = examine(crlf)
    assert seen.state == "bare"
    assert reverted(seen.mended) == crlf
    assert examine(seen.mended).state == "fixed"


def test_each_function_has_three_places() -> None:
    for generation in ("12", "13.0", "13.2"):
        assert len(places_of(made(generation))) == 3 * len(SINCE)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("2.42", (2, 42)),
        (" 2.36\n", (2, 36)),
        ("2.43.9000", (2, 43)),
        ("2", None),
        ("", None),
        ("2.x", None),
        ("-2.4", None),
    ],
)
def test_versions_are_read(text: str, version: Version | None) -> None:
    assert version_of(text) == version
    if version:
        assert version_of(version_text(version)) == version


@pytest.mark.parametrize(("said", "version"), [("glibc 2.42", (2, 42)), ("musl 1.2", None), (None, None), ("", None)])
def test_another_c_library_is_no_glibc(
    monkeypatch: pytest.MonkeyPatch, said: str | None, version: Version | None
) -> None:
    monkeypatch.setattr("os.confstr", lambda _name: said)
    assert machine_glibc() == version
