"""The sections of the page: services with their proofs, memory of cards, routes, warnings, and changes."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from provisioner.loads.advice import mib
from provisioner.loads.budgets import Budget
from provisioner.loads.engines import EngineLoads
from provisioner.loads.measured import Measured, identity_of
from provisioner.page.content import LabContent
from provisioner.page.topology import Box, Edge, Service
from provisioner.reconcile.prove import Proved
from provisioner.reconcile.text import shown_text
from provisioner.report.html import NOTHING, Markup, join, moment, opened, quiet, state, table, tag
from provisioner.report.style import count_text, duration_text
from provisioner.values.address import Address
from provisioner.values.events import Diagnostic
from provisioner.values.facts import ASLEEP, BUSY, ProofStep
from provisioner.values.state import ContainerStatus, Run, Screen, ServiceStatus, Status

# Services: a panel for each container, with health, proofs and their evidence.

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


# Memory of cards, by the sums and by what was measured: a bar for each, and a row for each service.

COLOURS = 6
HEIGHT = 30
LEAST_PERCENT = 4.0
"""A number fits into a part of a bar that is at least so wide."""
NEVER = "never measured"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a bar: its bytes, its class, and its number in the table; empty where it has none."""

    size: int
    kind: str
    number: str = ""


def cards(content: LabContent) -> Iterator[Markup]:
    """A panel for each card, or for what is taken for one."""
    if not content.budgets:
        yield quiet("No engine of the file computes on a card.")
    for budget in content.budgets:
        yield tag("article", tag("h3", budget.title), *_card(content, budget), class_="panel")


def _card(content: LabContent, budget: Budget) -> Iterator[Markup]:
    if not _wants_card(content, budget):
        yield tag(
            "p", state("dim", "not checked on a card"), ": the file gives them none; this is what they would take."
        )
    elif budget.card is None:
        yield tag("p", state("mind", "not checked on a card"), ": which one they get is not known.")
        yield _verdict(content, budget)
    else:
        yield _verdict(content, budget)
    estimated = [engine.total for engine in budget.counted]
    taken = [_measured_of(content, engine) for engine in budget.counted]
    words = f"Estimated: {mib(sum(estimated))}{_of_usable(budget)}"
    yield tag("p", words, ", ", moment(content.at))
    yield _bar(budget, words, estimated)
    known = [one for one in taken if one is not None]
    if known:
        sizes = [one.measured if one else 0 for one in taken]
        is_all = len(known) == len(taken)
        others = "" if is_all else "; what the others take of the rest is not known"
        words = f"Measured: {mib(sum(sizes))} of {len(known)} of {len(taken)} services{others}"
        yield tag("p", words, ", the last ", moment(max(one.at for one in known)))
        yield _bar(budget, words, sizes, "free" if is_all else "rest")
    else:
        yield tag("p", "Measured: ", state("dim", NEVER))
    rows = [*_rows(content, budget), *_rest_rows(budget, estimated, taken)]
    yield table(f"Memory of {budget.title}", ("mark", "service", "estimated", "measured", "measured at"), rows)
    yield _terms(content, budget)


def _wants_card(content: LabContent, budget: Budget) -> bool:
    """Whether the file gives a card to the containers of these engines."""
    containers = {engine.container for engine in budget.engines}
    return any(box.gpu for box in content.graph.boxes if box.name in containers)


def _of_usable(budget: Budget) -> str:
    if budget.usable is None:
        return "; how much memory the card has is not known"
    return f" of {mib(budget.usable)} usable"


def _verdict(content: LabContent, budget: Budget) -> Markup:
    if budget.missing:
        shown = state("bad", f"{mib(budget.missing)} too much by the sums")
    elif budget.usable is None or budget.unknown:
        shown = state("mind", "whether it fits is not known")
    else:
        shown = state("good", "it fits by the sums")
    return tag("p", shown, ", ", moment(content.at))


def _measured_of(content: LabContent, engine: EngineLoads) -> Measured | None:
    """What was measured of the same models and options."""
    record = content.measured.get(engine.address)
    return record if record is not None and engine.loads and record.is_of(engine.loads) else None


def _bar(budget: Budget, words: str, sizes: Sequence[int], left: str = "free") -> Markup:
    """Each service, what is left, and what of the card nobody can have; all of it as wide as the page.

    ``left``: "free", or "rest" where nobody knows how much of it is. One service alone of an unknown whole is no bar.
    """
    if budget.usable is None and len(sizes) == 1:
        return NOTHING
    parts = []
    for number, size in enumerate(sizes):
        parts.append(Part(size, f"e{number % COLOURS}", str(number + 1)))
    usable = budget.usable or 0
    free = usable - sum(sizes)
    if budget.usable is not None and free > 0:
        parts.append(Part(free, left))
    elif budget.usable is not None and free < 0:
        return _drawn(words, [part for part in parts if part.size > 0], over=-free)
    if budget.card is not None:
        parts.append(Part(budget.reserved, "reserved"))
    return _drawn(words, [part for part in parts if part.size > 0])


