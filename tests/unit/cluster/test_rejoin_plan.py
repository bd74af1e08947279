"""Which repair a stale node gets and what is in its way: each case is a file in ``tests/cases/cluster/rejoin``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from provisioner.cluster.rejoin_plan import RejoinPlan
from provisioner.cluster.rejoin_preconditions import Proof, rejoin_proofs
from tests.unit.cluster.rejoin_case import CASES, read_case, situation


@pytest.mark.parametrize("name", CASES)
def test_the_case_is_judged_as_it_says(name: str) -> None:
    case = read_case(name)
    seen = situation(case)
    check_plan(seen.plan, case["expect"])
    check_proofs(rejoin_proofs(seen), case["expect"])


def check_plan(plan: RejoinPlan, expected: Mapping[str, Any]) -> None:
    assert plan.kind.name == expected["kind"], plan.reasons
    for words in expected.get("reasons", ()):
        assert words in "\n".join(plan.reasons)
    assert plan.resumes == expected.get("resumes", False)
    assert plan.is_joined == expected.get("is_joined", False)
    assert plan.restarts == expected.get("restarts", plan.restarts)
    if "entry" in expected:
        assert plan.entry is not None
        entry = {"nodeid": plan.entry.nodeid, "votes": plan.entry.votes, "replaces": plan.entry.replaces}
        assert {**entry, "addresses": list(plan.entry.addresses)} == expected["entry"]


def check_proofs(proofs: tuple[Proof, ...], expected: Mapping[str, Any]) -> None:
    assert len(proofs) == expected.get("proofs", len(proofs)), [one.what for one in proofs]
    refused = {one.what: one.seen for one in proofs if not one.holds}
    assert refused.keys() == expected.get("refused", {}).keys(), refused
    seen = {one.what: one.seen for one in proofs}
    for what, words in {**expected.get("refused", {}), **expected.get("seen", {})}.items():
        assert words in seen[what]
    advice = "\n".join(one.advice for one in proofs if not one.holds)
    for words in expected.get("advice", ()):
        assert words in advice


def test_every_refusal_says_what_to_do() -> None:
    judged = [rejoin_proofs(situation(read_case(name))) for name in CASES]
    told = {one.what: one.advice for proofs in judged for one in proofs if not one.holds}
    assert len(told) >= 11
    assert [what for what, advice in told.items() if not advice] == []
