"""The integration files and Molecule scenarios by which a change is tried: one table of rules, by path.

A part is a file of ``tests/integration`` (its path) or a scenario (``molecule/<name>``).
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

from tests.checkout import git

REPRESENTATIVES = (
    "molecule/base",
    "molecule/llama_cpp",
    "molecule/litellm",
    "tests/integration/test_incus.py",
    "tests/integration/test_proxmox_connection.py",
    "tests/integration/cluster/test_cluster_check.py",
    "tests/integration/up/test_drift.py",
)
"""What is run where nobody knows what changed, and where a change reaches everything a little."""
EVERYTHING = (*REPRESENTATIVES, "*")
CARDS = ("*card*", "*cuda*", "*gpu*", "*device*", "molecule/gpu_*", "molecule/cuda_toolkit")
COVERED = ("src/", "roles/", "playbooks/", "molecule/")
"""Folders in which each file needs a rule."""

SRC = r"src/provisioner/"
RULES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        r"(examples/|src/provisioner/labfile/starter)",
        ("*labs_beside*", "*full_stack*", "*agent_team_up*", "*two_homes*"),
    ),
    (SRC + r"reconcile/(artifacts|volumes)", ("*shared_volumes*", "*model_download*", "*kill_loop*")),
    (r"roles/switch/", ("molecule/switch*", "molecule/llama_cpp", "*turns*", "*changes_while_asked*", "*attack*")),
    (r"roles/egress/", ("molecule/pipelines", "molecule/oci", "*oci_up*", "*pipelines_up*")),
    (r"roles/(gpu_host|gpu_userspace|cuda_toolkit)/", CARDS),
    (r"roles/(base|container|model_store)/", (*REPRESENTATIVES, "molecule/container", "molecule/model_store")),
    (r"roles/incus_host/", ("*host_prepare*",)),
    (r"roles/torch_stack/", ("molecule/torch_stack", "*torch*", "molecule/tabbyapi")),
    (r"roles/(?P<name>\w+)/", ("molecule/{name}*", "tests/integration/*{name}*")),
    (r"molecule/(shared/|conftest\.py)", ("molecule/*",)),
    (r"molecule/(?P<name>\w+)/", ("molecule/{name}",)),
    (r"playbooks/repair/", ("*cluster/*", "*bios_backup*")),
    (r"playbooks/(host|gpu_host)\.yml", ("*host_prepare*", "*prepare_node*", *CARDS)),
    (r"playbooks/containers\.yml", ("*container_role*", "molecule/container")),
    (r"playbooks/", REPRESENTATIVES),
    (
        SRC + r"hosts/incus/",
        ("*incus*", "*provider*", "*adoption*", "*connection*", "*lock*", "molecule/container"),
    ),
    (SRC + r"hosts/proxmox/", ("*proxmox*", "*provider*", "*prepare_node*", "*two_homes*")),
    (SRC + r"(hosts/|reconcile/lock\.py)", ("*incus*", "*proxmox*", "*provider*", "*lock*", "*adoption*")),
    (SRC + r"inside/(file_systems|system_start)", ("*incus*", "*proxmox*", "*doctor*", "*no_room*", "*full_disk*")),
    (SRC + r"(cluster/|cli/cluster|cli/runbook|data/runbooks/)", ("*cluster/*", "*bios_backup*")),
    (
        SRC + r"(serving/audit|reconcile/audit|inside/(exposure|http_probe|request_limits|former))",
        ("*audit*", "*door*", "molecule/switch*"),
    ),
    (
        SRC + r"inside/(trial|trial_unit|cpu_waits)",
        ("*changes_while_asked*", "*probe_up*", "*device_proof*", "*clone*"),
    ),
    (SRC + r"(measuring/|inside/(engine_bench|interference|bundle))", ("*bench*", "*probe_up*", "*quality*", "*top*")),
    (SRC + r"(page/|report/|inside/activity)", ("*report*", "*top*", "*tour*")),
    (SRC + r"eject/", ("*eject*", "*inventory*", "*collection*")),
    (SRC + r"(wheels|data/stacks)", ("*torch*", "*wheel*", "molecule/torch_stack", "molecule/tabbyapi", "*vllm*")),
    (SRC + r"(cuda|gpus|data/cuda)", CARDS),
    (SRC + r"(serving/|suggest/|models/|loads/)", ("*caches*", "*llama_cpp_memory*", "*model*", "*suggest*")),
    (SRC + r"services/(?P<name>\w+)\.py", ("molecule/{name}*", "tests/integration/*{name}*", "*quickstart*")),
    (SRC + r"data/tools", ("*tool_environments*", "*bench*")),
    (SRC + r"doctor/", ("*doctor*", "*no_room*")),
    (SRC + r"tls/", ("*door*", "molecule/door*")),
    (SRC + r"reconcile/(journal|snapshots)", ("*lock*", "*kill*", "*changes_while_asked*")),
    (SRC + r"ansible/modules/provision_(cuda|gpu|card|nvidia|engine)", CARDS),
    (SRC + r"ansible/modules/provision_torch", ("*torch*", "molecule/torch_stack")),
    (SRC + r"ansible/modules/provision_tabby", ("*tabbyapi*",)),
    (SRC + r"ansible/modules/provision_(host|incus)_facts", ("*host_prepare*", "*prepare_node*")),
    (SRC + r"ansible/modules/provision_container", ("*container_role*", "molecule/container")),
    (SRC + r"ansible/(connection|callback)/", ("*connection*", *REPRESENTATIVES)),
    (SRC + r"ansible/inventory/", ("*inventory*", "*collection*")),
    (SRC + r"(ansible|inside/module_server)/", (*REPRESENTATIVES, "molecule/*")),
    (SRC + r"(generate|__main__|__init__)\.py|" + SRC + r"(data/|py\.typed)", REPRESENTATIVES),
    (SRC + r"(catalog|cli|inside|lab|labfile|reconcile|services|values)/", EVERYTHING),
    (r"(?P<name>tests/integration/(\w+/)?test_\w+\.py)$", ("{name}",)),
    (r"tests/integration/(?P<name>up|cluster)/", ("tests/integration/{name}/*",)),
    (r"tests/doubles/corosync/", ("*cluster/*",)),
    (r"tests/doubles/proxmox/", ("*proxmox*",)),
    (r"tests/doubles/ollama/", ("*ollama*",)),
    (r"tests/doubles/openai/", ("*team*", "*pipelines*", "*_bench*")),
    (r"tests/attackers/", ("molecule/switch", "*attack*", "*hostile*")),
    (r"tests/molecule/", ("molecule/base", "molecule/switch*")),
    (r"tests/(?!unit/|lint/|cases/|data/|fuzz/|last_full)|pyproject\.toml|\.config/molecule/", REPRESENTATIVES),
)
"""A pattern of changed paths, and the parts that try them; the first pattern that matches counts."""


class NotCoveredError(Exception):
    """A changed path for which the table has no rule."""


def changed_paths(root: Path, base: str) -> list[str] | None:
    """Return the paths that differ from commit ``base``, new ones included; None where git does not know it."""
    try:
        changed = git(root, "diff", "--name-only", "--no-renames", "-z", base, "--")
        new = git(root, "ls-files", "--others", "--exclude-standard", "-z")
    except subprocess.CalledProcessError:
        return None
    return sorted({path for path in (changed + new).split("\0") if path})


def parts_for(paths: Iterable[str], parts: Iterable[str]) -> list[str]:
    """Return the parts by which changes of these paths are tried; raises `NotCoveredError` where no rule does."""
    parts = list(parts)
    globs: set[str] = set()
    for path in paths:
        rule = _globs(path)
        if rule is None and path.startswith(COVERED):
            raise NotCoveredError(f"no rule in tests/changed.py says which tests try {path}: add one to its table")
        globs.update(rule or ())
    return [part for part in parts if any(fnmatch(part, glob) for glob in globs)]


def _globs(path: str) -> list[str] | None:
    for pattern, globs in RULES:
        if match := re.match(pattern, path):
            return [glob.format(**match.groupdict()) for glob in globs]
    return None
