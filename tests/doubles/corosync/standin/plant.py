"""``python -m standin.plant [--remove | --times N] PATH``: change a file in the node's own database, without quorum.

As in Proxmox VE each write raises the version, so that a node that wrote alone for long wins over the cluster's copy.
"""

from __future__ import annotations

import base64
import sys
import time

from .database import Database
from .pmxcfs import DATABASE


def main() -> None:
    """Write stdin there; the file system must not be running."""
    database = Database(DATABASE)
    tree = database.load()
    when = {"mtime": int(time.time()), "writer": 0, "path": sys.argv[-1]}
    if sys.argv[1] == "--remove":
        codes = [tree.apply({"do": "unlink", **when})]
    else:
        times = int(sys.argv[2]) if sys.argv[1] == "--times" else 1
        data = base64.b64encode(sys.stdin.buffer.read()).decode()
        write = {"do": "write", "offset": 0, "data": data, **when}
        codes = [tree.apply({"do": "create", **when}), *(tree.apply(write) for _ in range(times))]
    if any(codes):
        sys.exit(f"cannot change {sys.argv[-1]}: {codes}")
    database.save(tree)
    database.close()


if __name__ == "__main__":
    main()
