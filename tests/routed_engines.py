"""Engines of a gateway as data cases write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.services.base import RoutedEngine
from provisioner.values.state import Secret


def routed_engine(written: Mapping[str, Any]) -> RoutedEngine:
    """The engine of a case: ``name``, ``model``, ``local``, and perhaps ``api_base`` and ``api_key`` in clear."""
    key = Secret(f"key-of-{written['name']}", written["api_key"]) if "api_key" in written else None
    is_ours = written.get("local", False)
    return RoutedEngine(written["name"], written["model"], is_ours, written.get("api_base", ""), key)
