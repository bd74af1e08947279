"""Where a node may be that is to be forgotten: every address, and what the lead knows by name and certificate."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from provisioner.repair.facts import ClusterFacts, CorosyncConf, Member, Silent
from provisioner.repair.forgetting import Kind, Target
from provisioner.repair.whereabouts import whereabouts
from provisioner.values import paths
from tests.cluster_facts import cluster, members

TIMEOUT_S = 60
GHOST = Target("pve9", Kind.GHOST)
FACTS = cluster()


def knowing() -> ClusterFacts:
    """One node has an older list of its own, and packets came from where the ghost was."""
    old = CorosyncConf("homelab", 5, (*members(3), Member("pve9", 9, 1, ("10.0.0.9", "10.0.0.2"))))
    first = replace(FACTS.nodes[0], local_conf=old)
    return replace(FACTS, nodes=(first, *FACTS.nodes[1:]), silent=(Silent("pve9", "10.8.0.9", "timed out"),))


def test_a_ghost_is_looked_for_at_every_address_that_anybody_knows() -> None:
    assert whereabouts(knowing(), GHOST, ("192.168.7.9", "10.0.0.9")) == ("10.8.0.9", "10.0.0.9", "192.168.7.9")


def test_the_addresses_of_others_and_the_machine_itself_are_no_sign_of_it() -> None:
    assert whereabouts(FACTS, GHOST, ("10.0.0.2", "127.0.0.1", "::1")) == ()


def test_a_members_own_addresses_come_first() -> None:
    target = Target("pve3", Kind.MEMBER, ("10.0.0.3",), 3)
    assert whereabouts(cluster(off=("pve3",)), target, ("192.168.7.3",)) == ("10.0.0.3", "192.168.7.3")


@pytest.mark.skipif(not shutil.which("openssl"), reason="there is no openssl")
def test_the_script_reads_the_name_and_the_certificate(tmp_path: Path) -> None:
    folder = tmp_path / "localhost"
    folder.mkdir()
    names = "subjectAltName=IP:127.0.0.1,IP:::1,DNS:localhost,IP:192.0.2.9,IP:2001:db8::9,DNS:pve9"
    call = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=pve9", "-addext", names]
    call += ["-keyout", os.devnull, "-out", str(folder / "pve-ssl.pem")]
    subprocess.run(call, check=True, capture_output=True, timeout=TIMEOUT_S)
    script = (paths.data() / "cluster" / "addresses.sh").read_text(encoding="utf-8")
    script = script.replace("/etc/pve/nodes", str(tmp_path))
    said = subprocess.run(
        ["sh", "-c", script, "sh", "localhost"], capture_output=True, text=True, check=True, timeout=TIMEOUT_S
    ).stdout
    assert {"127.0.0.1", "192.0.2.9", "2001:DB8:0:0:0:0:0:9"} <= set(said.split())
    nobody = subprocess.run(
        ["sh", "-c", script, "sh", "no-such-node.invalid"], capture_output=True, check=True, timeout=TIMEOUT_S
    )
    assert nobody.stdout == b""
