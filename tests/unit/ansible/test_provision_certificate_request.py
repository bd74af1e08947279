"""Module `provision_certificate_request`: when a certificate is asked for anew, and what is put in its place."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from provisioner.ansible.modules import provision_certificate_request as module
from provisioner.tls.authority import Authority
from tests.signed_pairs import NOW, Signed, signed

AUTHORITY = Authority("an-authority-of-a-lab")
OTHER = Authority("another-one-of-a-lab!")
NAMES = ["chat.home.example", "api.home.example"]
OWN_GROUP = subprocess.run(["id", "-gn"], check=True, capture_output=True, text=True, timeout=60).stdout.strip()


def asked(folder: Path, **words: Any) -> dict[str, Any]:
    """What a task asks for."""
    usual = {"path": str(folder / "site.pem"), "names": NAMES, "root": AUTHORITY.root, "spare_days": 30}
    return {**usual, "group": OWN_GROUP, "certificate": "", **words}


def requested(folder: Path, **words: Any) -> dict[str, Any]:
    """What the module says where nothing was signed yet."""
    return module.judged(asked(folder, **words), str(folder), check_mode=False)


def placed(folder: Path, certificate: str) -> dict[str, Any]:
    """What the module says of what was signed."""
    return module.placed(asked(folder, certificate=certificate), str(folder), check_mode=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a good certificate."""
    request = requested(tmp_path)["request"]
    placed(tmp_path, AUTHORITY.signed(request, NAMES))
    return tmp_path


def test_the_key_is_made_here_and_both_are_put_in_place_at_once(tmp_path: Path) -> None:
    first = requested(tmp_path)
    pending = module.pending(tmp_path / "site.pem")
    assert (first["changed"], first["why"], first["paths"]) == (True, "there is none", [str(tmp_path / "site.pem")])
    assert "PRIVATE KEY" not in first["request"]
    assert pending.stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "site.pem").exists()
    placed(tmp_path, AUTHORITY.signed(first["request"], NAMES))
    assert [file.name for file in tmp_path.iterdir()] == ["site.pem"]
    text = (tmp_path / "site.pem").read_text()
    assert (text.count("BEGIN CERTIFICATE"), text.count("PRIVATE KEY")) == (1, 2)
    assert (tmp_path / "site.pem").stat().st_mode & 0o777 == 0o640


def test_a_good_certificate_is_kept(folder: Path) -> None:
    before = (folder / "site.pem").read_bytes()
    answer = requested(folder, names=NAMES[::-1])
    assert (answer["changed"], answer["request"]) == (False, "")
    assert (folder / "site.pem").read_bytes() == before


def test_another_mode_is_set_right_without_a_new_certificate(folder: Path) -> None:
    (folder / "site.pem").chmod(0o644)
    assert requested(folder)["request"] == ""
    assert (folder / "site.pem").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"names": [*NAMES, "new.home.example"]}, "it is for api.home.example, chat.home.example"),
        ({"names": NAMES[:1]}, "it is for api.home.example, chat.home.example"),
        ({"root": OTHER.root}, "it is not signed by the root of this lab"),
        ({"spare_days": 91}, "it ends on "),
    ],
)
def test_one_that_is_not_as_asked_is_asked_for_anew(folder: Path, words: dict[str, Any], why: str) -> None:
    answer = requested(folder, **words)
    assert answer["why"].startswith(why)
    assert answer["request"].startswith("-----BEGIN CERTIFICATE REQUEST")


@pytest.mark.parametrize(("days", "is_due"), [(59, False), (61, True), (91, True)])
def test_it_is_due_when_less_than_a_third_is_left(tmp_path: Path, days: int, is_due: bool) -> None:
    signed = AUTHORITY.signed(requested(tmp_path)["request"], NAMES, datetime.now(UTC) - timedelta(days=days))
    key = module.pending(tmp_path / "site.pem").read_text()
    (tmp_path / "site.pem").write_text(signed + key)
    assert bool(requested(tmp_path)["request"]) == is_due


@pytest.mark.parametrize("text", ["", "nothing", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "ä"])
def test_what_is_none_is_asked_for_anew(folder: Path, text: str) -> None:
    (folder / "site.pem").write_text(text)
    assert requested(folder)["request"]


