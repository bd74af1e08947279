"""Two labs of one Incus want the same artifact at the same time: one run makes it, the other one waits."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest

from provisioner.hosts.incus import IncusProvider
from provisioner.reconcile import volumes
from provisioner.values.state import VOLUME_PREFIX, short_digest
from tests.processes import killed_at_end

pytestmark = [pytest.mark.incus, pytest.mark.guarantee("locks")]

FILE = """\
name: {lab}
hosts: {{ {host}: {{ incus: local }} }}
models:
  tiny: {{ source: "builtin:tiny" }}
containers:
  {lab}-llama:
    services:
      llama_cpp: {{ model: tiny, api_key: only-for-a-plan }}
"""
RUN = """
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from provisioner.cli.effects import providers_of
from provisioner.lab import desired_fleet
from provisioner.lab.opening import find_files, open_lab
from provisioner.reconcile.artifacts import ensure_artifacts
from provisioner.reconcile.runner import run_playbook

file, digest = Path(sys.argv[1]), sys.argv[2]
say = partial(print, flush=True)
lab = open_lab(file)
providers = providers_of(lab)
seen = {name: provider.observe(lab.name).hosts[name] for name, provider in providers.items()}
fleet = desired_fleet(lab.resolved, find_files(lab).hashed(say).files, seen)
model = next(artifact for artifact in fleet.artifacts if artifact.name == "model-tiny")
wanted = replace(model, digest=digest, cacheable=False)
say("ready")
sys.stdin.readline()
run = partial(run_playbook, folder=lab.folder)
ensure_artifacts([wanted], providers, lab.name, run_playbook=run, emit=say, cache=file.parent / "cache")
say("done")
"""


@dataclass
class Run:
    """A process that makes the model for its lab when it is told to."""

    process: subprocess.Popen[str]
    told: list[str]

    def until(self, words: str) -> str:
        """Read until a line has these words; the line."""
        assert self.process.stdout
        for line in self.process.stdout:
            self.told.append(line)
            if words in line:
                return line
        raise AssertionError(f"it ended without {words!r}:\n{''.join(self.told)}")

    def go_on(self) -> None:
        """Let it make the model."""
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()


@dataclass(frozen=True)
class Shared:
    """One content that two labs want; ``names`` are the labs'."""

    box: IncusProvider
    folder: Path
    names: tuple[str, str]
    digest: str

    @property
    def volume(self) -> str:
        """The name of its volume."""
        return f"{VOLUME_PREFIX}model-tiny-{short_digest(self.digest)}"

    @contextmanager
    def run(self, lab: str, host: str = "box") -> Iterator[Run]:
        """A process that is ready; it is gone after the block."""
        folder = self.folder / lab
        folder.mkdir()
        file = folder / "homelab.yml"
        file.write_text(FILE.format(lab=lab, host=host), encoding="utf-8")
        command = (sys.executable, "-c", RUN, str(file), self.digest)
        pipe, both = subprocess.PIPE, subprocess.STDOUT
        with killed_at_end(
            subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=both, text=True, start_new_session=True)
        ) as process:
            started = Run(process, [])
            started.until("ready")
            yield started

    def left(self) -> list[str]:
        """What is there of these labs beside the volume: containers and locks."""
        containers = [container.name for lab in self.names for container in self.box.observe(lab).instances]
        locks = self.box.locks.read(volumes.LOCKS)
        return containers + [name for name, written in locks.items() if written.get("lab") in self.names]


@pytest.fixture
def shared(incus_lab: object, tmp_path: Path) -> Iterator[Shared]:
    """A content that nobody else wants."""
    assert incus_lab
    names = (f"t{secrets.token_hex(4)}", f"t{secrets.token_hex(4)}")
    shared = Shared(IncusProvider("box"), tmp_path, names, sha256(secrets.token_bytes(16)).hexdigest())
    yield shared
    for lab in names:
        for container in shared.box.observe(lab).instances:
            shared.box.delete(container)
        volumes.delete_begun(lab, [shared.box])
        volumes.release(lab, [shared.box])
    shared.box.volumes.delete(shared.volume)


def test_the_second_lab_waits_and_takes_what_the_first_has_made(shared: Shared) -> None:
    first, second = shared.names
    with shared.run(first) as one, shared.run(second) as other:
        one.go_on()
        one.until("ApplyStart")
        other.go_on()
        assert f"lab {first} builds it since " in other.until(" since ")
        one.until("done")
        other.until("done")
    assert not any("model_store" in line or "Copy" in line for line in other.told), other.told
    assert shared.volume in shared.box.volumes.ready()
    assert shared.left() == []


@pytest.mark.parametrize("host", ["box", "machine"], ids=["one name of the host", "two names"])
def test_the_second_lab_builds_when_the_first_is_killed(shared: Shared, host: str) -> None:
    first, second = shared.names
    with shared.run(first, host) as one, shared.run(second) as other:
        one.go_on()
        one.until("ApplyProgress")
        other.go_on()
        other.until(f"lab {first} builds it since ")
        one.process.kill()
        other.until("done")
    assert shared.volume in shared.box.volumes.ready()
    assert shared.left() == []


def test_what_another_lab_has_found_is_not_deleted_and_has_then_nobody_else(shared: Shared) -> None:
    first, second = shared.names
    with shared.run(first) as one:
        one.go_on()
        one.until("done")
    written = {"lab": second, "volumes": shared.volume, "nonce": "n"}
    assert shared.box.locks.create(f"{volumes.CLAIMS}{second}", written)
    volumes.delete_unused([shared.volume], first, shared.box)
    assert shared.volume in shared.box.volumes.ready()
    volumes.release(second, [shared.box])
    volumes.delete_unused([shared.volume], first, shared.box)
    assert shared.volume not in shared.box.volumes.ready()