def _drawn(words: str, parts: Sequence[Part], over: int = 0) -> Markup:
    """The parts from left to right; where they are ``over`` bytes too much, a line where the memory ends."""
    whole = sum(part.size for part in parts) or 1
    drawn, left = [], 0.0
    for part in parts:
        wide = 100 * part.size / whole
        drawn.append(tag("rect", x=f"{left:.2f}%", width=f"{wide:.2f}%", height=HEIGHT, class_=part.kind))
        if part.number and wide >= LEAST_PERCENT:
            middle = f"{left + wide / 2:.2f}%"
            drawn.append(tag("text", part.number, x=middle, y=HEIGHT / 2 + 4, text_anchor="middle"))
        left += wide
    if over:
        drawn.append(_limit(left - 100 * over / whole))
    return tag("svg", tag("title", words), *drawn, class_="bars", height=HEIGHT, role="img", aria_label=words)


def _limit(percent: float) -> Markup:
    """Where the card's memory ends, where the services want more."""
    return tag("rect", x=f"{percent:.2f}%", width="4", height=HEIGHT, class_="over")


def _key(kind: str) -> Markup:
    return tag("svg", tag("rect", width=10, height=10), class_=f"key {kind}", viewBox="0 0 10 10", aria_hidden="true")


def _rows(content: LabContent, budget: Budget) -> Iterator[tuple[object, ...]]:
    """A row for each service: those that lie there together, then those that do at their turn."""
    for number, engine in enumerate(budget.counted):
        key = join([_key(f"e{number % COLOURS}"), str(number + 1)])
        yield (key, engine.address, *_sizes(content, budget, engine))
    for engine in budget.uncounted:
        yield ("", f"{engine.address}, in its turn", *_sizes(content, budget, engine))


def _sizes(content: LabContent, budget: Budget, engine: EngineLoads) -> tuple[object, object, object]:
    estimated: object = mib(engine.total) if engine.loads else "not known"
    if engine.unknown:
        estimated = join([estimated, " ", state("mind", engine.unknown)])
    measured = _measured_of(content, engine)
    if measured is None:
        return estimated, state("dim", NEVER), ""
    other = "" if _is_here(budget, measured, engine) else ", on another card"
    way = "more" if measured.error < 0 else "less"
    compared = f"{mib(measured.measured)}, {mib(abs(measured.error))} {way} than the sum of then{other}"
    return estimated, compared, moment(measured.at)


def _is_here(budget: Budget, measured: Measured, engine: EngineLoads) -> bool:
    """Whether it was measured on this very card, as far as that is known."""
    if budget.card is None or not measured.card:
        return True
    return measured.card == identity_of(budget.card, engine.host)


def _rest_rows(
    budget: Budget, estimated: Sequence[int], taken: Sequence[Measured | None]
) -> Iterator[tuple[object, ...]]:
    """What is free, and what nobody can have."""
    if budget.usable is not None:
        left = budget.usable - sum(estimated)
        by_measure: object = state("dim", "not known: not all were measured")
        sizes = [one.measured for one in taken if one is not None]
        if len(sizes) == len(taken) and sizes:
            by_measure = mib(max(budget.usable - sum(sizes), 0))
        if left < 0:
            yield _key("over"), "too much, beyond the line", mib(-left), "", ""
        yield _key("free"), "free", mib(max(left, 0)), by_measure, ""
    if budget.card is not None:
        yield _key("reserved"), "kept for the driver, a display and contexts", mib(budget.reserved), "", ""


def _terms(content: LabContent, budget: Budget) -> Markup:
    rows = [(term.name, mib(term.bytes)) for term in budget.added.terms]
    if not rows:
        return quiet("Nothing can be added up: what the engines need is not known.")
    summary = join(["What was added up, ", moment(content.at)])
    return opened(summary, table(f"Terms of {budget.title}", ("term", "estimated"), rows))


# Routes of aliases: the engines that answer for each, and those that stand in for them.

Ranks = dict[int, list[Edge]]


def routes(content: LabContent) -> Iterator[Markup]:
    """A row for each alias: who is asked first, and who is when those before fail."""
    rows = []
    health = _health_by_address(content)
    for (source, alias), ranks in _by_alias(content).items():
        first, *others = (_targets(ranks[rank], health) for rank in sorted(ranks))
        rows.append((alias, source, first, _in_order(others)))
    if not rows:
        yield quiet("No service of the file offers aliases.")
        return
    yield table("Routes of aliases", ("alias", "asked at", "answered by", "and when that fails, by"), rows)
    yield quiet("The routes are the file's; how each target did: ", moment(content.at), ".")


