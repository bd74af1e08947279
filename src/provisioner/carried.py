"""A program of several modules as one text, for containers in which nothing is installed. Pure."""

from __future__ import annotations

from collections.abc import Mapping

PACKAGE = "provisioner"


def program_of(text: str, needed: Mapping[str, str]) -> str:
    """The text of a program with the modules that it imports in it.

    ``needed``: their texts by their names within this package, those first that others import.
    """
    lines = [
        "import sys, types",
        f"sys.modules[{PACKAGE!r}] = types.ModuleType({PACKAGE!r})",
    ]
    for name, source in needed.items():
        module = f"{PACKAGE}.{name}"
        lines.append(f"made = sys.modules[{module!r}] = types.ModuleType({module!r})")
        lines.append(f"exec(compile({source!r}, {module!r}, 'exec'), vars(made))")
    lines.append(f"exec(compile({text!r}, 'program', 'exec'), globals())")
    return "\n".join(lines) + "\n"
