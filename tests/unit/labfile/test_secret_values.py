"""Keys in PEM form: they stand in `secrets.env` over several lines, and no line of one is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.labfile.loader import SecretError, from_file, without_secret
from provisioner.values.declared import MASK, masked
from provisioner.values.state import Secret
from tests.signed_pairs import signed

KEY = signed("x").key.strip()
FILE = f"# mine\nfirst='a'\nkey='{KEY}'\n\nlast=#b\\n'\n"


def read(tmp_path: Path, content: str) -> dict[str, str]:
    """The values of a file with that content."""
    file = tmp_path / "secrets.env"
    file.touch(0o600)
    file.write_bytes(content.encode())
    return from_file(["first", "key", "last"], file)


@pytest.mark.parametrize("content", [FILE, FILE.replace(f"'{KEY}'", f'"{KEY}"  '), FILE.replace("\n", "\r\n")])
def test_a_key_has_several_lines(tmp_path: Path, content: str) -> None:
    found = read(tmp_path, content)
    assert found["key"].splitlines() == KEY.splitlines()
    assert (found["first"], found["last"]) == ("a", "#b\\n'")


@pytest.mark.parametrize(
    ("line", "value"), [("first='a", "'a"), ('first="', '"'), (f"first='{KEY.splitlines()[0]}'", KEY.splitlines()[0])]
)
def test_everything_else_stands_on_one_line(tmp_path: Path, line: str, value: str) -> None:
    assert read(tmp_path, f"{line}\nlast=b'\n") == {"first": value, "last": "b'"}


def test_quotes_that_do_not_end_are_refused_without_a_word_of_the_key(tmp_path: Path) -> None:
    with pytest.raises(SecretError) as caught:
        read(tmp_path, FILE.replace(f"'{KEY}'", f"'{KEY}").replace("last=#b\\n'", "last=b"))
    assert caught.value.message == "line 3 of secrets.env begins a text in quotes that does not end"


def test_a_key_without_quotes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SecretError, match=r"line 4 of secrets\.env is not NAME=VALUE"):
        read(tmp_path, FILE.replace(f"'{KEY}'", KEY))


def test_a_key_is_taken_out_with_all_of_its_lines() -> None:
    assert without_secret(FILE, "key") == "# mine\nfirst='a'\n\nlast=#b\\n'\n"
    assert without_secret(FILE, "last") == f"# mine\nfirst='a'\nkey='{KEY}'\n\n"


def test_no_line_of_a_key_is_shown() -> None:
    shown = masked(f"-----BEGIN PRIVATE KEY-----\n  {KEY.splitlines()[2]}\nhello", [Secret("key", KEY)])
    assert shown == f"-----BEGIN PRIVATE KEY-----\n  {MASK}\nhello"
