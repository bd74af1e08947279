"""One test per Molecule scenario: create, converge, again without a change, testinfra, destroy, in real containers."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from provisioner.values import paths
from tests.ansible_environment import ansible_environment
from tests.inputs.choice import DAY_S, leaves_out, records_folder
from tests.inputs.digests import Digests
from tests.inputs.machine import this_machine
from tests.inputs.parts import SCENARIOS
from tests.molecule import scenarios

ROOT = Path(__file__).resolve().parents[2]
MACHINE = this_machine(ROOT)
"""As it is before the first test: the lab, once it is up, says in the environment where it is."""
TIMEOUT_S = 1200


def molecule(*arguments: str, log: Path) -> int:
    """Run Molecule with its output in ``log``; its exit code, or 124 when it took longer than ``TIMEOUT_S``."""
    command = ("molecule", *arguments)
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | ansible_environment(ROOT),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            return 124
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            raise


@pytest.fixture(scope="module")
def digests() -> Digests:
    """What each scenario depends on, as it is when the first of them begins."""
    return scenario_digests()


def scenario_digests() -> Digests:
    """The same whether the lab is up by now or not."""
    return Digests(ROOT, records_folder(), MACHINE)


@pytest.mark.molecule
@pytest.mark.incus
@pytest.mark.parametrize("name", scenarios.names(ROOT))
def test_scenario(name: str, digests: Digests, run_started: float, request: pytest.FixtureRequest) -> None:
    cache = paths.cache() / "molecule"
    everything = request.config.getoption("--all")
    now = digests.digest(f"{SCENARIOS}::test_scenario[{name}]")
    elapsed, budget = time.time() - run_started, request.config.getoption("--budget-minutes") * 60
    record = scenarios.read_record(cache, name, younger_than_s=DAY_S if leaves_out(request.config) else math.inf)
    reason = scenarios.reason_to_skip(name, now, record, elapsed_s=elapsed, budget_s=budget)
    if reason and not everything:
        pytest.skip(reason)
    request.getfixturevalue("incus_lab")
    cache.mkdir(parents=True, exist_ok=True)
    log = cache / f"{name}.log"
    log.unlink(missing_ok=True)
    began = time.monotonic()
    code = molecule("test", "--scenario-name", name, log=log)
    if code:
        molecule("destroy", "--scenario-name", name, log=log)
        told = scenarios.what_failed(log.read_text(encoding="utf-8", errors="replace"))
        pytest.fail(f"molecule test --scenario-name {name} exited {code}; from {log}:\n{told}", pytrace=False)
    scenarios.write_record(cache, name, scenarios.Record(now, round(time.monotonic() - began, 1)))
