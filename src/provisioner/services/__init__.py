"""What only single services know. ``knowledge_of`` finds a role's module by the role's name; nothing lists them."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec

from provisioner.services.base import Knowledge

__all__ = ["Knowledge", "knowledge_of"]

CLASS = "Knowledge"
"""The class that a role's module defines."""


@cache
def knowledge_of(role: str) -> Knowledge:
    """What ``services/<role>.py`` knows of its service; without such a module the base, which says "unknown"."""
    name = f"{__name__}.{role}"
    if role == "base" or find_spec(name) is None:
        return Knowledge()
    found: Knowledge = getattr(import_module(name), CLASS)()
    return found
