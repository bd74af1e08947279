"""Containers that do not answer, or never stop: each is named, all has an end, and the others answer as always."""

from __future__ import annotations

import resource
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from provisioner.hosts.incus import IncusProvider, files
from provisioner.hosts.proxmox import ProxmoxProvider, execute
from provisioner.reconcile import gather
from provisioner.values import limits
from provisioner.values.errors import ProviderError
from provisioner.values.facts import DamagedArtifacts, Leftovers, NoAgent, Silent, of_kind
from provisioner.values.state import Instance
from tests.doubles.proxmox.fixture import PveHost

MIB = 2**20
HANG = b"#!/bin/bash\nexec -a hanging sleep infinity\n"
FLOOD = b"#!/bin/bash\nexec yes 'this goes on for ever'\n"


@pytest.fixture(scope="module")
def hostile(provider: IncusProvider) -> Iterator[dict[str, Instance]]:
    """Running containers: one as it should be, one whose programs hang, two that print for ever."""
    lab = f"t{secrets.token_hex(4)}"
    made = {kind: Instance(f"{lab}-{kind}", "box", lab, "debian/12") for kind in ("well", "hang", "flood", "errors")}
    programs = {"hang": HANG, "flood": FLOOD, "errors": FLOOD.replace(b"'\n", b"' >&2\n")}
    for kind, one in made.items():
        provider.create(one)
        provider.start(one)
        for name in ("python3", "sh"):
            if kind in programs:
                provider.push(one.name, programs[kind], f"/usr/local/bin/{name}", mode=0o755)
    yield made
    for one in made.values():
        provider.delete(one)


def test_what_hangs_or_never_ends_is_named_and_keeps_no_other_from_answering(
    provider: IncusProvider, hostile: dict[str, Instance], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gather, "TIMEOUT_S", 4.0)
    monkeypatch.setattr(limits, "KILL_S", 3.0)
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    facts = gather.probe(list(hostile.values()), {"box": provider})
    assert time.monotonic() - began < 30
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 256 * MIB
    said = {str(silent.address): str(silent.error) for silent in of_kind(facts, Silent)}
    assert said.keys() == {hostile[kind].name for kind in ("hang", "flood", "errors")}
    for kind, words in {"hang": "killed after 4 s", "flood": "more than 16 MiB", "errors": "more than 16 MiB"}.items():
        assert hostile[kind].name in said[hostile[kind].name]
        assert words in said[hostile[kind].name]
    well = {type(fact) for fact in facts if fact.address == hostile["well"].name}
    assert well in ({Leftovers, DamagedArtifacts}, {NoAgent}), "an image may have no python3"


def test_nothing_of_ours_goes_on_in_a_container_that_hangs(
    provider: IncusProvider, hostile: dict[str, Instance], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "KILL_S", 2.0)
    name = hostile["hang"].name
    with pytest.raises(ProviderError, match=f"Unable to run python3 in container {name}") as caught:
        provider.execute(name, ["python3", "-c", "1"], timeout_s=1)
    assert caught.value.details == "It was killed after 1 s."
    seen = provider.execute(name, ["pgrep", "--exact", "--count", "sleep"], timeout_s=20)
    assert seen.stdout.strip() == b"0", "the shell that was to kill it is gone as well"


def test_who_asks_for_more_gets_more(provider: IncusProvider, hostile: dict[str, Instance]) -> None:
    name = hostile["well"].name
    much = ["head", "-c", str(20 * MIB), "/dev/zero"]
    with pytest.raises(ProviderError, match=f"in container {name}") as caught:
        provider.execute(name, much)
    assert "more than 16 MiB" in caught.value.details
    assert len(provider.execute(name, much, limit=32 * MIB).stdout) == 20 * MIB


def test_a_small_file_that_is_large_is_not_read(provider: IncusProvider, hostile: dict[str, Instance]) -> None:
    name = hostile["well"].name
    assert provider.execute(name, ["truncate", "--size", "1T", "/root/group"]).returncode == 0
    with pytest.raises(Exception, match="more than 16 MiB"):
        files.read(provider.endpoint, name, "/root/group")


def test_an_attached_command_ends_when_it_is_ended(hostile: dict[str, Instance], provider: IncusProvider) -> None:
    """A reader that goes away ends the command, in a container whose shell kills nothing."""
    name = hostile["hang"].name
    script = (
        "import sys; from provisioner.hosts.incus import IncusProvider; from provisioner.values import limits; "
        "limits.KILL_S = 2.0; "
        f"sys.exit(IncusProvider('box').attach({name!r}, ['yes'], stdin=0, stdout=1, stderr=2, terminal=False))"
    )
    line = '"$1" -c "$2" </dev/null | head -c 100 >/dev/null; echo "${PIPESTATUS[0]}"'
    call = ["bash", "-c", line, "bash", sys.executable, script]
    done = subprocess.run(call, capture_output=True, timeout=60, check=False)
    assert done.stdout.strip() == b"141", done.stderr
    assert provider.endpoint


@pytest.fixture
def behind_a_node(pve_host: PveHost) -> Iterator[tuple[ProxmoxProvider, dict[str, Instance]]]:
    """The same on a Proxmox node: one as it should be, one whose shell hangs, one whose shell prints for ever."""
    node, lab = ProxmoxProvider("box", access=pve_host.access), f"t{secrets.token_hex(4)}"
    made = {kind: Instance(f"{lab}-{kind}", "box", lab, "debian/12") for kind in ("well", "hang", "flood")}
    for kind, one in made.items():
        node.create(one)
        node.start(one)
        program = {"hang": HANG, "flood": FLOOD}.get(kind)
        if program is not None:
            node.push(one.name, program, "/root/shell", mode=0o755)
            assert node.execute(one.name, ["mv", "/root/shell", "/usr/bin/sh"], timeout_s=60).returncode == 0
    yield node, made
    for one in made.values():
        node.delete(one)


@pytest.mark.slow
def test_a_node_s_containers_are_told_apart_just_so(
    behind_a_node: tuple[ProxmoxProvider, dict[str, Instance]], monkeypatch: pytest.MonkeyPatch
) -> None:
    node, made = behind_a_node
    monkeypatch.setattr(gather, "TIMEOUT_S", 30.0)
    monkeypatch.setattr(execute, "KILL_TIMEOUT_S", 5.0)
    began = time.monotonic()
    facts = gather.probe(list(made.values()), {"box": node})
    assert time.monotonic() - began < 120
    said = {str(silent.address): str(silent.error) for silent in of_kind(facts, Silent)}
    assert said.keys() == {made["hang"].name, made["flood"].name}, said
    assert "killed after 30 s" in said[made["hang"].name]
    assert "more than 16 MiB" in said[made["flood"].name]
    assert any(fact.address == made["well"].name for fact in facts)
