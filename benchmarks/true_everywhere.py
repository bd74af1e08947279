"""``python -m benchmarks.true_everywhere NAME…``: ``true`` in all the containers at once, through our provider.

Prints how many seconds that took without this program's own start.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

from provisioner.hosts import provider_for

names = sys.argv[1:]
provider = provider_for("local", "incus")
with ThreadPoolExecutor(len(names)) as pool:
    started = monotonic()
    codes = list(pool.map(lambda name: provider.execute(name, ["true"]).returncode, names))
    sys.stdout.write(f"{monotonic() - started}\n")
sys.exit(max(codes))
