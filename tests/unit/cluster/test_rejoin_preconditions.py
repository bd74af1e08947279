"""The words that name a node, each wrong one answered with what to do; and what ``ready.sh`` writes, understood."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from provisioner.cluster.facts import ClusterFacts, NodeFacts, Silent
from provisioner.cluster.rejoin_preconditions import (
    FAILED,
    Readiness,
    fingerprints,
    missing_programs,
    require_lead,
    require_node,
    require_other,
    root_login,
    ssh_refusal,
)
from provisioner.report.messages import error_text
from provisioner.values import paths
from provisioner.values.errors import InputError, PreflightError, ProvisionError, UnavailableError
from tests.unit.cluster.rejoin_case import situation

SEEN = situation({"node": {}})


FACTS = SEEN.facts


def facts(lead: NodeFacts = SEEN.lead, *others: NodeFacts, silent: tuple[Silent, ...] = ()) -> ClusterFacts:
    return ClusterFacts("pve1", (lead, *others), silent)


def test_a_node_that_answers_is_found_by_its_name() -> None:
    assert require_node(FACTS, "pve3") is SEEN.node


NO_ROUTE = facts(silent=(Silent("pve9", "10.0.0.9", "no route"),))


NO_LEAD = ClusterFacts("pve3", (SEEN.node,), (Silent("pve1", "10.0.0.1", "no route"),))


ALONE = NodeFacts("pve1", "10.0.0.1", units={"corosync": "inactive", "pve-cluster": "active"})


ANSWERED: dict[str, tuple[type[ProvisionError], Callable[[], object]]] = {
    "nearly a name": (InputError, lambda: require_node(FACTS, "pve33")),
    "no name": (InputError, lambda: require_node(FACTS, "other")),
    "an address": (InputError, lambda: require_node(FACTS, "10.0.0.3")),
    "another address": (InputError, lambda: require_node(FACTS, "192.168.7.3")),
    "an address of a silent node": (InputError, lambda: require_node(NO_ROUTE, "10.0.0.9")),
    "a silent node": (UnavailableError, lambda: require_node(NO_ROUTE, "pve9")),
    "a node with another host key": (
        UnavailableError,
        lambda: require_node(facts(silent=(Silent("pve9", "10.0.0.9", "no key", "Compare its key."),)), "pve9"),
    ),
    "a ghost": (PreflightError, lambda: require_node(facts(replace(SEEN.lead, guests={"pve9": ()})), "pve9")),
    "a member by its own list alone": (
        PreflightError,
        lambda: require_node(facts(replace(SEEN.lead, running=SEEN.lead.running[::2])), "pve2"),
    ),
    "the node that was asked": (PreflightError, lambda: require_other(SEEN.lead, FACTS)),
    "a single node": (PreflightError, lambda: require_lead(ClusterFacts("pve1", (ALONE,)))),
    "no quorum": (PreflightError, lambda: require_lead(NO_LEAD)),
}


@pytest.mark.parametrize(("kind", "ask"), ANSWERED.values(), ids=ANSWERED)
def test_a_word_that_names_no_stale_node_is_answered_with_what_to_do(
    kind: type[ProvisionError], ask: Callable[[], object], snapshot: SnapshotAssertion
) -> None:
    with pytest.raises(kind) as caught:
        ask()
    assert error_text(caught.value) == snapshot


def test_a_stale_node_is_another_than_the_one_that_was_asked() -> None:
    require_other(SEEN.node, FACTS)
    require_other(SEEN.lead, replace(FACTS, asked="pve3"))


GOOD = "ssh: ok\nroot-login: #PermitRootLogin prohibit-password\nhost-key: 256 SHA256:abc root@pve1 (ED25519)\n"


BAD = "missing: rsync\nmissing: pvecm\nssh: No RSA key is known\nssh: Host key verification failed.\nroot-login: \n"


def test_a_node_that_is_ready() -> None:
    assert missing_programs(GOOD) == ()
    assert ssh_refusal(GOOD) == ""
    assert root_login(GOOD) == "#PermitRootLogin prohibit-password"
    assert fingerprints(GOOD) == ("256 SHA256:abc root@pve1 (ED25519)",)


def test_lines_of_ssh_itself_end_where_people_see_them_end() -> None:
    assert ssh_refusal(BAD.replace("\n", "\r\n")) == "No RSA key is known\nHost key verification failed."


def test_a_node_that_is_not() -> None:
    assert missing_programs(BAD) == ("rsync", "pvecm")
    assert ssh_refusal(BAD) == "No RSA key is known\nHost key verification failed."
    assert root_login(BAD) == ""


@pytest.mark.parametrize("text", ["", "missing: rsync\n", "xssh: ok\n", "ssh: ok, they said\n"])
def test_silence_is_no_consent(text: str) -> None:
    assert ssh_refusal(text) in (FAILED, "ok, they said")


@pytest.mark.parametrize(
    ("line", "keeps"),
    [
        ("PermitRootLogin yes", True),
        ("PermitRootLogin  yes ", True),
        ("PermitRootLogin prohibit-password", False),
        ("#PermitRootLogin yes", False),
        ("", False),
    ],
)
def test_pvecm_leaves_alone_only_what_it_wants(line: str, *, keeps: bool) -> None:
    assert Readiness(root_login=line).keeps_root_login is keeps


def test_the_script_says_what_is_missing_and_what_ssh_said(tmp_path: Path) -> None:
    for name in ("sh", "timeout", "grep", "head", "sed"):
        (tmp_path / name).symlink_to(shutil.which(name) or "")
    (tmp_path / "ssh").write_text("#!/bin/sh\necho 'no way' >&2\nexit 255\n", encoding="ascii")
    (tmp_path / "ssh").chmod(0o755)
    script = (paths.data() / "cluster" / "ready.sh").read_text(encoding="utf-8").replace(":/usr/sbin:/sbin", "")
    call = ["/bin/sh", "-c", script, "ready", "10.0.0.1"]
    done = subprocess.run(call, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True, timeout=60)
    assert {"pvecm", "rsync", "flock", "ssh-copy-id"} <= set(missing_programs(done.stdout))
    assert "ssh" not in missing_programs(done.stdout)
    assert ssh_refusal(done.stdout) == "no way"
