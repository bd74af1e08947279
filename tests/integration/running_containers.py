"""Containers that tests make for themselves, and that are gone afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from provisioner.hosts.base import Provider
from provisioner.values.state import Instance


@contextmanager
def kept_running(provider: Provider, one: Instance) -> Iterator[Instance]:
    """Make and start a container, which answers by then; delete it when the block ends."""
    provider.create(one)
    try:
        provider.start(one)
        provider.wait_until_ready(one)
        yield one
    finally:
        provider.delete(one)
