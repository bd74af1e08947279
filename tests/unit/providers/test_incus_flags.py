"""What an Incus' machine says that its processors can do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from provisioner.providers.incus.flags import flags_here, flags_in

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


def test_an_incus_without_sockets_does_not_tell() -> None:
    assert flags_in({"cpu": {"sockets": None, "total": 4}}) == frozenset()
