"""``--record-inputs FOLDER``: a file for each test file, with what its processes read of the checkout.

What one test file has imported is not read again for the next one of the same process, so that only a run of one file
says all of it. Programs that are no Python, and those that are started with an empty environment, note nothing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.inputs.parts import part_of
from tests.inputs.recorder import sitecustomize

PLACE = Path(sitecustomize.__file__).parent


class Recorder:
    """Turns the notes on in this process and in those that it starts."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._folder = folder.resolve()
        self._folder.mkdir(parents=True, exist_ok=True)
        os.environ[sitecustomize.ROOT] = str(root)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(PLACE), os.environ.get("PYTHONPATH")]))
        sys.addaudithook(sitecustomize.note)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collectstart(self, collector: pytest.Collector) -> None:
        """A test file is imported."""
        if isinstance(collector, pytest.Module):
            self._note_for(part_of(collector.nodeid))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """A test begins."""
        self._note_for(part_of(item.nodeid))

    def _note_for(self, part: str) -> None:
        os.environ[sitecustomize.FILE] = str(self._folder / f"{part.replace('/', '+')}.txt")
