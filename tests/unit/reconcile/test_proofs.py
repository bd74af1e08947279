"""What proofs asked is kept for the next page: by services, with its time, and without a secret."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from provisioner.reconcile.prove import FILE, MOST_CHARACTERS, MOST_STEPS, Proved, ended_proofs, proofs_in, remember
from provisioner.values import paths
from provisioner.values.address import Address
from provisioner.values.facts import DeviceMemory, Proof, ProofStep
from provisioner.values.state import Secret

ENGINE, GATEWAY = Address("llama/llama_cpp"), Address("gateway/litellm")
AT = "2026-11-28T12:00:00+00:00"
CANARY = "sk-canary-0b71"
ASKED = ProofStep(ENGINE, "Ask which model is served", well=True, took_s=0.5)
REFUSED = ProofStep(ENGINE, "Ask without the key", well=False, words=f"HTTP 200 with {CANARY}")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return paths.state("lab") / FILE


def test_a_proof_is_its_steps_and_what_was_said_of_it() -> None:
    facts = (ASKED, DeviceMemory(ENGINE, 7), REFUSED, Proof(ENGINE, "it failed"), Proof(GATEWAY))
    found = ended_proofs("verify", AT, facts)
    assert found[ENGINE] == Proved(AT, "verify", (ASKED, REFUSED), "it failed")
    assert found[GATEWAY] == Proved(AT, "verify", ())


def test_of_a_run_that_judges_nothing_the_failed_step_says_why() -> None:
    failed = {ENGINE.container}
    assert ended_proofs("up", AT, [ASKED, REFUSED], failed)[ENGINE].failure == REFUSED.words
    silent = ProofStep(ENGINE, "Look", well=False)
    assert ended_proofs("up", AT, [silent], failed)[ENGINE].failure == "Look: failed"
    assert ended_proofs("up", AT, [ASKED], failed) == {}, "it may not have come to its end"
    assert ended_proofs("up", AT, [ASKED])[ENGINE].failure == ""
    late = ended_proofs("up", AT, [*[ASKED] * MOST_STEPS, REFUSED], failed)[ENGINE]
    assert (late.failure, len(late.steps)) == (REFUSED.words, MOST_STEPS)
    assert ended_proofs("up", AT, [ASKED, REFUSED])[ENGINE].failure == "", "its role has made up for it"


def test_what_is_kept_is_for_the_owner_alone_and_holds_no_secret(state: Path) -> None:
    proved = Proved(AT, "verify", (ASKED, REFUSED), f"said {CANARY}")
    remember("lab", {ENGINE: proved}, [Secret("key", CANARY)])
    assert stat.S_IMODE(state.stat().st_mode) == 0o600
    assert CANARY not in state.read_text()
    kept = proofs_in("lab")[ENGINE]
    assert kept.steps[0] == ASKED
    assert "********" in kept.steps[1].words
    assert "********" in kept.failure


def test_what_came_is_kept_and_records_of_earlier_versions_are_read(state: Path) -> None:
    heard = ProofStep(ENGINE, "Check the answer", well=True, words=f"Hello {CANARY}\nHTTP 200")
    remember("lab", {ENGINE: Proved(AT, "up", (heard,))}, [Secret("key", CANARY)])
    assert CANARY not in state.read_text()
    assert proofs_in("lab")[ENGINE].steps[0].words == "Hello ********\nHTTP 200"
    step = '{"asked": "Ask", "well": true, "words": "", "took_s": 0.5}'
    state.write_text(f'{{"{ENGINE}": {{"at": "{AT}", "verb": "up", "failure": "", "steps": [{step}]}}}}')
    assert proofs_in("lab")[ENGINE].steps == (ProofStep(ENGINE, "Ask", well=True, took_s=0.5),)


def test_services_that_were_not_asked_keep_their_last_proof() -> None:
    remember("lab", {ENGINE: Proved(AT, "up", (ASKED,))})
    remember("lab", {GATEWAY: Proved(AT, "verify", ())})
    remember("lab", {})
    assert {address: one.verb for address, one in proofs_in("lab").items()} == {ENGINE: "up", GATEWAY: "verify"}


def test_a_container_cannot_fill_the_disk() -> None:
    long = ProofStep(ENGINE, "Look", well=False, words="x" * 10**6)
    remember("lab", ended_proofs("up", AT, [long] * (MOST_STEPS + 1)))
    kept = proofs_in("lab")[ENGINE]
    assert (len(kept.steps), len(kept.steps[0].words)) == (MOST_STEPS, MOST_CHARACTERS)


@pytest.mark.parametrize(
    "content", ["", "cut {", "[]", '{"a/b": 1}', '{"a/b": {"at": "", "verb": "", "failure": "", "steps": [1]}}']
)
def test_what_cannot_be_read_is_as_if_it_were_not_there(state: Path, content: str) -> None:
    state.parent.mkdir(parents=True)
    state.write_text(content)
    assert proofs_in("lab") == {}
    remember("lab", {ENGINE: Proved(AT, "up", (ASKED,))})
    assert proofs_in("lab")[ENGINE].steps == (ASKED,)
