"""A program of several modules as one text, for containers in which nothing is installed."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

PACKAGES = ("provisioner", "provisioner.inside")


def program_of(program: ModuleType, *needed: ModuleType) -> str:
    """The text of a program with the modules of this package that it imports; those first that others import."""
    lines = ["import sys, types"]
    lines += [f"sys.modules[{name!r}] = types.ModuleType({name!r})" for name in PACKAGES]
    for module in needed:
        name = module.__name__
        lines.append(f"made = sys.modules[{name!r}] = types.ModuleType({name!r})")
        lines.append(f"exec(compile({text_of(module)!r}, {name!r}, 'exec'), vars(made))")
    lines.append(f"exec(compile({text_of(program)!r}, 'program', 'exec'), globals())")
    return "\n".join(lines) + "\n"


def text_of(module: ModuleType) -> str:
    """The source of a module, as it lies in this installation."""
    return Path(str(module.__file__)).read_text(encoding="utf-8")
