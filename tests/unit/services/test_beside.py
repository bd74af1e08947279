"""Changed services: which of them are started beside the one that serves, as far as that can be told before."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from provisioner.catalog import load_catalog
from provisioner.lab import resolve
from provisioner.services import knowledge_of, kokoro, litellm
from provisioner.values import paths
from provisioner.values.address import Address
from tests.lab_files import spec_of

UPSTREAMS = {"cloud": {"model": "ollama/m", "base_url": "http://box:11434"}}
GATEWAY = {"master_key": "sk-key", "aliases": {"fast": ["cloud"]}}


@pytest.mark.parametrize(
    ("role", "container", "options", "told"),
    [
        ("kokoro", {"memory": "3GiB"}, {}, None),
        ("kokoro", {"memory": "2999MiB"}, {}, False),
        ("kokoro", {"memory": "3GiB"}, {"beside": False}, False),
        ("kokoro", {"memory": "3GiB", "gpu": "any"}, {}, False),
        ("kokoro", {"memory": "3GiB", "gpu": "any"}, {"device": "cpu"}, None),
        ("litellm", {"memory": "1399MiB"}, {**GATEWAY, "beside": True}, False),
        ("litellm", {"memory": "1400MiB"}, {**GATEWAY, "beside": True}, True),
        ("litellm", {"memory": "2GiB"}, {**GATEWAY, "beside": False}, False),
    ],
)
def test_a_container_has_memory_for_two_or_has_not_or_its_role_decides(
    role: str, container: dict[str, Any], options: dict[str, Any], told: bool | None
) -> None:
    container = {**container, "services": {role: options}}
    upstreams = {"upstreams": UPSTREAMS} if role == "litellm" else {}
    spec = spec_of({"name": "lab", **upstreams, "containers": {"a": container}})
    service = resolve(spec, load_catalog()).services[Address.of("a", role)]
    assert knowledge_of(role).changes_beside(service, {}) is told


@pytest.mark.parametrize("module", [kokoro, litellm])
def test_what_has_to_be_free_is_what_the_role_says(module: Any) -> None:
    role = module.__name__.rpartition(".")[2]
    variables = yaml.safe_load((paths.roles() / role / "vars" / "main.yml").read_text("utf-8"))
    assert variables[f"__{role}_beside_bytes"] == module.BESIDE_BYTES
