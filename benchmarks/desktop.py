"""A desktop from nothing beside its packages alone, a copy of it, and how long its user waits for panels."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from time import monotonic

from benchmarks.labs import PROVISION, Labs
from benchmarks.measuring import Row, say
from provisioner.hosts import provider_for
from provisioner.values.state import Instance
from tests.desktop_lab import DesktopLab
from tests.processes import awaited_at_end

IMAGE = "debian/12"
"""The service's own default."""
ROUNDS = 3
PROOF = "verify | Log in as a user does"
HISTORY = "/var/log/apt/history.log"
INSTALLED = re.compile(r"^Commandline: \S*apt-get .*\binstall (?P<names>.+)$", re.MULTILINE)
NAME = re.compile(r"[a-z0-9][a-z0-9.+-]+(=|$)")
"""Of a package, perhaps with its version; among them are options of apt's."""
SIZES = re.compile(r"Need to get (?P<get>[\d.,]+) MB.*?After this operation, (?P<use>[\d.,]+) MB", re.DOTALL)
TIMEOUT_S = 1800

UP, PROVED, ALONE, RATIO = (
    "desktop: up",
    "desktop: its proof",
    "desktop: its packages alone",
    "desktop: up without its proof / its packages alone",
)
COPY, PANELS = "desktop: clone, start and a login with panels", "desktop: panels after connecting"
DOWNLOAD, DISK = "desktop: to download", "desktop: on disk"
MEASURED = (UP, PROVED, ALONE, COPY, PANELS, DOWNLOAD, DISK)
UNITS = {RATIO: "x", DOWNLOAD: "MB", DISK: "MB"}


def rows(_labs: Labs, rounds: int) -> list[Row]:
    """In each round a desktop is made, entered and copied, and its packages are installed in another container."""
    taken: list[dict[str, float]] = []
    for number in range(min(rounds, ROUNDS)):
        say(f"desktop: round {number + 1}")
        taken.append(_round())
        say(", ".join(f"{what} {value:.1f}" for what, value in taken[-1].items()))
    return rows_of(taken)


def rows_of(taken: Sequence[dict[str, float]]) -> list[Row]:
    """A row for each thing that was measured, and the ratio of each round."""
    whole = [{**one, RATIO: (one[UP] - one[PROVED]) / one[ALONE]} for one in taken]
    return [Row(name, [one[name] for one in whole], UNITS.get(name, "s")) for name in (RATIO, *MEASURED)]


def _round() -> dict[str, float]:
    name = f"bench-desk-{secrets.token_hex(3)}"
    with tempfile.TemporaryDirectory(prefix=name) as place:
        lab = DesktopLab(Path(place), {}, IMAGE, name)
        lab.describe()
        try:
            taken = _brought_up(lab)
            taken[PANELS] = _entered(lab, "ann")
            lab.end_sessions()
            packages = packages_of(lab.inside("cat", HISTORY))
            taken[COPY] = _copied(lab)
        finally:
            lab.well("destroy", "--yes", "--lab", name)
    return taken | _alone(f"{name}-bare", packages)


def _brought_up(lab: DesktopLab) -> dict[str, float]:
    began = monotonic()
    command = [*PROVISION, "up", "--yes", "--json"]
    with awaited_at_end(
        subprocess.Popen(
            command, cwd=lab.folder, env={**os.environ, **lab.environment}, stdout=subprocess.PIPE, text=True
        )
    ) as running:
        proof_s = length_of(PROOF, (json.loads(line) for line in running.stdout or ()), monotonic)
    if running.returncode:
        raise RuntimeError(f"Unable to measure {' '.join(command)}: it ended with {running.returncode}")
    return {UP: monotonic() - began, PROVED: proof_s}


def length_of(step: str, lines: Iterable[Mapping[str, object]], clock: Callable[[], float]) -> float:
    """Seconds between the line that says that the step begins and the next one that speaks of progress."""
    length = began = 0.0
    for line in lines:
        if began and not length and line["type"] == "apply_progress" and line["message"] != step:
            length = clock() - began
        if line["type"] == "apply_progress" and line["message"] == step:
            began = began or clock()
    if not length:
        raise RuntimeError(f"Unable to measure {step}: the run did not tell it")
    return length


def packages_of(history: str) -> list[str]:
    """What apt was asked for when the desktop was installed: the longest of all demands that it remembers."""
    found = [match["names"].split() for match in INSTALLED.finditer(history)]
    return max(([word.partition("=")[0] for word in words if NAME.match(word)] for words in found), key=len)


def sizes_of(said: str) -> tuple[float, float]:
    """MB to download and on disk, as apt says them. Raises ``ValueError`` where it does not."""
    found = SIZES.search(said)
    if found is None:
        raise ValueError(f"apt does not say how much it installs: {said[:500]}")
    get, use = (float(found[name].replace(",", "")) for name in ("get", "use"))
    return get, use


def _copied(lab: DesktopLab) -> float:
    copy = f"{lab.name}-copy"
    began = monotonic()
    lab.well("clone", lab.desk, copy)
    lab.incus("start", copy)
    _entered(lab, "penny", of=copy)
    return monotonic() - began


def _entered(lab: DesktopLab, user: str, of: str = "") -> float:
    """Seconds between the client's start and its panels."""
    seen = lab.visit(user, of=of)
    if seen["panel"] is None or seen["shows"] != "mate":
        raise RuntimeError(f"Unable to measure a login of {user}: it came to {seen}")
    return float(seen["panel"])


def _alone(name: str, packages: Sequence[str]) -> dict[str, float]:
    """What installing them takes by hand in a container like the desktop's, its creation left out."""
    provider = provider_for("local", "incus")
    one = Instance(name, "local", "bench-desk", IMAGE, cpu=2)
    provider.create(one)
    try:
        provider.start(one)
        provider.wait_until_ready(one)
        install = f"apt-get update && apt-get install --yes --no-install-recommends {' '.join(packages)}"
        began = monotonic()
        ran = provider.execute(
            name, ["sh", "-c", install], environment={"DEBIAN_FRONTEND": "noninteractive"}, timeout_s=TIMEOUT_S
        )
        took = monotonic() - began
    finally:
        provider.delete(one)
    if ran.returncode:
        raise RuntimeError(f"Unable to measure {install}: {ran.stderr.decode(errors='replace')[-2000:]}")
    download, disk = sizes_of(ran.stdout.decode(errors="replace"))
    return {ALONE: took, DOWNLOAD: download, DISK: disk}
