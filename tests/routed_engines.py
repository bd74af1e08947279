"""Engines of a gateway as data cases write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.services.gateway_routes import CHAT, RoutedEngine
from provisioner.values.state import Secret


def routed_engine(written: Mapping[str, Any]) -> RoutedEngine:
    """The engine of a case by its fields, ``api_key`` in clear; only ``name`` and ``model`` have to be there."""
    key = Secret(f"key-of-{written['name']}", written["api_key"]) if "api_key" in written else None
    is_ours = written.get("local", False)
    answers = written.get("answers", CHAT)
    return RoutedEngine(written["name"], written["model"], is_ours, written.get("api_base", ""), key, answers)
