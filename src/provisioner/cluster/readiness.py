"""Asks the node and the lead whether they have what a forced rejoin needs beside the cluster's own state."""

from __future__ import annotations

from provisioner.cluster.reaching import Reach
from provisioner.repair.readiness import Readiness, fingerprints, missing_programs, root_login, ssh_refusal
from provisioner.values import paths
from provisioner.values.errors import ProviderError
from provisioner.values.plain_data import Foreign

TIMEOUT_S = 60.0


def ask(node: Reach, lead: Reach, node_address: str, lead_address: str) -> Readiness:
    """What both say; the addresses are those at which the nodes reach each other."""
    here, there = _said(node, lead_address), _said(lead, node_address)
    return Readiness(
        missing_programs(here), ssh_refusal(here), ssh_refusal(there), root_login(here), fingerprints(there)
    )


def _said(node: Reach, other: str) -> str:
    script = (paths.data() / "cluster" / "ready.sh").read_text(encoding="utf-8")
    done = node.shell.run(["sh", "-c", script, "ready", other], timeout_s=TIMEOUT_S)
    if done.returncode:
        words = Foreign.of_output(done.stderr)
        raise ProviderError(f"Unable to ask {node.name} whether it is ready", details=words)
    return done.stdout.decode(errors="replace")
