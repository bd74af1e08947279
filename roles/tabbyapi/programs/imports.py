"""Imports the modules that are named as arguments, and says which cannot be: a line of JSON, after a line for each.

A module that takes the process with it is the last one that was named.
"""

from __future__ import annotations

import importlib
import json
import platform
import sys


def main(names: list[str]) -> None:
    """Import each, and print what failed beside what this interpreter is."""
    failed = {}
    for name in names:
        print(name, flush=True)  # noqa: T201  # the answer
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001  # whatever a module does when it is imported
            failed[name] = f"{type(error).__name__}: {error}"
    print(json.dumps({"failed": failed, "python": platform.python_version()}))  # noqa: T201  # the answer


if __name__ == "__main__":
    main(sys.argv[1:])
