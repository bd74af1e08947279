"""A detail is for people who ask for more; the machine-readable stream has it always."""

from __future__ import annotations

import json

import pytest

from provisioner.cli.console import Console
from provisioner.values.events import Diagnostic

DETAIL = Diagnostic("detail", "The module server ran 3 modules")


@pytest.mark.parametrize("verbose", [True, False])
def test_people_read_a_detail_only_with_verbose(capsys: pytest.CaptureFixture[str], verbose: bool) -> None:
    console = Console({})
    console.configure(verb="up", json=False, no_color=True, verbose=verbose)
    console.emit(DETAIL)
    assert capsys.readouterr().err == ("Detail: The module server ran 3 modules\n" if verbose else "")


def test_the_stream_has_every_detail(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console({})
    console.configure(verb="up", json=True, no_color=True, verbose=False)
    console.emit(DETAIL)
    line = capsys.readouterr().out.splitlines()[-1]
    assert json.loads(line)["severity"] == "detail"
