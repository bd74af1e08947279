"""What the role's variables and the modules of its proof say twice is the same."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from provisioner import agent
from provisioner.ansible.modules import provision_card_memory, provision_engine_verdict
from provisioner.values import paths

ROLE = paths.roles() / "llama_cpp"
VARIABLES: dict[str, Any] = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))


def test_the_unit_asks_the_cards_as_the_proof_does_later() -> None:
    assert VARIABLES["__llama_cpp_card_query"].split() == list(provision_card_memory.QUERY)
    unit = (ROLE / "templates/llama-server.service.j2").read_text(encoding="utf-8")
    assert 'echo "$$INVOCATION_ID"; timeout 60 {{ __llama_cpp_card_query }}' in unit


def test_the_limit_of_what_can_be_measured_is_one_number() -> None:
    assert VARIABLES["__llama_cpp_provable_bytes"] == provision_engine_verdict.PROVABLE


def test_the_agent_reads_where_the_proof_writes() -> None:
    assert VARIABLES["__llama_cpp_proofs"] == agent.PROOFS


@pytest.mark.parametrize("words", ["offloaded 33/33 layers to GPU", "CUDA0 model buffer size =  4403.49 MiB"])
def test_the_journal_is_asked_for_all_that_is_judged(words: str) -> None:
    asked = VARIABLES["__llama_cpp_device_words"].replace(
        "{{ __llama_cpp_fallback_words }}", VARIABLES["__llama_cpp_fallback_words"]
    )
    assert re.search(asked, words)
    fallback = VARIABLES["__llama_cpp_fallback_words"].split("|")
    assert [one for one in fallback if not provision_engine_verdict.FALLBACK.search(one)] == []
