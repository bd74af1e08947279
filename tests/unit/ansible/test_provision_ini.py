"""What module `provision_ini` makes of a file of sections, and what it refuses to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args

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


def ran(folder: Path, capsys: pytest.CaptureFixture[str], *, check: bool = False) -> dict[str, Any]:
    """What the module answers when it is to set a port in ``x.ini``."""
    arguments: dict[str, Any] = {"path": str(folder / "x.ini"), "original": str(folder / "x.original")}
    arguments |= {"sections": {"Globals": {"port": 4000}}, "_ansible_check_mode": check}
    with patch_module_args(arguments), pytest.raises(SystemExit):
        ini.main()
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_every_line_and_the_mode_that_somebody_changed_are_put_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.ini"
    file.write_text(FILE)
    file.chmod(0o640)
    assert ran(tmp_path, capsys)["changed"]
    wanted = file.read_text()
    assert "port=4000" in wanted
    assert not ran(tmp_path, capsys)["changed"]
    file.write_text(f"{wanted.replace('param=-config', '')}; by hand\nport=5\n")
    file.chmod(0o666)
    answer = ran(tmp_path, capsys, check=True)
    assert (answer["changed"], "by hand" in file.read_text()) == (True, True)
    assert ran(tmp_path, capsys)["changed"]
    assert (file.read_text(), file.stat().st_mode & 0o777) == (wanted, 0o640)
    assert (tmp_path / "x.original").read_text() == FILE


def test_check_mode_makes_no_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.ini").write_text(FILE)
    assert ran(tmp_path, capsys, check=True)["changed"]
    assert [file.name for file in tmp_path.iterdir()] == ["x.ini"]
