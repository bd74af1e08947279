"""Memory and disks of a file that its host does not have: said, or refused, before anything is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.values.errors import ProviderError
from provisioner.values.host_facts import Pool
from tests.unit.cli.conftest import FILE, World

GIB = 2**30
THIN, THICK = Pool("tank", 30 * GIB, 20 * GIB), Pool("tank", 30 * GIB, 20 * GIB, is_thin=False)
SIZES = FILE.replace("  llama:\n", "  llama:\n    memory: MEMORY\n    disk: DISK\n").replace(
    "  gateway:\n", "  gateway:\n    memory: 1GiB\n    disk: 8GiB\n"
)


def sized(memory: str = "4GiB", disk: str = "8GiB") -> str:
    """Return the usual file with these sizes of container llama."""
    return SIZES.replace("MEMORY", memory).replace("DISK", disk)


@pytest.mark.parametrize("verb", ["plan", "up"])
def test_more_memory_than_there_is_is_warned_of(world: World, lab: Path, verb: str) -> None:
    arguments = [verb, *(["--yes"] if verb == "up" else [])]
    world.host.memory = 24 * GIB
    lab.write_text(sized(memory="23GiB"))
    assert "of memory together" not in world.done("plan").err
    lab.write_text(sized(memory="900GiB"))
    words = "containers may take 901.0 GiB of memory together, of 24.0 GiB that are there; the largest is llama"
    assert world.done(*arguments).err.replace("\n", " ").count(f"Host box: {words} (900GiB)") == 1


@pytest.mark.parametrize(
    ("pool", "disk", "words"),
    [
        (THIN, "90TiB", "llama: its disk is to have 90TiB, storage tank has 30.0 GiB in all"),
        (THICK, "31GiB", "llama: its disk is to have 31GiB, storage tank has 30.0 GiB in all"),
        (THICK, "13GiB", "gateway, llama: 21.0 GiB of disks are new, storage tank has 20.0 of 30.0 GiB free"),
    ],
)
@pytest.mark.parametrize("verb", ["plan", "up"])
def test_a_disk_that_its_pool_cannot_have_is_refused(
    world: World, lab: Path, *, verb: str, pool: Pool, disk: str, words: str
) -> None:
    world.host.pool = pool
    lab.write_text(sized(disk=disk))
    answer = world.command(verb, *(["--yes"] if verb == "up" else []))
    assert answer.code == 4
    assert "Unable to make disks of that size on host box" in answer.err
    assert words in answer.err.replace("\n", " ").replace("  ", " ")
    assert not world.host.containers


def test_a_thin_pool_may_promise_more_than_is_free(world: World, lab: Path) -> None:
    world.host.pool = THIN
    lab.write_text(sized(disk="12GiB"))
    assert "disks are new" not in world.done("plan").err
    lab.write_text(sized(disk="13GiB"))
    assert "gateway, llama: 21.0 GiB of disks are new" in world.done("plan").err
    world.done("up", "--yes")


def test_a_host_is_asked_where_something_is_made_or_enlarged(
    world: World, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.host.memory, world.host.pool = GIB, THICK
    lab.write_text(sized())
    world.done("up", "--yes")
    lab.write_text(sized(disk="30GiB"))
    assert "llama: 22.0 GiB of disks are new" in world.command("plan").err
    monkeypatch.delattr(type(world.host), "capacity")
    monkeypatch.delattr("provisioner.hosts.base.Provider.capacity")
    lab.write_text(sized())
    world.done("plan")
    lab.write_text(sized().replace("context: 4096", "context: 2048"))
    world.done("plan")


def test_a_disk_that_is_larger_than_its_thin_pool_already_may_grow(world: World, lab: Path) -> None:
    lab.write_text(sized(disk="40GiB"))
    world.done("up", "--yes")
    world.host.pool = THIN
    lab.write_text(sized(disk="41GiB"))
    world.done("plan")
    world.host.pool = THICK
    assert world.command("plan").code == 4


def test_a_host_that_does_not_tell_what_it_has_refuses_nothing(world: World) -> None:
    def refuses(_changes: object) -> None:
        raise ProviderError("Unable to read the resources of box", details="404")

    world.monkeypatch.setattr(world.host, "capacity", refuses)
    said = world.done("plan").err
    assert "Whether host box has room is not known: Unable to read the resources of box" in said.replace("\n", " ")
