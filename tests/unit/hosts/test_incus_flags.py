"""What an Incus' machine says that its processors can do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from provisioner.hosts.incus.api import WireError
from provisioner.hosts.incus.observe import EXTENSION, flags_here, flags_in, flags_of

CPUINFO = """\
processor\t: 0
vendor_id\t: GenuineIntel
flags\t\t: fpu avx2 avx512f
vmx flags\t: vnmi

processor\t: 1
flags\t\t: fpu
"""


def test_this_machine_is_read_up_to_its_first_processor(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(CPUINFO, encoding="ascii")
    assert flags_here(tmp_path / "cpuinfo") == {"fpu", "avx2", "avx512f"}


@pytest.mark.parametrize("text", [None, "", "processor\t: 0\nFeatures\t: fp asimd\n", "vmx flags\t: vnmi\n"])
def test_a_kernel_that_does_not_tell_is_no_error(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text, encoding="ascii")
    assert flags_here(tmp_path / "cpuinfo") == frozenset()


@pytest.mark.parametrize(
    ("cores", "flags"),
    [
        ([{"flags": ["fpu", "avx2"]}, {"flags": ["avx2", "fpu", "amx_int8"]}], {"fpu", "avx2"}),
        ([{"flags": ["fpu"]}, {"flags": None}], set()),
        ([{"core": 0}], set()),
        ([], set()),
    ],
)
def test_of_a_machine_elsewhere_counts_what_all_of_its_cores_can_do(cores: list[Any], flags: set[str]) -> None:
    assert flags_in({"cpu": {"sockets": [{"cores": cores[:1]}, {"cores": cores[1:]}]}}) == flags


class Incus:
    """One that tells what its machine has, or refuses with a status."""

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.asked: list[tuple[str, ...]] = []

    def get(self, *path: str) -> Any:
        """Its answer."""
        self.asked.append(path)
        if self.status:
            raise WireError(self.status, "no")
        return {"cpu": {"sockets": [{"cores": [{"flags": ["avx2"]}]}]}}


TELLS = {"api_extensions": ["resources", EXTENSION]}


def test_an_incus_elsewhere_is_asked_where_it_knows_the_question() -> None:
    incus = Incus()
    assert flags_of(incus, TELLS, is_remote=True) == {"avx2"}
    assert incus.asked == [("resources",)]
    older = Incus()
    assert flags_of(older, {"api_extensions": ["resources"]}, is_remote=True) == frozenset()
    assert older.asked == []


def test_the_incus_of_this_machine_is_not_asked() -> None:
    incus = Incus()
    assert flags_of(incus, TELLS, is_remote=False) == flags_here()
    assert incus.asked == []


def test_who_may_not_ask_does_not_know_and_another_refusal_is_an_error() -> None:
    assert flags_of(Incus(403), TELLS, is_remote=True) == frozenset()
    with pytest.raises(WireError):
        flags_of(Incus(500), TELLS, is_remote=True)


def test_an_incus_without_sockets_does_not_tell() -> None:
    assert flags_in({"cpu": {"sockets": None, "total": 4}}) == frozenset()