def _by_alias(content: LabContent) -> dict[tuple[str, str], Ranks]:
    found: dict[tuple[str, str], Ranks] = {}
    for edge in content.graph.edges:
        if edge.alias:
            found.setdefault((edge.source, edge.alias), {}).setdefault(edge.rank, []).append(edge)
    return found


def _health_by_address(content: LabContent) -> dict[str, ServiceStatus]:
    found = {}
    for container in content.containers:
        for service in container.services:
            found[f"{container.name}/{service.role}"] = service
    return found


def _targets(edges: list[Edge], health: dict[str, ServiceStatus]) -> Markup:
    parts: list[object] = []
    for edge in edges:
        parts += [" and " if parts else "", _target(edge, health)]
    return join(parts)


def _target(edge: Edge, health: dict[str, ServiceStatus]) -> Markup:
    kind, _, name = edge.target.partition(":")
    if kind == "upstream" and name:
        return join([name, " (elsewhere: not asked)"])
    model = f" ({edge.model})" if edge.model else ""
    return join([edge.target, model, " ", _seen(health.get(edge.target))])


def _seen(status: ServiceStatus | None) -> Markup:
    if status is None or status.healthy is None:
        return state("dim", "not known")
    if status.health in (BUSY, ASLEEP):
        return state("dim", status.health)
    return state("good", "healthy") if status.healthy else state("bad", "unhealthy")


def _in_order(others: list[Markup]) -> Markup:
    if not others:
        return state("dim", "nobody")
    parts: list[object] = []
    for one in others:
        parts += [", then " if parts else "", one]
    return join(parts)


# Warnings: all that is not as it should be, the worst first.

MOODS = {"error": "bad", "warning": "mind", "note": "dim"}
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
        if proved.failure and address in content.graph.services:
            message = f"{address}: its last proof failed ({proved.verb})"
            yield Diagnostic("error", message, proved.failure, "Run: provision verify")


def _of_cards(content: LabContent) -> Iterator[Diagnostic]:
    for budget in content.budgets:
        if budget.missing:
            message = f"{budget.title}: {mib(budget.missing)} too much by the sums"
            yield Diagnostic("warning", message, resolution="Run: provision fit")


def _notice(one: Diagnostic) -> Markup:
    mood = MOODS[one.severity]
    parts = [tag("p", state(mood, one.severity), " ", one.message)]
    if one.details:
        parts.append(tag("pre", one.details))
    if one.resolution:
        parts.append(quiet("What to do: ", one.resolution))
    return tag("div", join(parts), class_=f"notice {mood}")


# Changes: drift from the file, those that `up` would make, and those of the last runs.


def changes(content: LabContent) -> Iterator[Markup]:
    """Drift, the plan, and the runs."""
    yield tag("h3", "Drift")
    yield from _drift(content)
    yield tag("h3", "What up would do")
    yield from _pending(content)
    yield tag("h3", "Last runs")
    yield from _runs(content)


def _drift(content: LabContent) -> Iterator[Markup]:
    rows = []
    for container in content.containers:
        rows += [(container.name, difference) for difference in container.drift]
        if container.orphan:
            rows.append((container.name, "it is an orphan: the file does not name it"))
    if rows:
        yield table("Drift", ("container", "what differs from the file"), rows)
    elif content.containers and content.pending is not None:
        yield tag("p", state("good", "None, "), moment(content.at))
    else:
        yield tag("p", state("dim", "not known: nothing could be looked at, "), moment(content.at))


def _pending(content: LabContent) -> Iterator[Markup]:
    if content.pending is None:
        yield tag("p", state("mind", "not known"), f": {content.pending_unknown}, ", moment(content.at))
    elif not content.pending:
        yield tag("p", state("good", "Nothing: all is as the file says, "), moment(content.at))
    else:
        rows = [(one.action, one.target, one.reason) for one in content.pending]
        yield table("What up would do", ("action", "target", "why"), rows)
        yield quiet("Planned ", moment(content.at), "; nothing of it was done.")


def _runs(content: LabContent) -> Iterator[Markup]:
    if not content.runs:
        yield quiet("No run from this machine is known.")
        return
    rows = [(one.verb, moment(one.began), _ended(one), _outcome(one), _step_rows(one)) for one in content.runs]
    yield table("Last runs", ("verb", "began", "ended", "outcome", "steps"), rows)


def _ended(run: Run) -> Markup:
    return moment(run.ended) if run.ended else state("bad", "never")


def _outcome(run: Run) -> Markup:
    if run.outcome == "done" and not run.failed:
        return state("good", "done")
    return state("bad", run.outcome)


def _step_rows(run: Run) -> Markup:
    if not run.done and not run.failed:
        return state("dim", "none")
    lines = [tag("li", words) for words in run.done]
    lines += [tag("li", state("bad", words)) for words in run.failed]
    failed = f", {len(run.failed)} failed" if run.failed else ""
    return opened(f"{len(run.done)} done{failed}", tag("ul", *lines))
