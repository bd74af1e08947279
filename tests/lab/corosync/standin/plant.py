"""``python -m standin.plant [--remove] PATH``: write a file in the node's own database, or remove one, without quorum.

The database's version stays: what is only here must not win over the cluster's copy.
"""

from __future__ import annotations

import base64
import sys
import time

from .database import Database
from .pmxcfs import DATABASE
from .tree import ROOT


def main() -> None:
    """Write stdin there; the file system must not be running."""
    database = Database(DATABASE)
    tree = database.load()
    version = tree.version
    when = {"mtime": int(time.time()), "writer": 0, "path": sys.argv[-1]}
    if sys.argv[1] == "--remove":
        codes = [tree.apply({"do": "unlink", **when})]
    else:
        data = base64.b64encode(sys.stdin.buffer.read()).decode()
        codes = [tree.apply({"do": "create", **when}), tree.apply({"do": "write", "offset": 0, "data": data, **when})]
    if any(codes):
        sys.exit(f"cannot change {sys.argv[-1]}: {codes}")
    tree.entries[ROOT].version = version
    database.save(tree)
    database.close()


if __name__ == "__main__":
    main()