def test_a_key_of_another_certificate_is_asked_for_anew(folder: Path) -> None:
    certificate = (folder / "site.pem").read_text().partition("-----BEGIN PRIVATE KEY")[0]
    requested(folder, names=["x.example"])
    key = module.pending(folder / "site.pem").read_text()
    (folder / "site.pem").write_text(certificate + key)
    assert "do not belong together" in requested(folder)["why"]


@pytest.mark.parametrize(
    ("authority", "names"), [(OTHER, NAMES), (AUTHORITY, ["evil.example"])], ids=["another root", "another name"]
)
def test_what_was_signed_otherwise_takes_no_place(folder: Path, authority: Authority, names: list[str]) -> None:
    before = (folder / "site.pem").read_bytes()
    request = requested(folder, spare_days=91)["request"]
    with pytest.raises(module.UnusableError):
        placed(folder, authority.signed(request, names))
    assert (folder / "site.pem").read_bytes() == before
    assert sorted(file.name for file in folder.iterdir()) == [".site.pem.pending", "site.pem"]


def test_what_was_signed_for_another_key_takes_no_place(folder: Path) -> None:
    first = requested(folder, spare_days=91)["request"]
    requested(folder, spare_days=91)
    with pytest.raises(module.UnusableError, match="belong together"):
        placed(folder, AUTHORITY.signed(first, NAMES))


def test_in_check_mode_nothing_is_made(tmp_path: Path) -> None:
    answer = module.judged(asked(tmp_path), str(tmp_path), check_mode=True)
    assert (answer["changed"], answer["request"], list(tmp_path.iterdir())) == (True, "", [])


PAIR = signed("own", None, *NAMES)
WILD = signed("wild", None, "*.home.example")


def given(folder: Path, pair: Signed, *, key: str = "", check_mode: bool = False) -> dict[str, Any]:
    """What the module says of a pair that somebody gives."""
    words = asked(folder, certificate=pair.own, key=key or pair.key, root="")
    return module.given(words, str(folder), check_mode=check_mode)


@pytest.mark.parametrize("pair", [PAIR, WILD])
def test_a_given_pair_is_put_in_place_once(tmp_path: Path, pair: Signed) -> None:
    assert given(tmp_path, pair, check_mode=True)["changed"]
    assert list(tmp_path.iterdir()) == []
    assert given(tmp_path, pair)["paths"] == [str(tmp_path / "site.pem")]
    assert [file.name for file in tmp_path.iterdir()] == ["site.pem"]
    assert (tmp_path / "site.pem").read_text() == pair.own + pair.key
    assert (tmp_path / "site.pem").stat().st_mode & 0o777 == 0o640
    assert not given(tmp_path, pair)["changed"]
    assert not given(tmp_path, pair, check_mode=True)["changed"]


def test_another_pair_and_another_mode_are_put_right(tmp_path: Path) -> None:
    given(tmp_path, PAIR)
    (tmp_path / "site.pem").chmod(0o644)
    assert given(tmp_path, PAIR)["changed"]
    assert given(tmp_path, WILD)["changed"]
    assert (tmp_path / "site.pem").read_text() == WILD.own + WILD.key


@pytest.mark.parametrize(
    ("pair", "key", "why"),
    [
        (signed("one", None, NAMES[0]), "", "it is not for api.home.example, but for chat.home.example"),
        (signed("none"), "", "it is not for chat.home.example, api.home.example, but for no name"),
        (signed("old", None, *NAMES, ends=NOW - timedelta(hours=1)), "", "it expired on "),
        (signed("early", None, *NAMES, begins=NOW + timedelta(hours=1)), "", "it is not valid before "),
        (PAIR, WILD.key, "do not belong together"),
        (PAIR, PAIR.locked("canary"), "the key is encrypted"),
    ],
)
def test_a_given_pair_that_cannot_be_shown_takes_no_place(tmp_path: Path, pair: Signed, key: str, why: str) -> None:
    given(tmp_path, WILD)
    with pytest.raises(module.UnusableError, match=why) as caught:
        given(tmp_path, pair, key=key)
    assert "canary" not in str(caught.value)
    assert [file.name for file in tmp_path.iterdir()] == ["site.pem"]
    assert (tmp_path / "site.pem").read_text() == WILD.own + WILD.key
