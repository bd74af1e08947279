"""Newer versions of a container's packages: a warning with the age of its lists, never a finding, nothing refreshed."""

from __future__ import annotations

import pytest

from provisioner.doctor.hosts import Newer, Packages, packages_diagnosis, packages_in

ANSWER = """\
lists 1814400
newer xrdp [0.9.21.1-1+deb12u1] (0.9.21.1-1+deb12u3 Debian-Security:12/stable-security [amd64])
newer tzdata [2024a-0+deb12u1] (2025b-0+deb12u2 Debian:12.12/oldstable [all])
newer linux-image-6 (6.1.0-40 Debian:12.12/oldstable [amd64])
"""
XRDP = Newer("xrdp", "0.9.21.1-1+deb12u1", "0.9.21.1-1+deb12u3", is_security=True)
TZDATA = Newer("tzdata", "2024a-0+deb12u1", "2025b-0+deb12u2", is_security=False)


def test_what_apt_says_is_read_and_a_package_that_is_only_new_is_none() -> None:
    assert packages_in(ANSWER) == Packages(1814400, (XRDP, TZDATA))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("", None),
        ("lists none\n", Packages(None)),
        ("lists -5\n", Packages(0)),
        ("lists 5\nnewer \x1b[31m\n", Packages(5)),
    ],
)
def test_what_a_container_may_say_else(answer: str, expected: Packages | None) -> None:
    assert packages_in(answer) == expected


@pytest.mark.parametrize(
    ("packages", "seen"),
    [
        (Packages(None), "it has no lists of packages, so nothing is known of newer versions"),
        (Packages(3600), "none is known to have a newer version; its lists are 1 hour old"),
        (Packages(2 * 86400), "none is known to have a newer version; its lists are 2 days old"),
    ],
)
def test_what_needs_no_warning(packages: Packages, seen: str) -> None:
    diagnosis = packages_diagnosis("desk", packages)
    assert (diagnosis.check.message, diagnosis.finding, diagnosis.warning) == (seen, None, None)


def test_security_is_named_first_and_the_rest_is_counted() -> None:
    many = tuple(Newer(f"p{number}", "1", "2", is_security=False) for number in range(9))
    warning = packages_diagnosis("desk", Packages(0, (*many, XRDP))).warning
    assert warning is not None
    assert warning.details.startswith("xrdp 0.9.21.1-1+deb12u1 → 0.9.21.1-1+deb12u3, p0 1 → 2")
    assert warning.details.endswith("p4 1 → 2 and 4 more")
