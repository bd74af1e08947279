"""What ``init --model`` writes, on a real host: it comes up, and answers with the context that was suggested."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from provisioner.models.tiny import CONTEXT, ensure_tiny_model
from tests.integration.up.quickstart_lab import Lab
from tests.lab.incus import Lab as Incus

pytestmark = [pytest.mark.incus, pytest.mark.slow]

NAME = "homelab"
CARD, NONE_HERE = "    gpu: any\n", "    image: debian/12\n"
"""A card is not there: the block is the same without it, with an image that the test has."""


@pytest.fixture
def lab(incus_lab: Incus, tmp_path: Path) -> Iterator[Lab]:
    """A folder with a model and no file yet."""
    ensure_tiny_model(tmp_path / "models")
    lab = Lab(tmp_path, incus_lab.environment, "debian/12", "debian/12", name=NAME)
    yield lab
    lab.provision("destroy", "--prune", "--yes", "--lab", NAME)


def test_up_of_what_is_written_works(lab: Lab) -> None:
    lab.succeeded("init", "--model", str(lab.folder / "models"), "--gpu", "8GiB")
    file = lab.folder / "homelab.yml"
    text = file.read_text(encoding="utf-8")
    assert text.count(CARD) == 1
    file.write_text(text.replace(CARD, NONE_HERE), encoding="utf-8")
    ((container, content),) = yaml.safe_load(text)["containers"].items()
    assert content["services"]["llama_cpp"]["context"] == CONTEXT
    lab.provision("destroy", "--prune", "--yes", "--lab", NAME)  # what an interrupted run of this test left
    lab.succeeded("up", "--yes")
    assert lab.provision("verify").code == 0
    lab.succeeded("plan", "--detailed-exitcode")
    asked = lab.incus("exec", container, "--", "systemctl", "cat", "llama-server.service")
    assert f"--ctx-size {CONTEXT}" in asked.replace('"', "")
    lab.succeeded("report", "lab.html")
    shown = (lab.folder / "lab.html").read_text(encoding="utf-8")
    assert f"{container}/llama_cpp" in shown
    assert "never proved from this machine" not in shown
