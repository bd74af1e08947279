"""``provision cluster`` as users run it, on the corosync lab."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.doubles.corosync.cluster import Cluster
from tests.doubles.corosync.stale import Mode
from tests.processes import completed

CONDITIONS: dict[Mode, str] = {
    "version": "behind",
    "added": "disturbing",
    "moved": "peers-moved",
    "readdr": "node-moved",
    "idreuse": "id-reused",
    "removed": "removed",
    "key": "key-changed",
}
"""What each way of being stale is to be called."""
HEIR = {"idreuse": [("offline", "new3"), ("do-not-power-on", "new3")]}
"""Who was given the id of the stale node, and never existed: it is off, as far as anybody knows."""
LATE = ("unknown", "pve3")
"""While corosync forms its membership its tools get no answer from it."""


@dataclass(frozen=True)
class Said:
    """What a verb answered: its exit code, its ``result`` line and its last diagnostic (empty where there is none)."""

    code: int
    result: Mapping[str, Any]
    diagnostic: Mapping[str, Any]
    raw: str

    @property
    def conditions(self) -> list[tuple[str, str]]:
        """Condition and node of each diagnosis."""
        return [(one["condition"], one["node"]) for one in self.result["diagnoses"]]

    def of(self, condition: str) -> Mapping[str, Any]:
        """The diagnosis of that condition."""
        return next(one for one in self.result["diagnoses"] if one["condition"] == condition)


def provision(environment: Mapping[str, str], *words: str, cwd: str = "/") -> subprocess.CompletedProcess[str]:
    """Run it as a program."""
    call = [sys.executable, "-m", "provisioner", *words]
    env = {**os.environ, **environment}
    return completed(call, cwd=cwd, env=env, timeout_s=900)


def check(cluster: Cluster, name: str, *words: str, config: Path | None = None) -> Said:
    """``cluster check`` of a node, by its address; ``config``: another file for ssh."""
    environment = {**cluster.environment, **({"PROVISION_SSH_CONFIG": str(config)} if config else {})}
    return said(provision(environment, "cluster", "check", f"root@{cluster.node(name).address}", *words, "--json"))


def assert_told(cluster: Cluster, mode: Mode) -> None:
    """pve3 is stale in that way, and this is told by a good node and by itself."""
    for asked in ("pve1", "pve3"):
        found = check(cluster, asked)
        assert found.code == 3, found.raw
        told = [one for one in found.conditions if mode != "added" or one != LATE]
        assert told == [(CONDITIONS[mode], "pve3"), *HEIR.get(mode, [])], found.raw
        assert found.result["lead"] in {"pve1", "pve2", "pve4", "pve5"}


def new_version(cluster: Cluster) -> int:
    """The members that are there get the next version of the same list, as after any change; the new version."""
    node = cluster.quorate()
    text = node.read("/etc/pve/corosync.conf")
    version = int(re.findall(r"config_version: (\d+)", text)[0]) + 1
    node.write("/etc/pve/corosync.conf.new", re.sub(r"config_version: \d+", f"config_version: {version}", text), 0o640)
    node.run("mv /etc/pve/corosync.conf.new /etc/pve/corosync.conf")
    running = f"corosync-cmapctl totem.config_version | grep -q '= {version}$'"
    for one in cluster.nodes:
        if not one.is_off:
            one.wait("told", lambda one=one: one.can(running))  # type: ignore[misc]
    return version


def said(done: subprocess.CompletedProcess[str]) -> Said:
    """The stream, taken apart."""
    lines = stream_of(done)
    results = [one for one in lines if one["type"] == "result"]
    diagnostics = [one for one in lines if one["type"] == "diagnostic"]
    return Said(done.returncode, (results or [{}])[-1], (diagnostics or [{}])[-1], done.stdout + done.stderr)


def stream_of(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """The lines of the stream, which came to its end."""
    lines: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[-1]["type"] == "summary", done.stdout + done.stderr
    return lines
