"""``python -m …incus_exec NAME WORD…``: what ``lxc-attach`` is on a node, in a container of the lab.

Incus' own ``incus exec`` loses what a short command writes last when the machine is busy; ``lxc-attach`` does not. The
command's environment is told in ``PCT_ENVIRONMENT`` (JSON).
"""

from __future__ import annotations

import json
import os
import sys
import threading

from provisioner.hosts.incus import IncusProvider
from provisioner.hosts.incus.api import WireError
from provisioner.hosts.incus.attach import Ends, attach

FAILED = 255


def _run() -> None:
    environment = json.loads(os.environ.pop("PCT_ENVIRONMENT"))
    try:
        code = attach(IncusProvider("node").endpoint, sys.argv[1], sys.argv[2:], Ends(0, 1, 2), environment)
    except WireError as error:
        sys.stderr.write(f"{error}\n")
        code = FAILED
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    # Not in the main thread: there our own code hears signals and ends the command, which lxc-attach does not do.
    thread = threading.Thread(target=_run)
    thread.start()
    thread.join()
