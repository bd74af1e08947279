"""Module `provision_password`: which hash is a password's, by the system's own crypt."""

from __future__ import annotations

import subprocess

import pytest

from provisioner.ansible.modules import provision_password

SHADOW = "root:*:19000::::::\npenny:$6$salt$hash:19000::::::\nann:!:19000::::::\n"
YESCRYPT = "$y$j9T$F5Jx5fExrKuPp53xLKQ..1$X3DX6M94c7o.9agCG9G317fhZg9SqC.5i5rd.RhAtQ7"
"""The example of crypt(5), of the password "password"."""


@pytest.mark.parametrize(("name", "stored"), [("penny", "$6$salt$hash"), ("ann", "!"), ("bob", None)])
def test_the_hash_is_the_accounts(name: str, stored: str | None) -> None:
    assert provision_password.stored_hash(SHADOW, name) == stored


def test_a_hash_fits_its_password_alone() -> None:
    command = ["openssl", "passwd", "-6", "-salt", "abcdefgh", "-stdin"]
    made = subprocess.run(
        command, input="canary", capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()
    assert provision_password.fits("canary", made)
    assert not provision_password.fits("canary2", made)


@pytest.mark.parametrize("stored", ["", "!", "*", "!$6$salt$hash", "$6$"])
def test_what_is_locked_or_none_fits_nobody(stored: str) -> None:
    assert not provision_password.fits("", stored)
    assert not provision_password.fits("canary", stored)
