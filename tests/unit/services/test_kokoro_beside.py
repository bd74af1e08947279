"""Whether a changed server that speaks is started beside the one that serves, as far as that can be told before."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from provisioner.catalog import load_catalog
from provisioner.lab import resolve
from provisioner.services.kokoro import BESIDE_BYTES, Knowledge
from provisioner.values import paths
from provisioner.values.address import Address
from tests.lab_files import spec_of


@pytest.mark.parametrize(
    ("container", "options", "told"),
    [
        ({"memory": "3GiB"}, {}, None),
        ({"memory": "2999MiB"}, {}, False),
        ({"memory": "3GiB"}, {"beside": False}, False),
        ({"memory": "3GiB", "gpu": "any"}, {}, False),
        ({"memory": "3GiB", "gpu": "any"}, {"device": "cpu"}, None),
    ],
)
def test_where_memory_holds_two_its_role_decides(
    container: dict[str, Any], options: dict[str, Any], told: bool | None
) -> None:
    written = {"name": "lab", "containers": {"a": {**container, "services": {"kokoro": options}}}}
    service = resolve(spec_of(written), load_catalog()).services[Address.of("a", "kokoro")]
    assert Knowledge().changes_beside(service, {}) is told


def test_what_has_to_be_free_is_what_the_role_says() -> None:
    variables = yaml.safe_load((paths.roles() / "kokoro" / "vars" / "main.yml").read_text("utf-8"))
    assert variables["__kokoro_beside_bytes"] == BESIDE_BYTES
