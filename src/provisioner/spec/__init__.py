"""The file as frozen values, and the one function that makes them from plain data and a catalog."""

from __future__ import annotations

from provisioner.spec.models import (
    Container,
    Gpu,
    IncusHost,
    Model,
    ProxmoxHost,
    SecretSource,
    ServiceSpec,
    Spec,
    Token,
    Upstream,
)
from provisioner.spec.parsing import Parsed, parse_spec
from provisioner.spec.wording import KeyPath, path_text

__all__ = [
    "Container",
    "Gpu",
    "IncusHost",
    "KeyPath",
    "Model",
    "Parsed",
    "ProxmoxHost",
    "SecretSource",
    "ServiceSpec",
    "Spec",
    "Token",
    "Upstream",
    "parse_spec",
    "path_text",
]
