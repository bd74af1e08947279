"""What of the lab is not as it should be, the worst first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from provisioner.loads.refusals import mib
from provisioner.report.elements import Markup, join, moment, quiet, state, tag
from provisioner.report.lab_page.content import LabContent
from provisioner.values.address import Address
from provisioner.values.events import Diagnostic
from provisioner.values.state import ContainerStatus, Status

MOODS = {"error": "bad", "warning": "mind", "note": "dim"}
WORDS = {"error": "error", "warning": "warning", "note": "note"}
ORDER = ("error", "warning", "note")


def warnings(content: LabContent) -> Iterator[Markup]:
    """A notice for each of them, or that there is none."""
    found = all_warnings(content)
    if not found:
        yield tag("div", tag("p", state("good", "Nothing to warn of, "), moment(content.at)), class_="notice good")
        return
    for severity in ORDER:
        for one in found:
            if one.severity == severity:
                yield _notice(one)
    yield quiet("All of this as it was ", moment(content.at), ".")


def all_warnings(content: LabContent) -> Sequence[Diagnostic]:
    """What was warned of while the lab was looked at, and what follows from what was seen."""
    found = list(content.warnings)
    for container in content.containers:
        found += _of_container(container)
    found += _of_proofs(content)
    found += _of_cards(content)
    return tuple(dict.fromkeys(found))


def _of_container(container: ContainerStatus) -> Iterator[Diagnostic]:
    name = container.name
    if container.orphan:
        yield Diagnostic(
            "warning", f"{name} is an orphan: the file does not name it", resolution="Run: provision up --prune"
        )
    elif container.elsewhere:
        yield Diagnostic("warning", f"{name}: {container.elsewhere}")
    elif container.status is None:
        yield Diagnostic("error", f"{name} is missing on host {container.host}", resolution="Run: provision up")
    elif container.status is not Status.RUNNING:
        yield Diagnostic("warning", f"{name} is {container.status}", resolution="Run: provision up")
    for service in container.services:
        if service.healthy is False:
            yield Diagnostic("error", f"{name}/{service.role} is unhealthy: its unit is {service.unit}")
    if container.drift and not container.orphan:
        yield Diagnostic("warning", f"{name} has drifted from the file", details="\n".join(container.drift))


def _of_proofs(content: LabContent) -> Iterator[Diagnostic]:
    for address, proved in content.proofs.items():
        if proved.failure and _is_in_file(address, content):
            message = f"{address}: its last proof failed ({proved.verb})"
            yield Diagnostic("error", message, proved.failure, "Run: provision verify")


def _is_in_file(address: Address, content: LabContent) -> bool:
    return address in content.graph.services


def _of_cards(content: LabContent) -> Iterator[Diagnostic]:
    for budget in content.budgets:
        if budget.missing:
            message = f"{budget.title}: {mib(budget.missing)} too much by the sums"
            yield Diagnostic("warning", message, resolution="Run: provision fit")


def _notice(one: Diagnostic) -> Markup:
    mood = MOODS[one.severity]
    parts = [tag("p", state(mood, WORDS[one.severity]), " ", one.message)]
    if one.details:
        parts.append(tag("pre", one.details))
    if one.resolution:
        parts.append(quiet("What to do: ", one.resolution))
    return tag("div", join(parts), class_=f"notice {mood}")
