"""``provision probe`` on a real host: a real llama-server whose ceiling is that of its container's memory.

The tests of this module build on each other, in their order.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from provisioner.inside.trial_unit import TRIAL
from provisioner.models import tiny as tiny_model
from provisioner.values.errors import ExitCode
from tests.integration.up.measured_lab import brought_up
from tests.integration.up.quickstart_lab import ENGINE_KEY, Lab, asked_meanwhile
from tests.lab.incus import Lab as Incus
from tests.lab_files import lab_text
from tests.processes import killed_at_end
from tests.waiting import wait_until

pytestmark = [pytest.mark.incus, pytest.mark.slow]

NAME = "ceiling"
RANGE = ("--from", "2048", "--to", "16384")
ENGINE = f"{NAME}-engine"
FILE = lab_text("probe")
DEEP = {"EMBEDDING": 64, "FEED_FORWARD": 64, "LAYERS": 64, "HEADS": 2, "CONTEXT": 4096}
"""32 KiB of cache for each token, and little to compute; eight requests share a context, of which one is asked."""
STEP = 8 * 256
SOON_S = 90
"""A trial is ended within ten seconds, and the engine has then to start again."""


KILLED: list[int] = []
"""Which contexts the run had tried, or begun to try, that was killed."""


def drawn(tensor: Any) -> bytes:
    """Weights of a tensor as large as no digest is long, by its name; those of a norm are ones."""
    count = 1
    for rows in tensor.shape:
        count *= rows
    if len(tensor.shape) == 1:
        return tiny_model.float_bytes([1.0] * count)
    chance = random.Random(tensor.name)  # noqa: S311  # the same each time
    return tiny_model.float_bytes([chance.uniform(-0.2, 0.2) for _ in range(count)])


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab, up."""
    folder = tmp_path_factory.mktemp(NAME)
    with pytest.MonkeyPatch.context() as patched:
        for name, value in DEEP.items():
            patched.setattr(tiny_model, name, value)
        patched.setattr(tiny_model._Tensor, "content", property(drawn))
        (folder / "deep.gguf").write_bytes(tiny_model.tiny_model())
    with brought_up(incus_lab, folder, NAME, FILE) as lab:
        yield lab


@contextmanager
def probing(lab: Lab) -> Iterator[subprocess.Popen[str]]:
    """A run of ``probe``, whose output can be read while it goes on; it is ended afterwards."""
    command = [str(Path(sys.executable).parent / "provision"), "probe", ENGINE, *RANGE, "--yes", "--json"]
    with killed_at_end(
        subprocess.Popen(
            command,
            cwd=lab.folder,
            env={**os.environ, **lab.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no thread runs
        )
    ) as run:
        yield run


def killed_in_its_second_try(lab: Lab) -> list[int]:
    """Which contexts a run had tried or begun to try when it was killed."""
    begun: list[int] = []
    with probing(lab) as run:
        assert run.stdout
        for line in run.stdout:
            found = re.fullmatch(r"([0-9,]+) tokens: trying", json.loads(line).get("message", ""))
            if found:
                begun.append(int(found[1].replace(",", "")))
            if len(begun) == 2:
                break
    return begun


def test_a_run_that_is_interrupted_ends_soon_and_leaves_an_engine_that_serves(lab: Lab) -> None:
    def trial_runs() -> bool:
        state = lab.incus("exec", ENGINE, "--", "systemctl", "is-active", TRIAL, check=False)
        return state.strip() == "active"

    with probing(lab) as run:
        wait_until(trial_runs, 120)
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=SOON_S)
    assert run.returncode == ExitCode.INTERRUPTED
    assert not trial_runs()
    assert lab.ask(ENGINE, 8080, "deep", ENGINE_KEY).status == 200
    # What the trial had under /run is the engine's own: it is asked with the key there before it ends.
    kept = lab.incus("exec", ENGINE, "--", "ls", "/run/llama-server")
    assert kept.split() == ["api-key"]


def test_a_run_that_is_killed_leaves_an_engine_that_up_starts_again(lab: Lab) -> None:
    tried = killed_in_its_second_try(lab)
    assert len(tried) == 2
    assert lab.incus("exec", ENGINE, "--", "systemctl", "is-active", "llama-server", check=False).strip() != "active"
    lab.succeeded("up", "--yes")
    assert lab.ask(ENGINE, 8080, "deep", ENGINE_KEY).status == 200
    assert lab.incus("exec", ENGINE, "--", "systemctl", "is-active", TRIAL, check=False).strip() != "active"
    KILLED[:] = tried


def test_the_ceiling_of_its_memory_is_found_and_whoever_asks_meanwhile_is_answered(lab: Lab) -> None:
    with asked_meanwhile(lab, ENGINE, "deep", pause_s=1, within_s=1200) as statuses:
        found = lab.provision("probe", ENGINE, *RANGE, "--yes", "--json", "--plot", "probe.svg", "--write")
    assert found.code == 0, found.out + found.err
    result = found.result
    outcomes = {one["context"]: one["outcome"] for one in result["tried"]}
    longest = result["longest"]
    assert 2048 <= longest < 16384
    assert outcomes[longest] == "answered"
    assert outcomes[longest + STEP] == "no room"
    assert f"{KILLED[0]:,} tokens: trying" not in found.out  # what the killed run had tried
    assert statuses
    assert {*statuses} == {200}
    written = (lab.folder / "homelab.yml").read_text(encoding="utf-8")
    assert written == FILE.replace("context: 2048", f"context: {longest}")
    assert "<svg" in (lab.folder / "probe.svg").read_text(encoding="utf-8")


def test_nothing_of_it_is_left_and_the_engine_serves_with_what_was_found(lab: Lab) -> None:
    left = lab.incus("exec", ENGINE, "--", "sh", "-c", "ls /run/systemd/system/ | grep provision-trial || true")
    assert left == ""
    lab.succeeded("up", "--yes")
    assert lab.provision("plan", "--detailed-exitcode").code == 0
    assert lab.provision("verify").code == 0


def test_the_next_run_knows_it(lab: Lab) -> None:
    again = lab.succeeded("probe", ENGINE, *RANGE, "--write")
    assert f"for {ENGINE}/llama_cpp." in again.out
    assert "already" in again.out


def test_no_secret_was_seen(lab: Lab) -> None:
    lab.shows_none_of(ENGINE_KEY)
