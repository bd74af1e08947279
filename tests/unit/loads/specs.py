"""Files whose engines are to be added up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.catalog import load_catalog
from provisioner.labfile.parsing import parse_spec
from provisioner.labfile.spec import Spec

MODELS = {
    "nine": {"source": "file:/models/nine.gguf"},
    "mixed": {"source": "file:/models/mixed.gguf"},
    "eye": {"source": "file:/models/eye.gguf"},
    "hub": {"source": "hf:unsloth/Qwen3.5-9B-GGUF:Q5_K_M"},
}


def spec_of(containers: Mapping[str, Any], **keys: Any) -> Spec:
    """The file with these containers and four models."""
    parsed = parse_spec({"name": "lab", "models": MODELS, "containers": containers, **keys}, load_catalog())
    assert parsed.spec is not None, parsed.problems
    return parsed.spec
