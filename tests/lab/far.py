"""A second Incus of the lab that listens on https, for a controller that has none of its own.

It stands beside the lab's as if it were another machine: own folder, pool, bridge and images. As that one it is shared
by all test runs, and what a killed run left of it is removed by the next.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from provisioner.hosts.incus import IncusProvider
from provisioner.hosts.incus.api import Endpoint
from provisioner.hosts.incus.trust import make_pair
from tests.lab.incus import Lab, lab_beside, reason_to_skip, shared
from tests.processes import completed

FAR = lab_beside("far", "debian/12", "debian/12-bare")
ADDRESS = "127.0.0.1:18443"
WAYS = ["socket", pytest.param("https", marks=pytest.mark.slow)]
"""For tests of what is the same on both ways: ``provider_by`` gives the driver of each."""


@dataclass(frozen=True)
class FarIncus:
    """The daemon, as its owner and as a controller elsewhere see it."""

    lab: Lab
    endpoint: Endpoint
    environment: dict[str, str] = field(default_factory=dict)
    """What a controller has in its environment: no Incus of its own."""

    def incus(self, *arguments: str, stdin: str = "") -> str:
        """What Incus' own client says on its machine."""
        done = completed(["incus", *arguments], given=stdin, env={**os.environ, **self.lab.environment}, timeout_s=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def token(self, name: str) -> str:
        """A token with which one client can have its certificate trusted."""
        return self.incus("config", "trust", "add", "--quiet", name).strip().splitlines()[-1]

    def distrust(self, name: str) -> None:
        """Forget the certificates of that name."""
        for one in json.loads(self.incus("config", "trust", "list", "--format", "json")):
            if one["name"] == name:
                self.incus("config", "trust", "remove", one["fingerprint"])


@contextmanager
def far_from(folder: Path) -> Iterator[FarIncus]:
    """The second Incus, with a client certificate in ``folder`` that it trusts; skips where there can be none."""
    reason = reason_to_skip()
    if reason:
        pytest.skip(reason)
    with shared(FAR) as lab:
        owner = FarIncus(lab, Endpoint(""))
        owner.incus("config", "set", "core.https_address", ADDRESS)
        server = json.loads(owner.incus("query", "/1.0"))
        cert, key = folder / "client.crt", folder / "client.key"
        make_pair(cert, key, days=7)
        name = folder.name + str(os.getpid())
        owner.incus("config", "trust", "add-certificate", str(cert), "--name", name)
        fingerprint = server["environment"]["certificate_fingerprint"]
        environment = {"INCUS_DIR": str(folder / "none"), "INCUS_SOCKET": ""}
        far = FarIncus(lab, Endpoint(f"https://{ADDRESS}", str(cert), str(key), fingerprint), environment)
        try:
            yield far
        finally:
            far.distrust(name)


def provider_by(request: pytest.FixtureRequest) -> IncusProvider:
    """The lab's Incus, or the one elsewhere, as the fixture's parameter says."""
    if request.param == "https":
        return IncusProvider("far", endpoint=request.getfixturevalue("far_incus").endpoint)
    request.getfixturevalue("incus_lab")
    return IncusProvider("box")
