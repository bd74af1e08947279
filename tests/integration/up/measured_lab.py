"""A lab that is brought up for the tests of one module, and is gone afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.up.quickstart_lab import Lab
from tests.lab.incus import Lab as Incus


@contextmanager
def brought_up(incus: Incus, folder: Path, name: str, text: str) -> Iterator[Lab]:
    """The lab of that file, up; what an interrupted run of the same tests left is deleted before."""
    lab = Lab(folder, incus.environment, "debian/12", "debian/12", name=name)
    lab.write(text)
    with lab.brought_up():
        yield lab
