"""The registry finds drivers by their folders; each keeps the promises of ``hosts/base.py`` in modules of its own."""

from __future__ import annotations

from importlib import import_module
from inspect import isabstract, isfunction

import pytest

from provisioner.hosts import base, kinds, provider_for
from provisioner.hosts.base import Cards, Locks, Network, Provider, Snapshots, Volumes
from tests.copied_driver import copied_driver

__all__ = ["copied_driver"]  # a fixture

MOST_METHODS = 20


def methods(provider: type) -> list[str]:
    """The verbs that a class itself has."""
    return [name for name, member in vars(provider).items() if isfunction(member) and not name.startswith("_")]


def test_a_provider_has_few_verbs() -> None:
    assert len(methods(Provider)) <= MOST_METHODS
    assert "execute" in methods(Provider)


def test_a_folder_is_a_kind_of_host(copied_driver: str) -> None:
    assert {"fake", "incus", "proxmox", copied_driver} == set(kinds())
    assert provider_for("box", copied_driver).kind == copied_driver


def test_what_is_no_kind_of_host_is_not_found() -> None:
    assert "base" not in kinds()
    with pytest.raises(ModuleNotFoundError):
        provider_for("box", "nosuch")


@pytest.mark.parametrize("kind", kinds())
@pytest.mark.parametrize("promise", [Locks, Volumes, Snapshots, Cards, Network])
def test_a_driver_keeps_every_promise_in_its_module_of_that_name(kind: str, promise: type) -> None:
    name = promise.__name__
    part = getattr(import_module(f"{base.__package__}.{kind}.{name.lower()}"), name)
    assert issubclass(part, promise)
    assert not isabstract(part)
