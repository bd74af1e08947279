"""What is changed by hand in a running lab is found, named, and mended; and nothing else is touched.

Each test leaves the lab as it found it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.drift_lab import ENGINE, FILE, GATEWAY, NO_PYTHON, DriftLab, Mutation
from tests.lab.incus import Lab as Incus

pytestmark = [pytest.mark.incus]

POLL_TIMEOUT_S = 120.0


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DriftLab]:
    """The lab, up, and nothing to be done in it."""
    folder = tmp_path_factory.mktemp("drift")
    lab = DriftLab(folder, incus_lab.environment, "debian/12", "debian/12", name="drift")
    lab.write(FILE)
    lab.provision("destroy", "--yes", "--lab", "drift")  # what an interrupted run of this test left
    first = lab.up()
    assert first.code == 0, first.out[-4000:] + first.err[-4000:]
    assert lab.look() == {}
    yield lab
    ended = lab.provision("destroy", "--yes", "--lab", "drift")
    assert ended.code == 0, ended.out + ended.err


def expected(lab: DriftLab, mutation: Mutation) -> set[str]:
    """What has to be run: the thing's own role; every role of a container that has no python3 to look with."""
    if mutation.words in (NO_PYTHON, "cannot be run"):
        return {f"{mutation.container}/{stamp['role']}" for stamp in lab.pristine[mutation.container]}
    return {mutation.address}


def test_every_change_of_every_managed_thing_is_named_and_nothing_else_is(lab: DriftLab) -> None:
    problems = []
    for mutation in lab.mutations():
        with lab.changed(mutation):
            found = lab.look()
        if set(found) != expected(lab, mutation) or not any(
            mutation.words in one and (mutation.name in one or "python3" in mutation.words or "run" in mutation.words)
            for one in found.get(mutation.address, ())
        ):
            problems.append(f"{mutation}: {found}")
        left = lab.settled()
        if left:
            problems.append(f"{mutation}, put back: {left}")
    assert problems == []
