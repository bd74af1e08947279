"""The file as frozen values, and the one function that makes them from plain data and a catalog."""

from __future__ import annotations

from provisioner.spec.gpu import Gpu
from provisioner.spec.models import (
    Container,
    IncusHost,
    Model,
    SecretSource,
    ServiceSpec,
    Spec,
)
from provisioner.spec.parsing import Parsed, parse_spec
from provisioner.spec.proxmox import ProxmoxContainer, ProxmoxHost, Token
from provisioner.spec.upstreams import Upstream
from provisioner.spec.wording import KeyPath, path_text

__all__ = [
    "Container",
    "Gpu",
    "IncusHost",
    "KeyPath",
    "Model",
    "Parsed",
    "ProxmoxContainer",
    "ProxmoxHost",
    "SecretSource",
    "ServiceSpec",
    "Spec",
    "Token",
    "Upstream",
    "parse_spec",
    "path_text",
]
