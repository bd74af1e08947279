"""A kind of host is its folder: under a name that nothing else knows, a lab has its whole life on it."""

from __future__ import annotations

from provisioner.hosts import provider_for
from provisioner.hosts.fake import FakeProvider
from tests.copied_driver import copied_driver
from tests.unit.cli.conftest import World

__all__ = ["copied_driver"]  # a fixture


def test_a_lab_is_made_kept_and_destroyed_on_hosts_of_another_kind(world: World, copied_driver: str) -> None:
    host = provider_for("box", copied_driver)
    assert not isinstance(host, FakeProvider)
    host.programs = dict(world.host.programs)  # type: ignore[attr-defined]  # it is a copy of one that has them
    world.host = host  # type: ignore[assignment]  # the same
    world.done("up", "--yes")
    world.done("plan", "--detailed-exitcode")
    world.done("snapshot", "--name", "good")
    world.done("rollback", "--to", "good", "--yes")
    assert "llama" in world.host.containers
    world.done("destroy", "--yes", "--lab", "homelab")
    assert world.host.containers == {}
