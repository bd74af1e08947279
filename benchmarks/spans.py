"""``python -m benchmarks.spans VERB …``: runs ``provision VERB …`` and prints how long its parts took, as JSON.

Everything is imported beforehand, so that no part pays for an import.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from time import monotonic
from typing import Any
from unittest.mock import patch

os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # as the command itself does

PARTS = {
    "read the file": ("provisioner.cli.session", "Session.open_lab"),
    "take the lock": ("provisioner.reconcile.lock", "take"),
    "observe the host": ("provisioner.reconcile.observe", "observe"),
    "work out what is wanted": ("provisioner.reconcile.observe", "desired_fleet"),
    "look into the containers": ("provisioner.reconcile.observe", "probe"),
    "give the lock back": ("provisioner.reconcile.lock", "Lease.release"),
}
WHOLE = "everything, imports left out"
ALSO_USED = ("provisioner.reconcile.up", "provisioner.cli.plan", "provisioner.hosts.incus", "jinja2")

taken: dict[str, float] = {}


def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, whose seconds are noted."""

    def call(*args: Any, **kwargs: Any) -> Any:
        started = monotonic()
        try:
            return function(*args, **kwargs)
        finally:
            taken[name] = taken.get(name, 0.0) + monotonic() - started

    return call


def owner_of(module: str, path: str) -> tuple[Any, str]:
    """The module or class that holds the function, and the function's own name."""
    holder: Any = import_module(module)
    *classes, last = path.split(".")
    for one in classes:
        holder = getattr(holder, one)
    return holder, last


def main() -> int:
    """The exit code of the command."""
    for module in ALSO_USED:
        import_module(module)
    with ExitStack() as stack:
        for name, (module, path) in PARTS.items():
            holder, last = owner_of(module, path)
            stack.enter_context(patch.object(holder, last, timed(name, getattr(holder, last))))
        from provisioner.cli.app import run

        code = int(timed(WHOLE, run)(sys.argv[1:]))
    sys.stdout.write(f"{json.dumps(taken)}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
