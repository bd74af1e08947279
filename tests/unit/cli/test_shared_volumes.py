"""Labs that share artifacts of a host: what one of them has found or makes, no other one takes away."""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.hosts.fake import FakeProvider
from provisioner.hosts.fake.locks import Locks
from provisioner.reconcile.volumes import CLAIMS
from provisioner.values.state import Fleet, Instance, InstanceKind
from tests.unit.cli.conftest import World

CLAIM = f"{CLAIMS}homelab"
THEIRS = f"{CLAIMS}other"


class Robbed(Locks):
    """Locks of a host where another lab deletes all unused volumes just before a claim is made."""

    def create(self, name: str, properties: Mapping[str, str]) -> bool:
        """Make the lock object; before a claim the volumes go."""
        if name == CLAIM:
            assert isinstance(self._host, FakeProvider)
            self._host.volumes.clear()
        return super().create(name, properties)


def test_what_another_lab_has_deleted_since_the_plan_is_made_again(world: World) -> None:
    assert world.command("up", "--yes").code == 0
    made = set(world.host.volumes)
    assert made
    world.host.containers.clear()
    world.host.locks = Robbed(world.host)
    assert world.command("up", "--yes").printed
    assert set(world.host.volumes) == made
    assert world.command("plan", "--detailed-exitcode").code == 0


def test_what_a_run_will_mount_is_claimed_until_it_has_ended_well(world: World) -> None:
    claims: list[set[str]] = []
    world.then = lambda: claims.append(set(world.host.locks[CLAIM]["volumes"].split()))
    assert world.command("up", "--yes").code == 0
    assert claims
    assert all(claim == set(world.host.volumes) for claim in claims)
    assert world.host.locks == {}


def test_the_claim_of_a_run_that_failed_goes_with_destroy(world: World) -> None:
    world.raises = KeyboardInterrupt()
    assert world.command("up", "--yes").code == 130
    assert set(world.host.locks) == {CLAIM}
    world.raises = None
    assert world.command("destroy", "--yes", "--lab", "homelab").code == 0
    assert world.host.locks == {}


def test_destroy_leaves_what_another_lab_has_found(up: World) -> None:
    (kept, *_) = sorted(up.host.volumes)
    up.host.locks.create(THEIRS, {"lab": "other", "volumes": kept, "nonce": "n"})
    assert up.command("destroy", "--yes", "--lab", "homelab").code == 0
    assert set(up.host.volumes) == {kept}
    assert set(up.host.locks) == {THEIRS}


def test_destroy_leaves_a_builder_that_another_lab_has_made_in_place_of_its_own(up: World) -> None:
    class Late(FakeProvider):
        """A host where the leftover builder becomes another lab's once it was observed."""

        def observe(self, lab: str, **how: object) -> Fleet:
            fleet = super().observe(lab, **how)  # type: ignore[arg-type]  # only handed on
            theirs = Instance("provision-build-1", "box", "other", "debian/12", kind=InstanceKind.BUILDER)
            self.containers.pop(theirs.name, None)
            self.create(theirs)
            return fleet

    late = Late("box")
    late.create(Instance("provision-build-1", "box", "homelab", "debian/12", kind=InstanceKind.BUILDER))
    up.host = late
    assert up.command("destroy", "--yes", "--lab", "homelab").code == 0
    assert set(late.containers) == {"provision-build-1"}
