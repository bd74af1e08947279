"""The content of a lab's page: values that were gathered at one moment, and nothing that asks a host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from provisioner.loads.budgets import Budget
from provisioner.loads.measured import Measured
from provisioner.measuring.history import Result
from provisioner.measuring.probe import Kept
from provisioner.page.clients import Gateway
from provisioner.page.topology import Graph
from provisioner.reconcile.prove import Proved
from provisioner.values.address import Address
from provisioner.values.events import Diagnostic
from provisioner.values.state import ContainerStatus, Run


@dataclass(frozen=True, slots=True)
class Asked:
    """One thing that a service was asked for this page: what, what came, and whether that is as it should be."""

    question: str
    answer: str
    well: bool


@dataclass(frozen=True, slots=True)
class Pending:
    """One change that ``up`` would make, and why."""

    action: str
    target: str
    reason: str


@dataclass(frozen=True, slots=True)
class Clients:
    """Where clients ask the lab; ``unknown`` says why nobody can tell. ``needs_root``: they have to trust its root."""

    gateway: Gateway | None = None
    unknown: str = ""
    needs_root: bool = False


@dataclass(frozen=True, slots=True)
class LabContent:
    """Everything of one lab, as it was ``at`` one moment (ISO 8601).

    ``pictures`` are PNG files by the places in which they are kept; ``pending`` is None where nobody can tell it,
    and ``pending_unknown`` says why then. ``runs``: the newest first.
    """

    lab: str
    file: str
    at: str
    graph: Graph
    warnings: tuple[Diagnostic, ...] = ()
    containers: tuple[ContainerStatus, ...] = ()
    asked: Mapping[Address, tuple[Asked, ...]] = field(default_factory=dict)
    proofs: Mapping[Address, Proved] = field(default_factory=dict)
    pictures: Mapping[str, bytes] = field(default_factory=dict)
    budgets: tuple[Budget, ...] = ()
    measured: Mapping[str, Measured] = field(default_factory=dict)
    tried: Mapping[Address, tuple[Kept, ...]] = field(default_factory=dict)
    results: Mapping[Address, tuple[Result, ...]] = field(default_factory=dict)
    pending: tuple[Pending, ...] | None = None
    pending_unknown: str = ""
    runs: tuple[Run, ...] = ()
    clients: Clients = Clients()
