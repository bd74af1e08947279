"""What module `provision_ini` makes of a file of sections, and what it refuses to."""

from __future__ import annotations

import pytest

from provisioner.ansible.modules import provision_ini as ini
from tests.case_files import read_cases

CASES = read_cases("ansible/provision_ini")

FILE: str = CASES["file"]


def edited(sections: dict[str, dict[str, object]]) -> str:
    return ini.edited(FILE, ini.as_texts(sections))


def test_a_key_is_set_in_its_own_section_and_the_rest_stays() -> None:
    assert edited({"Globals": {"port": 4000}}) == FILE.replace("port=3389", "port=4000")


def test_a_key_that_is_a_comment_takes_its_place_and_one_that_is_not_there_ends_the_section() -> None:
    after = edited({"Globals": {"require_credentials": True, "new": "x y"}})
    assert "\nrequire_credentials=true\n" in after
    assert "crypt_level=none\nnew=x y\n\n[Xorg]" in after


def test_a_key_that_is_there_twice_stays_once() -> None:
    assert edited({"Globals": {"crypt_level": "high"}}).count("crypt_level") == 1


def test_a_second_time_changes_nothing() -> None:
    wanted: dict[str, dict[str, object]] = {"Globals": {"port": 1, "new": False}, "Xorg": {"port": -1}}
    once = edited(wanted)
    assert ini.edited(once, ini.as_texts(wanted)) == once
    assert ini.differing(once, ini.as_texts(wanted)) == []


def test_a_parser_says_what_differs() -> None:
    assert ini.differing(FILE, {"Globals": {"port": "3389", "new": "1"}, "Gone": {"a": "1"}}) == [
        "Globals/new",
        "Gone/a",
    ]


def test_a_section_that_is_missing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no section \[Nope\]"):
        edited({"Nope": {"a": 1}})


@pytest.mark.parametrize("value", ["a\nb=c", " a", "a "])
def test_a_value_that_would_become_another_one_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="the value of key"):
        edited({"Globals": {"key": value}})
