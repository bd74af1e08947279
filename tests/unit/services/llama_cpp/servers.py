"""Labs of one server of llama.cpp in a container named a, and what is told of its options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.catalog import load_catalog
from provisioner.lab import Known, ResolvedLab, resolve
from provisioner.labfile.spec import Spec
from provisioner.models.header import Header
from provisioner.services.base import ResolvedService
from provisioner.values.address import Address
from tests.lab_files import spec_of

MODELS = {name: {"source": "builtin:tiny"} for name in ("m", "n", "o", "eye")}
MODELS["eyes"] = {"source": "file:/srv/eyes.gguf"}
PLACE = ("containers", "a", "services", "llama_cpp")


def spec_with(options: Mapping[str, Any], **models: Mapping[str, Any]) -> Spec:
    """A server with these options, of model m where they name none; ``models``: those with more than their source."""
    named = {} if "models" in options else {"model": "m"}
    known = {name: {**source, **models.get(name, {})} for name, source in MODELS.items()}
    services = {"llama_cpp": {**named, **options}}
    return spec_of({"name": "lab", "models": known, "containers": {"a": {"services": services}}})


def resolved(spec: Spec, headers: Mapping[str, Header] | None = None) -> ResolvedLab:
    """What it means, with these models' own files."""
    return resolve(spec, load_catalog(), Known(headers=headers or {}))


def service_with(options: Mapping[str, Any]) -> ResolvedService:
    """The server alone."""
    return resolved(spec_with(options)).services[Address.of("a", "llama_cpp")]


def told(problems: Any) -> list[tuple[str, str]]:
    """Where something is wrong with the server, and what; each has a hint."""
    found = list(problems)
    assert all(one.path[: len(PLACE)] == PLACE and one.hint for one in found)
    return [(".".join(map(str, one.path[len(PLACE) :])), one.message) for one in found]
