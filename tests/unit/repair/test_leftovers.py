"""What still names a removed node, and the command to type about each line."""

from __future__ import annotations

import pytest

from provisioner.repair.facts import Storage
from provisioner.repair.leftovers import Leftovers, StorageChange, leftovers_from, storage_changes
from tests.case_files import read_cases

CASES = read_cases("repair/leftovers")

ANSWER: str = CASES["answer"]


def test_only_the_node_s_own_keys_are_its_own() -> None:
    found = leftovers_from(ANSWER, "pve3")
    assert found.keys == ("SHA256:ccc", "SHA256:ddd")
    assert found.host_names == ("pve3", "10.0.0.3")
    assert found.owners == {"pve1", "pve3", "pve33"}
    assert not found.is_clean
    assert not found.has_qdevice
    assert leftovers_from("qdevice\n", "pve3") == Leftovers(has_qdevice=True)


def test_references_alone_are_for_a_person() -> None:
    found = leftovers_from("line\tstorage.cfg\tnfs: big\tnodes pve3\n", "pve3")
    assert found.is_clean
    assert [one.command for one in found.references] == ["pvesm remove big"]


@pytest.mark.parametrize(("file", "section", "line", "command"), CASES["each line comes with what to type"])
def test_each_line_comes_with_what_to_type(file: str, section: str, line: str, command: str) -> None:
    (reference,) = leftovers_from(f"line\t{file}\t{section}\t  {line}\n", "pve3").references
    assert (reference.file, reference.line, reference.command) == (file, line, command)


def test_a_replication_job_is_one_of_its_own_kind() -> None:
    found = leftovers_from(ANSWER, "pve3")
    assert [(one.name, one.line) for one in found.replication] == [("100-0", "target pve3")]


def test_a_storage_s_list_gets_shorter_and_never_empty() -> None:
    storages = [
        Storage("everywhere", "dir", is_shared=False),
        Storage("two", "nfs", is_shared=True, nodes=("pve1", "pve3")),
        Storage("only", "zfspool", is_shared=False, nodes=("pve3",)),
        Storage("others", "nfs", is_shared=True, nodes=("pve1", "pve33")),
    ]
    assert storage_changes(storages, "pve3") == (StorageChange("two", ("pve1",)),)
