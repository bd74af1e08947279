"""Runs a runbook's playbook on the nodes, and writes down every step before the next one begins."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from provisioner.cluster import runs
from provisioner.cluster.recording import Recorder
from provisioner.cluster.runs import Run
from provisioner.reconcile.inventory import render_nodes
from provisioner.repair.record import Record, StepRecord, StepStatus
from provisioner.values import paths

if TYPE_CHECKING:
    from provisioner.providers.proxmox.shell import Shell
    from provisioner.reconcile.runner import PlaybookResult, TaskEvent

NODE_PYTHON = "/usr/bin/python3"
NOTHING = "ansible-playbook ended before it did anything"


@dataclass(frozen=True, slots=True)
class Job:
    """A repair that was decided on: ``groups`` (lead, node, others) → the nodes' names → how they are reached.

    ``plan`` is what the playbook gets as ``repair_plan``: what was proved and decided, of JSON's types, no secret.
    """

    groups: Mapping[str, Mapping[str, Shell]]
    plan: Mapping[str, Any]


def run_steps(
    job: Job,
    run: Run,
    run_playbook: Callable[..., PlaybookResult],
    on_step: Callable[[StepRecord], None] = lambda _step: None,
) -> Run:
    """Run ``playbooks/repair/<runbook>.yml`` and give the run with what was done, ``error`` said where it failed.

    The record is on disk with every step that begins and every command that ended; it has no end yet. A signal leaves
    it as it is then and passes through. ``on_step`` hears of each step that begins.
    """
    recorder = Recorder(_fresh(run))

    def take(event: TaskEvent) -> None:
        nonlocal run
        begun = recorder.take(event)
        run = runs.write(run, recorder.record)
        if begun is not None:
            on_step(begun)

    for nodes in job.groups.values():
        for shell in nodes.values():
            shell.open()  # one connection for all tasks: while pmxcfs is stopped, sshd finds no key to let us in
    result = run_playbook(f"repair/{run.record.runbook}.yml", inventory(job), folder=run.folder, on_task=take)
    return runs.write(run, recorder.end(_error(result)))


def inventory(job: Job) -> str:
    """The Ansible inventory of a job: YAML text; whatever a node said in it is data, never a template."""
    groups = dict[str, dict[str, dict[str, Any]]]()
    for group, nodes in job.groups.items():
        variables = {name: {**connection(shell), "repair_plan": job.plan} for name, shell in nodes.items()}
        groups[group] = variables
    return render_nodes(groups, paths.inventory_templates())


def connection(shell: Shell) -> dict[str, str]:
    """The variables by which Ansible reaches the node as we do: same options, same known hosts, same connection."""
    variables = {
        "ansible_connection": "ssh",
        "ansible_host": shell.destination.host,
        "ansible_ssh_args": shlex.join(shell.options("auto")),
        "ansible_ssh_transfer_method": "piped",
        "ansible_python_interpreter": NODE_PYTHON,
    }
    user, _, _ = shell.destination.login.rpartition("@")
    if user:
        variables["ansible_user"] = user
    return variables


def _fresh(run: Run) -> Record:
    """Its record as it is before the first step: a run that resumes goes through all again, and keeps what was said."""
    steps = tuple(replace(step, status=StepStatus.NOT_REACHED, message="") for step in run.record.steps)
    return replace(run.record, steps=steps, ended="", error="", after=())


def _error(result: PlaybookResult) -> str:
    """Why the playbook did not come to its end; empty when it did."""
    if result.returncode == 0 and not result.failures:
        return ""
    lines = [f"{failure.host}: {failure.task}: {failure.message}" for failure in result.failures]
    return "\n".join(lines) or NOTHING
