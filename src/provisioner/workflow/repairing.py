"""One runbook after the other on one cluster, each with its own record, and a page of it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from provisioner.catalog.runbooks import known_runbook
from provisioner.cluster import runs
from provisioner.cluster.running import Job, run_steps
from provisioner.repair.conditions import Diagnosis
from provisioner.repair.record import Record, StepRecord, StepStatus
from provisioner.report.repair_html import record_html
from provisioner.values.errors import ProviderError
from provisioner.values.events import ApplyComplete, ApplyErrored, ApplyProgress, ApplyStart, Event

if TYPE_CHECKING:
    from provisioner.cluster.runs import Run
    from provisioner.providers.proxmox.shell import Shell
    from provisioner.reconcile.runner import PlaybookResult

REPORT = "report.html"


@dataclass(frozen=True, slots=True)
class Hands:
    """How the world is touched: ``run_playbook`` as ``runner.run_playbook``; ``emit`` says what goes on."""

    run_playbook: Callable[..., PlaybookResult]
    emit: Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Where:
    """On what: the cluster's and the node's names, and the node that does it."""

    cluster: str
    node: str
    lead: str
    shell: Shell


def begin(runbook: str, where: Where, before: tuple[Diagnosis, ...] = ()) -> Run:
    """The run of a runbook, its steps not reached."""
    steps = tuple(StepRecord(one.id, one.does, StepStatus.NOT_REACHED) for one in known_runbook(runbook).steps)
    return runs.begin(Record(runbook, where.cluster, where.node, where.lead, runs.now(), before=before, steps=steps))


def carry_out(run: Run, where: Where, plan: Mapping[str, Any], hands: Hands) -> Run:
    """Run its playbook on the lead and end its record; ``ProviderError`` with the failed step's words.

    What was done stays written down either way, also as a page.
    """
    name, started = run.record.runbook, time.monotonic()
    hands.emit(ApplyStart(where.node, name))
    job = Job({"lead": {where.lead: where.shell}}, {"node": where.node, **plan})
    run = run_steps(job, run, hands.run_playbook, lambda step: hands.emit(ApplyProgress(where.node, step.id)))
    run = finish(run)
    if run.record.error:
        hands.emit(ApplyErrored(where.node, name, run.record.error))
        raise ProviderError(
            f"Unable to finish {name} for {where.node}",
            details=run.record.error,
            resolution=f"What was done is in {run.folder / REPORT}. The same command goes on from there.",
        )
    hands.emit(ApplyComplete(where.node, name, time.monotonic() - started))
    return run


def finish(run: Run, after: tuple[Diagnosis, ...] = ()) -> Run:
    """The run with its end written down, and its page beside it (0600)."""
    run = runs.write(run, replace(run.record, ended=runs.now(), after=after or run.record.after))
    page = os.open(run.folder / REPORT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(page, "w", encoding="utf-8") as file:
        file.write(record_html(run.record))
    return run
