"""Notes which files of a checkout a Python process opens; Python imports this by itself where PYTHONPATH leads to it.

``PROVISION_RECORD_ROOT`` is the checkout, ``PROVISION_RECORD_FILE`` takes a line for each file: ``read PATH``, or
``checksum PATH`` where only the catalog's checksum over all roles looked at it.
"""

from __future__ import annotations

import os
import sys
from typing import Any

ROOT = "PROVISION_RECORD_ROOT"
FILE = "PROVISION_RECORD_FILE"
CHECKSUM = ("digest_of", "catalog/pages.py")
"""The function, and the end of its file's name, whose reads say only whether something is the same."""
CHOOSERS = ("/tests/inputs/tree.py", "/tests/inputs/kept_pages.py")
"""The modules that read to choose; no test depends on that."""
_noted: set[tuple[str, str]] = set()


def note(event: str, arguments: tuple[Any, ...]) -> None:
    """The audit hook: note what is opened to be read, or imported."""
    if event == "open" and not str(arguments[1] or "r").startswith(("w", "a", "x")):
        path = arguments[0]
    elif event == "import":
        path = arguments[1]
    else:
        return
    file, root = os.environ.get(FILE), os.environ.get(ROOT)
    if not file or not root or not isinstance(path, str | bytes):
        return
    place = os.path.abspath(os.fsdecode(path))  # noqa: PTH100  # pathlib may not be imported yet
    if not place.startswith(f"{root}/"):
        return
    kind = _kind(sys._getframe())  # a program's own file is opened when no other frame is there yet
    line = f"{kind} {_source(place[len(root) + 1 :])}"
    if kind and (file, line) not in _noted:
        _noted.add((file, line))
        _append(file, line)


def _kind(frame: Any) -> str:
    """``checksum`` or ``read``, by who reads; nothing for what reads to choose tests."""
    while frame is not None:
        code = frame.f_code
        if code.co_filename.endswith(CHOOSERS):
            return ""
        if code.co_name == CHECKSUM[0] and code.co_filename.endswith(CHECKSUM[1]):
            return "checksum"
        frame = frame.f_back
    return "read"


def _source(path: str) -> str:
    """The file that was compiled, for one of bytecode."""
    folder, made, name = path.rpartition("__pycache__/")
    return f"{folder}{name.partition('.')[0]}.py" if made else path


def _append(file: str, line: str) -> None:
    # A short line that is appended by one call is never mixed with those of other processes.
    target = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(target, f"{line}\n".encode())
    finally:
        os.close(target)


if os.environ.get(FILE):
    sys.addaudithook(note)
