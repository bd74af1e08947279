"""What a playbook is told: the options of pvecm, the count of nodes afterwards, and nothing but JSON's types."""

from __future__ import annotations

import json

import pytest

from provisioner.repair.join import join_options, nodes_after, playbook_plan
from provisioner.repair.refusals import rejoin_proofs
from provisioner.repair.rejoining import Entry
from tests.unit.repair.rejoin_case import CASES, read_case, situation


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (Entry(3, 1, ("10.0.0.3",)), "--use_ssh --force --votes 1 --nodeid 3 --link0 10.0.0.3"),
        (Entry(None, 3, ("10.0.0.3",)), "--use_ssh --force --votes 3 --link0 10.0.0.3"),
        (
            Entry(4, 0, ("fd00::3", "10.1.0.3")),
            "--use_ssh --force --votes 0 --nodeid 4 --link0 fd00::3 --link1 10.1.0.3",
        ),
    ],
)
def test_the_options_keep_votes_id_and_every_link(entry: Entry, expected: str) -> None:
    assert join_options(entry) == expected.split()


@pytest.mark.parametrize("case", ["behind", "removed", "cut-off-at-the-end", "id-reused"])
def test_the_nodes_that_there_will_be_are_counted(case: str) -> None:
    assert nodes_after(situation(read_case(case))) == 3


@pytest.mark.parametrize("case", CASES)
def test_a_plan_is_of_json_and_goes_to_the_address_that_the_nodes_know(case: str) -> None:
    seen = situation(read_case(case))
    plan = playbook_plan(seen, rejoin_proofs(seen), "/var/lib/provisioner/repair/x", restores_sshd=False)
    assert json.loads(json.dumps(plan)) == plan
    assert ("join_options" in plan) == (seen.plan.entry is not None)
    if seen.plan.entry is not None:
        assert plan["lead_address"] == "10.0.0.1"
