"""What of the environment counts as an input of tests."""

from pathlib import Path

import pytest

from tests.inputs.machine import environment_of

ROOT = Path("/home/me/provisioner")


@pytest.mark.parametrize(
    ("environment", "kept"),
    [
        ({"PATH": f"{ROOT}/.venv/bin:/usr/bin:/bin"}, {"PATH": "/usr/bin:/bin"}),
        ({"PYTHONPATH": f"{ROOT}/tests/inputs/recorder"}, {}),
        ({"PYTHONPATH": f"{ROOT}/tests/inputs/recorder:/opt/hooks"}, {"PYTHONPATH": "/opt/hooks"}),
        ({"PROVISION_RECORD_ROOT": str(ROOT), "PROVISION_RECORD_FILE": "/home/me/notes/a.txt"}, {}),
        ({"CI": "true", "PYTEST_XDIST_WORKER": "gw1"}, {}),
        ({"PROVISION_MODULE_SERVER": "off", "lower": "case"}, {"PROVISION_MODULE_SERVER": "off"}),
    ],
)
def test_what_of_the_environment_is_an_input(environment: dict[str, str], kept: dict[str, str]) -> None:
    """A run with ``--record-inputs`` has the inputs of one without; what comes from elsewhere counts."""
    assert environment_of(environment, ROOT) == kept
