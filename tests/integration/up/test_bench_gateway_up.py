"""``provision bench --kind llm`` of a real gateway before a real engine: what clients see is a little more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.engine_series import model_in
from tests.integration.up.measured_lab import brought_up
from tests.integration.up.quickstart_lab import Lab
from tests.lab.incus import Lab as Incus
from tests.lab_files import lab_text

pytestmark = [pytest.mark.incus, pytest.mark.slow]

NAME = "fronted"
ENGINE, GATEWAY = f"{NAME}-engine", f"{NAME}-gateway"
FILE = lab_text("bench_gateway")


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab, up."""
    folder = tmp_path_factory.mktemp(NAME)
    with pytest.MonkeyPatch.context() as patched:
        model_in(folder, patched.setattr)
    with brought_up(incus_lab, folder, NAME, FILE) as lab:
        yield lab


def measured(lab: Lab, name: str) -> dict[str, Any]:
    """The figures of a service by their names, without those of one depth."""
    found = lab.succeeded("bench", name, "--kind", "llm", "--yes", "--json", "--trials", "10", "--tokens", "256", "32")
    (one,) = found.result["results"]
    return {figure["name"]: figure for figure in one["figures"]} | {"options": one["options"]}


def test_a_gateway_is_measured_by_its_alias(lab: Lab) -> None:
    engine, gateway = measured(lab, ENGINE), measured(lab, GATEWAY)
    assert gateway["options"]["model"] == "fast"
    assert {"first token", "pp256", "tg32"} <= gateway.keys()
    assert gateway["first token"]["median"] > engine["first token"]["median"], "it asks the engine itself"
    for figure in (engine["tg32"], gateway["tg32"]):
        assert len(figure["trials"]) == 10


def test_nobody_tells_which_model_a_gateway_answers_with(lab: Lab) -> None:
    asked = ("bench", GATEWAY, "--kind", "llm", "--yes", "--trials", "10", "--tokens", "64", "16")
    assert lab.provision(*asked, "--accept").code == 0
    judged = lab.provision(*asked, "--gate")
    assert judged.code == 4
    assert "nobody tells which one it is" in judged.err


def test_no_secret_was_seen(lab: Lab) -> None:
    assert not lab.arguments_seen
