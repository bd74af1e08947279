"""Whether a changed server is started beside the one that serves, as far as that can be told before."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from provisioner.catalog import load_catalog
from provisioner.lab import resolve
from provisioner.labfile.parsing import parse_spec
from provisioner.services.llama_cpp import BESIDE_SHARE, Knowledge
from provisioner.values import paths
from provisioner.values.address import Address

GIB = 2**30


@pytest.mark.parametrize(
    ("options", "sizes", "told"),
    [
        ({}, {"m": GIB // 2}, True),
        ({}, {"m": GIB}, False),
        ({}, {"m": None}, None),
        ({}, {}, None),
        ({"mmproj": "eyes"}, {"m": GIB // 2, "eyes": GIB // 4}, True),
        ({"mmproj": "eyes"}, {"m": GIB // 2, "eyes": GIB // 2}, False),
        ({"beside": False}, {"m": 1}, False),
        ({"backend": "vulkan"}, {"m": 1}, False),
        ({"backend": "vulkan", "gpu_layers": 0}, {"m": 1}, True),
    ],
)
def test_both_fit_where_twice_the_files_fit_and_the_processor_computes(
    options: dict[str, Any], sizes: dict[str, int | None], told: bool | None
) -> None:
    assert changes_beside({"model": "m", **options}, sizes) is told


@pytest.mark.parametrize(
    ("options", "sizes", "told"),
    [
        ({}, {"m": GIB // 2, "eyes": GIB // 2}, True),
        ({"models_max": 2}, {"m": GIB // 2, "eyes": GIB // 2}, False),
        ({"models_max": 0}, {"m": GIB // 2, "eyes": GIB // 2}, False),
        ({"models_max": 2}, {"m": GIB // 2, "eyes": 1}, True),
        ({}, {"m": 1, "eyes": GIB}, False),
        ({}, {"m": 1, "eyes": None}, None),
    ],
)
def test_of_several_models_as_many_count_as_are_in_memory_at_once(
    options: dict[str, Any], sizes: dict[str, int | None], told: bool | None
) -> None:
    assert changes_beside({"models": ["m", "eyes"], **options}, sizes) is told


def test_the_share_is_that_of_the_role() -> None:
    variables = yaml.safe_load((paths.roles() / "llama_cpp" / "vars" / "main.yml").read_text("utf-8"))
    assert variables["__llama_cpp_beside_share"] == BESIDE_SHARE


def changes_beside(options: dict[str, Any], sizes: dict[str, int | None]) -> bool | None:
    """What is told of a server with these options in a container of 2 GiB."""
    models = {"m": {"source": "builtin:tiny"}, "eyes": {"source": "file:/srv/eyes.gguf"}}
    written = {"name": "lab", "models": models, "containers": {"a": {"services": {"llama_cpp": options}}}}
    parsed = parse_spec(written, load_catalog())
    assert parsed.spec is not None, parsed.problems
    service = resolve(parsed.spec, load_catalog()).services[Address.of("a", "llama_cpp")]
    return Knowledge().changes_beside(service, sizes)
