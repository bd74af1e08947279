"""Ten containers created and started at once: through our provider, and by ten ``incus launch`` in parallel."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from time import monotonic

from benchmarks.measuring import Row
from provisioner.hosts import provider_for
from provisioner.hosts.base import Provider
from provisioner.values.state import Instance
from tests.processes import killed_at_end

RUNS = 5
COUNT = 10
TIMEOUT_S = 300
IMAGE = "debian/12"
LAB = "benchmark"


def rows() -> list[Row]:
    """Both ways in turns, created and started (not yet booted), and their ratio run by run."""
    provider = provider_for("local", "incus")
    provider.check_available()
    ours, theirs = [], []
    for _ in range(RUNS):
        ours.append(_ours(provider))
        theirs.append(_theirs())
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    return [
        Row(f"{COUNT} containers, provision", ours, "s"),
        Row(f"{COUNT} containers, incus launch", theirs, "s"),
        Row("ratio", ratios, ""),
    ]


def _ours(provider: Provider) -> float:
    wanted = [Instance(f"benchmark-{number}", "local", LAB, IMAGE) for number in range(COUNT)]

    def make(instance: Instance) -> None:
        provider.create(instance)
        provider.start(instance)

    with ThreadPoolExecutor(COUNT) as pool:
        started = monotonic()
        list(pool.map(make, wanted))
        taken = monotonic() - started
        list(pool.map(provider.delete, wanted))
    return taken


def _theirs() -> float:
    names = [f"benchmark-{number}" for number in range(COUNT)]
    started = monotonic()
    with ExitStack() as stack:
        launched = [
            stack.enter_context(killed_at_end(subprocess.Popen(["incus", "-q", "launch", IMAGE, name])))
            for name in names
        ]
        codes = [launch.wait(TIMEOUT_S) for launch in launched]
        taken = monotonic() - started
    subprocess.run(["incus", "-q", "delete", "--force", *names], check=True, timeout=TIMEOUT_S)
    if any(codes):
        raise RuntimeError(f"incus launch ended with {codes}")
    return taken
