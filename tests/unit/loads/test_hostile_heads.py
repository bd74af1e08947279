"""Heads that contradict themselves, or say 2^60 of anything: added up, or unknown, and nothing else.

Generated: each number of real heads (``tests/data/architectures.tar.xz``) in turn has each hostile value; the values
begin at another place with each key, so that each meets each architecture.
"""

from __future__ import annotations

import itertools
import json
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from provisioner.catalog import load_catalog
from provisioner.lab import Known, resolve
from provisioner.loads.advice import advice_on
from provisioner.loads.budgets import budgets
from provisioner.loads.engines import EngineLoads
from provisioner.loads.terms import largest_context, terms_of
from provisioner.models.folders import FolderError, header_of
from provisioner.models.gguf import read_head
from provisioner.models.header import Header
from provisioner.services import knowledge_of
from provisioner.services.llama_cpp.loads import loads_of
from provisioner.values.address import Address
from tests.lab_files import spec_of
from tests.unit.loads.vllm_sums import COUNTED, Counted
from tests.unit.services.llama_cpp.servers import resolved, spec_with

HEADS = Path(__file__).parents[2] / "data/architectures.tar.xz"
NAMES = ("llama-dense", "qwen35-dense", "gemma3-dense", "deepseek2-moe", "nemotron_h-dense", "lfm2-dense", "mimo2-moe")
HOSTILE: tuple[Any, ...] = (0, -1, 1, 2**31, 2**60, -(2**60), True, [], [2**60] * 3, [-1, 5], [1] * 5000)
MEMORY = 8 * 2**30
EACH = 3
"""Values that each key has."""
FOLDERS = [one for one in COUNTED if one.name in ("dense", "window", "delta nets and experts", "Mamba", "one vector")]
KEY = "a-key-of-the-lab-0123"
FOLDER_OF = {
    role: spec_of(
        {
            "name": "lab",
            "models": {"m": {"source": "dir:/srv/m", "format": form}},
            "containers": {"a": {"gpu": "any", "services": {role: {"model": "m", "api_key": KEY, **more}}}},
        }
    )
    for role, form, more in (("vllm", "safetensors", {}), ("tabbyapi", "exl3", {"admin_key": f"{KEY}4"}))
}


def hostile(head: Header) -> Iterator[tuple[str, Any, Header]]:
    """Each key with some of the values, and the head that says so."""
    values = itertools.cycle(HOSTILE)
    for key in sorted(head.values):
        if key.startswith(f"{head.architecture}."):
            for value in itertools.islice(values, EACH):
                yield key, value, replace(head, values={**head.values, key: value})


@pytest.mark.parametrize("name", NAMES)
def test_hostile_heads_are_added_up_or_unknown(name: str) -> None:
    with tarfile.open(HEADS) as packed:
        file = packed.extractfile(f"{name}.gguf")
        assert file is not None
        head = read_head(BytesIO(file.read()).read, 1 << 24)
    tried = 0
    for key, value, broken in hostile(head):
        lab = resolved(spec_with({"context": 2048, "parallel": 2, "backend": "cuda"}), {"m": broken})
        engine = loads_of(lab.services[Address.of("a", "llama_cpp")], {"m": 10**7}, MEMORY)
        added_up_or_unknown(engine, (key, value))
        tried += 1
    assert tried > 100


def added_up_or_unknown(engine: EngineLoads, why: tuple[str, Any]) -> None:
    (budget,) = budgets([engine], {}, MEMORY)
    terms = [term.bytes for load in engine.loads for term in terms_of(load)]
    assert min(terms, default=0) >= 0, why
    assert all(one.total is None or one.total >= 0 for one in advice_on(budget)), why
    assert all(largest_context(load, MEMORY) >= 0 for load in engine.loads), why


@pytest.mark.parametrize("role", ["vllm", "tabbyapi"])
@pytest.mark.parametrize("counted", FOLDERS, ids=lambda counted: counted.kind)
def test_hostile_folders_are_added_up_or_unknown(counted: Counted, role: str) -> None:
    values = itertools.cycle(HOSTILE)
    for key in sorted(counted.config.keys() - {"model_type", "architectures"}):
        for value in itertools.islice(values, EACH):
            with suppress(FolderError):
                header = header_of(json.dumps({**counted.config, key: value}).encode())
                service = resolve(FOLDER_OF[role], load_catalog(), Known(headers={"m": header})).services[
                    Address.of("a", role)
                ]
                engine = knowledge_of(role).loads(service, {"m": 10**7}, MEMORY)
                assert engine is not None
                added_up_or_unknown(engine, (key, value))
