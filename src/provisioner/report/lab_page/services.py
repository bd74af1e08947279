"""Each container with its services: how they do, what was asked and what came, and the pictures of their proofs."""

from __future__ import annotations

import base64
from collections.abc import Iterator

from provisioner.proofs import Proved
from provisioner.report.elements import Markup, join, moment, opened, quiet, state, table, tag
from provisioner.report.graph.topology import Box, Service
from provisioner.report.lab_page.content import LabContent
from provisioner.report.status import shown_text
from provisioner.report.style import count_text, duration_text
from provisioner.values.address import Address
from provisioner.values.facts import ASLEEP, BUSY, ProofStep
from provisioner.values.state import ContainerStatus, Screen, ServiceStatus, Status

NOT_SEEN = ServiceStatus("")
CPU = "CPU"


def services(content: LabContent) -> Iterator[Markup]:
    """A panel for each container of the file, in its order, and then for those that are in no file."""
    if not content.graph.boxes and not content.containers:
        yield quiet("The lab has no containers, neither in the file nor on its hosts.")
    seen = {one.name: one for one in content.containers}
    for box in content.graph.boxes:
        container = seen.pop(box.name, ContainerStatus(box.name, box.host))
        statuses = {service.role: service for service in container.services}
        parts = [_of_service(content, one, statuses.get(one.role, NOT_SEEN)) for one in box.services]
        parts += _of_other_roles(content, box)
        yield _panel(content, container, parts)
    for container in seen.values():
        yield _panel(content, container, [])


def _panel(content: LabContent, container: ContainerStatus, parts: list[Markup]) -> Markup:
    head = [_state_of(container), f" on host {container.host}"]
    if container.address:
        head.append(f" at {container.address}")
    head += [", as of ", moment(content.at)]
    if not parts and not container.orphan:
        parts = [quiet("It has no services.")]
    return tag("article", tag("h3", container.name), tag("p", *head), *parts, class_="panel")


def _state_of(container: ContainerStatus) -> Markup:
    if container.orphan:
        return state("mind", f"orphan, {container.status or 'not seen'}")
    if container.elsewhere:
        return state("mind", container.elsewhere)
    if container.status is None:
        return state("bad", "missing")
    return state("good" if container.status is Status.RUNNING else "mind", str(container.status))


def _of_service(content: LabContent, service: Service, status: ServiceStatus) -> Markup:
    address = Address(service.id)
    rows = [("Health", _health(content, address, status)), *_facts(content, service, status)]
    rows.append(("Proof", _proof_line(content.proofs.get(address))))
    described = []
    for name, value in rows:
        described += [tag("dt", name), tag("dd", value)]
    parts = [tag("h4", service.role), tag("dl", *described)]
    parts += _evidence(content, address)
    parts += _pictures(content, address, status)
    return join(parts)


def _of_other_roles(content: LabContent, box: Box) -> Iterator[Markup]:
    """The evidence of roles beside the services, such as the one that brings a card's driver.

    Only of the run that proved a service of the container last: of roles that have gone a record stays.
    """
    addresses = {Address(service.id) for service in box.services}
    times = {content.proofs[address].at for address in addresses if address in content.proofs}
    for address, proved in sorted(content.proofs.items(), key=lambda item: str(item[0])):
        is_other = address.container == box.name and address not in addresses
        if is_other and proved.steps and proved.at == max(times, default=""):
            yield tag("h4", address.service)
            yield _steps(address, proved)


def _health(content: LabContent, address: Address, status: ServiceStatus) -> Markup:
    if status.health in (BUSY, ASLEEP):
        shown = state("dim", f"{status.health} {status.asleep}".strip())
    elif status.healthy is None:
        shown = state("dim", "not known: nobody could be asked")
    else:
        shown = state("good", "healthy") if status.healthy else state("bad", "unhealthy")
    when = (", asked ", moment(content.at)) if content.asked.get(address) else ()
    return join([shown, *when])


def _facts(content: LabContent, service: Service, status: ServiceStatus) -> Iterator[tuple[str, object]]:
    """What the file says of it, and what it computes on."""
    if service.port:
        where = "open to the LAN" if service.on_lan else "not shown to the LAN"
        yield "Port", f"{service.port}, {where}"
    if service.model:
        yield "Models", service.model
    if status.processor == CPU:
        yield "Computes on", join([CPU, ", as seen ", moment(content.at)])
    elif status.processor:
        why = f" ({status.why})" if status.why else ""
        yield "Computes on", join([f"{status.processor}{why}, as seen ", moment(content.at)])


def _proof_line(proved: Proved | None) -> Markup:
    if proved is None:
        return state("dim", "never proved from this machine, or by a version that kept nothing of it")
    when = (" by ", tag("code", f"provision {proved.verb}"), ", ", moment(proved.at))
    if proved.failure:
        return join([state("bad", "failed"), *when])
    return join([state("good", "proved"), *when])


def _evidence(content: LabContent, address: Address) -> Iterator[Markup]:
    """What was asked of the service and what came: by this page, and by its last proof."""
    asked = content.asked.get(address, ())
    if asked:
        rows = [(one.question, state("good" if one.well else "bad", one.answer)) for one in asked]
        label = f"What {address} was asked for this page"
        summary = join([f"{count_text(len(asked), 'answer')} to this page, ", moment(content.at)])
        yield opened(summary, table(label, ("asked", "what came"), rows))
    proved = content.proofs.get(address)
    if proved is not None:
        yield _steps(address, proved)


def _steps(address: Address, proved: Proved) -> Markup:
    rows = [(step.asked, _came(step), duration_text(step.took_s)) for step in proved.steps]
    parts = [tag("pre", proved.failure)] if proved.failure else []
    if rows:
        parts.append(table(f"What the proof of {address} asked", ("asked", "what came", "took"), rows))
    well = sum(step.well for step in proved.steps)
    words = f"Evidence of the proof: {well} of {count_text(len(rows), 'step')} as they should be, "
    return opened(join([words, moment(proved.at)]), *parts, is_open=bool(proved.failure))


def _came(step: ProofStep) -> Markup:
    """What came of one step; a step that only asked, and is judged by a later one, is done."""
    if not step.well:
        return state("bad", step.words or "failed")
    lines = step.words.splitlines()
    if not lines:
        return state("dim", "done")
    return state("good", join([lines[0], *(part for line in lines[1:] for part in (tag("br"), line))]))


def _pictures(content: LabContent, address: Address, status: ServiceStatus) -> Iterator[Markup]:
    """What proofs saw, each picture with its time."""
    figures = []
    for screen in status.screens:
        picture = content.pictures.get(screen.file)
        if picture is not None:
            figures.append(_figure(address, screen, picture))
    if figures:
        yield tag("div", *figures, class_="pictures")


def _figure(address: Address, screen: Screen, picture: bytes) -> Markup:
    source = f"data:image/png;base64,{base64.b64encode(picture).decode('ascii')}"
    caption = shown_text(screen)
    image = tag("img", src=source, alt=f"Picture that the proof of {address} took: {caption}")
    return tag("figure", image, tag("figcaption", caption, ", taken ", moment(screen.at)))
