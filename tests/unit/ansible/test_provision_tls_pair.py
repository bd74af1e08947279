"""Module `provision_tls_pair`: which pairs are refused and with which words, and when its own is made anew."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from provisioner.ansible.modules import provision_tls_pair as tls_pair
from tests.tls_pairs import CURVE, dated_pair, expired_pair


def made(folder: Path, *words: str) -> tuple[str, str]:
    """A pair of openssl's making."""
    key, certificate = folder / "k.pem", folder / "c.pem"
    command = ["openssl", "req", "-x509", *CURVE, *words, f"-keyout={key}", f"-out={certificate}"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return certificate.read_text(), key.read_text()


@pytest.fixture
def placing(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What would be written, instead of writing it as root."""
    written: list[tuple[str, ...]] = []

    def placed(_files: object, contents: tuple[str, ...], _group: str, *, check_mode: bool) -> bool:
        written.append(contents)
        return not check_mode

    monkeypatch.setattr(tls_pair, "placed", placed)
    return written


def asked(folder: Path, content: str = "", key: str = "") -> dict[str, Any]:
    files = {"certificate": folder / "own.crt", "key": folder / "own.key"}
    return {**files, "content": content, "key_content": key, "group": "xrdp", "name": "desk"}


def test_a_pair_that_is_good_is_placed_and_says_until_when(tmp_path: Path, placing: list[tuple[str, ...]]) -> None:
    pair = made(tmp_path, "-days=90")
    changed, until = tls_pair.ensured(asked(tmp_path, *pair), check_mode=False, folder=str(tmp_path))
    assert changed
    assert until.endswith("GMT")
    assert placing == [tuple(one.strip() + "\n" for one in pair)]


def refused(folder: Path, content: str, key: str) -> str:
    with pytest.raises(ValueError, match=r".+") as error:
        tls_pair.ensured(asked(folder, content, key), check_mode=False, folder=str(folder))
    return str(error.value)


def test_bad_pairs_are_refused_each_in_its_own_words(tmp_path: Path, placing: list[tuple[str, ...]]) -> None:
    good, other = made(tmp_path, "-days=90"), made(tmp_path, "-days=90")
    command = ["openssl", "pkey", "-aes128", "-passout=pass:x"]
    locked = subprocess.run(command, input=good[1], capture_output=True, text=True, check=True, timeout=60).stdout
    assert "do not belong together" in refused(tmp_path, good[0], other[1])
    assert "the key is encrypted" in refused(tmp_path, good[0], locked)
    assert "the certificate is no PEM text" in refused(tmp_path, "/etc/cert.pem", good[1])
    assert "the key is no PEM text" in refused(tmp_path, good[0], "")
    assert "OpenSSL cannot read the pair" in refused(tmp_path, good[0].replace("M", "N", 3), good[1])
    assert placing == []


def test_one_whose_time_is_over_or_to_come_says_when(tmp_path: Path, placing: list[tuple[str, ...]]) -> None:
    assert "the certificate expired on Jan  1 00:00:00 2021 GMT" in refused(tmp_path, *expired_pair(tmp_path))
    later = dated_pair(tmp_path, "20900101000000Z", "20910101000000Z")
    assert "the certificate is not valid before Jan  1 00:00:00 2090 GMT" in refused(tmp_path, *later)
    assert placing == []


def test_its_own_is_made_where_there_is_none_or_soon_none(tmp_path: Path, placing: list[tuple[str, ...]]) -> None:
    request = asked(tmp_path)
    assert tls_pair.ensured(request, check_mode=True, folder=str(tmp_path)) == (True, "")
    assert placing == []
    changed, _ = tls_pair.ensured(request, check_mode=False, folder=str(tmp_path))
    assert changed
    ((certificate, key),) = placing
    assert "CERTIFICATE" in certificate
    for file, text in zip(("own.crt", "own.key"), made(tmp_path, "-days=3"), strict=True):
        (tmp_path / file).write_text(text)
    tls_pair.ensured(request, check_mode=False, folder=str(tmp_path))
    assert placing[-1] not in [
        (certificate, key),
        tuple((tmp_path / file).read_text() for file in ("own.crt", "own.key")),
    ]
    (tmp_path / "own.crt").write_text(certificate)
    (tmp_path / "own.key").write_text(key)
    tls_pair.ensured(request, check_mode=False, folder=str(tmp_path))
    assert placing[-1] == (certificate, key)
