"""Module `provision_apt_key`: the fingerprint of a key, computed from its packets as RFC 4880 says."""

from __future__ import annotations

import base64
import hashlib

import pytest

from provisioner.ansible.modules import provision_apt_key

BODY = (
    bytes([4])
    + b"\x5f\x00\x00\x00"
    + bytes([22])
    + b"\x09\x2b\x06\x01\x04\x01\xda\x47\x0f\x01\x01\x07"
    + bytes(range(40))
)
FINGERPRINT = hashlib.sha1(b"\x99" + len(BODY).to_bytes(2, "big") + BODY).hexdigest().upper()  # noqa: S324  # what RFC 4880 says
USER = b"\xb4\x05penny"
SUBKEY = b"\xb8" + bytes([len(BODY)]) + BODY
HEADS = {
    "old": b"\x98" + bytes([len(BODY)]),
    "old, two bytes": b"\x99" + len(BODY).to_bytes(2, "big"),
    "new": b"\xc6" + bytes([len(BODY)]),
    "new, four bytes": b"\xc6\xff" + len(BODY).to_bytes(4, "big"),
}


@pytest.mark.parametrize("head", HEADS)
def test_the_primary_key_counts_and_its_subkeys_do_not(head: str) -> None:
    assert provision_apt_key.fingerprints(HEADS[head] + BODY + USER + SUBKEY) == [FINGERPRINT]


def test_an_armoured_key_is_the_same_one() -> None:
    text = base64.encodebytes(HEADS["old"] + BODY)
    armoured = (
        b"-----BEGIN PGP PUBLIC KEY BLOCK-----\nVersion: x\n\n" + text + b"=abcd\n-----END PGP PUBLIC KEY BLOCK-----\n"
    )
    assert provision_apt_key.fingerprints(armoured) == [FINGERPRINT]
    assert provision_apt_key.fingerprints(armoured.replace(b"\n", b"\r\n")) == [FINGERPRINT]


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", b"\x98"])
def test_what_is_no_key_has_none(content: bytes) -> None:
    assert provision_apt_key.fingerprints(content) == []


def test_a_second_key_in_the_ring_is_seen() -> None:
    assert len(provision_apt_key.fingerprints((HEADS["old"] + BODY + USER) * 2)) == 2
