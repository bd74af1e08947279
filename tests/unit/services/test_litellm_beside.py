"""Whether a changed gateway is started beside the one that serves, as far as that can be told before."""

from __future__ import annotations

import pytest
import yaml

from provisioner.catalog import load_catalog
from provisioner.lab import resolve
from provisioner.services.litellm import BESIDE_BYTES, Knowledge
from provisioner.values import paths
from provisioner.values.address import Address
from tests.lab_files import spec_of


@pytest.mark.parametrize(
    ("memory", "beside", "told"), [("1399MiB", True, False), ("1400MiB", True, True), ("2GiB", False, False)]
)
def test_both_fit_where_the_container_has_memory_for_two(memory: str, beside: bool, told: bool) -> None:
    written = {
        "name": "lab",
        "upstreams": {"cloud": {"model": "ollama/m", "base_url": "http://box:11434"}},
        "containers": {
            "a": {
                "memory": memory,
                "services": {"litellm": {"master_key": "sk-key", "aliases": {"fast": ["cloud"]}, "beside": beside}},
            }
        },
    }
    service = resolve(spec_of(written), load_catalog()).services[Address.of("a", "litellm")]
    assert Knowledge().changes_beside(service, {}) is told


def test_what_has_to_be_free_is_what_the_role_says() -> None:
    variables = yaml.safe_load((paths.roles() / "litellm" / "vars" / "main.yml").read_text("utf-8"))
    assert variables["__litellm_beside_bytes"] == BESIDE_BYTES
