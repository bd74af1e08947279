"""A container whose agent lies, in a real lab: each answer has an end and its name, and the other notices nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.reconcile import gather
from provisioner.values import limits
from tests.attackers import answers
from tests.integration.up.drift_lab import DriftLab
from tests.lab.incus import Lab as Incus

pytestmark = [pytest.mark.incus, pytest.mark.slow]

NAME, LIAR, WELL = "lies", "lies-one", "lies-two"
FILE = f"""
name: {NAME}
containers:
  {LIAR}: {{ cpu: 1, memory: 512MiB, disk: 1GiB }}
  {WELL}: {{ cpu: 1, memory: 512MiB, disk: 1GiB }}
"""
LASTS_S = 120
SPARE_S = 20
"""What a verb takes besides on a machine that others use."""
MUCH = "more than 16 MiB"
LATE = f"killed after {gather.TIMEOUT_S:.0f} s"
SAID = {
    **dict.fromkeys(answers.LIES, "its answer is damaged"),
    "nothing": "python3 said nothing",
    "fails": "octocat",
    **dict.fromkeys(answers.GOING_ON, LATE),
    "one line": MUCH,
    "lines": MUCH,
}
"""By mode of the attacker what is said of it."""


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DriftLab]:
    """Two containers, up, of which one answers by the attacker; afterwards both are as they were."""
    lab = DriftLab(tmp_path_factory.mktemp(NAME), incus_lab.environment, "debian/12", "debian/12", name=NAME)
    lab.write(FILE)
    with lab.brought_up():
        program = f"#!{answers.TRUE}\n{Path(answers.__file__).read_text(encoding='utf-8')}"
        lab.effects.providers["local"].push(LIAR, program.encode(), "/usr/local/bin/python3", mode=0o755)
        yield lab
        lab.sh(LIAR, "rm /usr/local/bin/python3")
        assert lab.look() == {}


@pytest.mark.parametrize("mode", SAID)
def test_what_one_answers_is_its_own_affair(lab: DriftLab, mode: str) -> None:
    lab.sh(LIAR, f"echo '{mode} {LASTS_S}' > {answers.MODE}")
    began = time.monotonic()
    planned = lab.provision("plan")
    assert time.monotonic() - began < gather.TIMEOUT_S + limits.KILL_S + SPARE_S
    assert planned.code == 1
    assert SAID[mode] in planned.err
    assert LIAR in planned.err
    assert WELL not in planned.err
    assert f"provision exec {LIAR}" in planned.err
    assert {"\x07", "\x9b", "\u202e", "\x00", "\x1b"}.isdisjoint(planned.err)
    assert len(planned.err) < 20_000


@pytest.mark.parametrize("mode", ["half", "falls silent", "one line"])
def test_the_others_are_told_of_as_always(lab: DriftLab, mode: str) -> None:
    lab.sh(LIAR, f"echo '{mode} {LASTS_S}' > {answers.MODE}")
    told = lab.succeeded("status", "--json")
    drift = {line["name"]: line["drift"] for line in told.lines if line["type"] == "container"}
    assert drift.pop(WELL) == []
    (reason,) = drift[LIAR]
    assert reason.startswith("base: it cannot be looked into: ")
