"""The page of ``report``: one file that needs nothing else, warnings first, then the lab with the evidence."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from provisioner.gpus.cards import Card
from provisioner.hosts.base import Provider
from provisioner.lab.opening import Lab
from provisioner.lab.resolved import host_name
from provisioner.measuring.engine import MORE as BENCH
from provisioner.measuring.probe_picture import MORE as PROBE
from provisioner.page.clients import CLIENTS, client_text
from provisioner.page.content import Asked, LabContent
from provisioner.page.picture import graph_svg
from provisioner.page.plots import measurements
from provisioner.page.sections import all_warnings, cards, changes, routes, services, warnings
from provisioner.page.topology import graph_text
from provisioner.reconcile.effects import Effects
from provisioner.reconcile.observe import Survey, look_around
from provisioner.report.html import Markup, moment, opened, quiet, section, state, tag, wide
from provisioner.report.style import markup_text
from provisioner.report.svg import STYLE as PICTURES
from provisioner.report.svg import escaped as in_picture
from provisioner.report.svg import without_style
from provisioner.values.address import Address
from provisioner.values.declared import MASK, hidden_forms
from provisioner.values.errors import ProvisionError
from provisioner.values.facts import Health, UnitState, by_address
from provisioner.values.plan import Change, ImpossiblePlanError
from provisioner.values.state import ContainerStatus, Secret, Status

# The section of the topology: the picture of `graph`, and the same as text.

LEGIBLE = 1500
"""A picture that is wider, in pixels, would be too small to read as wide as the page."""
WIDTH = re.compile(r'width="(\d+)')


def picture_of(content: LabContent) -> Iterator[Markup]:
    """The picture, which may be wider than the page, and its words below it."""
    picture = Markup(without_style(graph_svg(content.graph)))
    found = WIDTH.search(picture)
    width = int(found[1]) if found else 0
    yield quiet("What the file connects, read ", moment(content.at), ".")
    yield wide("Picture of what is connected with what", picture, "large" if width > LEGIBLE else "")
    yield opened("The same as text", wide("What is connected with what", tag("pre", graph_text(content.graph))))


# The head: the lab in four numbers.


def summary(content: LabContent) -> Markup:
    """How many containers run, services are healthy, whose last proof went well, and what there is to warn of."""
    warned = [one for one in all_warnings(content) if one.severity != "note"]
    addresses = content.graph.services
    proved = [address for address, one in content.proofs.items() if address in addresses and not one.failure]
    wanted = {box.name for box in content.graph.boxes}
    running = healthy = 0
    for container in content.containers:
        if container.name not in wanted:
            continue
        running += container.status is Status.RUNNING
        healthy += sum(service.healthy is True for service in container.services)
    tiles = (
        (str(len(warned)), "to warn of"),
        (f"{running} of {len(wanted)}", "containers run"),
        (f"{healthy} of {len(addresses)}", "services are healthy"),
        (f"{len(proved)} of {len(addresses)}", "last proofs went well"),
    )
    items = [tag("li", tag("span", number, class_="number"), words) for number, words in tiles]
    return tag("ul", *items, class_="tiles")


# The section of clients: settings of programs that use the lab, whose keys are named and never shown.


def clients(content: LabContent) -> Iterator[Markup]:
    """A snippet for each program, or why nobody can tell where the lab answers."""
    gateway = content.clients.gateway
    if gateway is None:
        yield tag("p", state("dim", content.clients.unknown or "No service of the file speaks to clients."))
        return
    yield tag("p", "The lab answers at ", tag("code", gateway.url), ", as seen ", moment(content.at), ".")
    if gateway.key_variable:
        yield tag("p", "The key is what ", tag("code", gateway.key_variable), " holds; it is not on this page.")
    if content.clients.needs_root:
        yield tag("p", "Clients have to trust the lab's own root: ", tag("code", "provision show --ca"), " prints it.")
    for client in CLIENTS:
        snippet = wide(f"Settings of {client}", tag("pre", client_text(client, gateway)))
        yield opened(f"Settings of {client}", snippet, is_open=client == CLIENTS[0])
    yield quiet(tag("code", "provision show --client NAME"), " prints the same.")


# The whole page.

PARTS = {
    "warnings": ("Warnings", warnings),
    "topology": ("Topology", picture_of),
    "services": ("Services and their proofs", services),
    "cards": ("Memory of cards", cards),
    "routes": ("Routes of aliases", routes),
    "measurements": ("Probes and benchmarks", measurements),
    "changes": ("Drift and last runs", changes),
    "clients": ("Clients", clients),
}


def lab_page(content: LabContent, secrets: Sequence[Secret] = ()) -> str:
    """The whole page: well-formed whatever the names are, and without any value of ``secrets``, whoever said it."""
    title = f"Lab {content.lab}"
    body = tag("body", _header(title, content), tag("main", *_sections(content)), _footer(content))
    return f'<!doctype html>\n<html lang="en">{_head(title, secrets)}\n{_without(body, secrets)}</html>\n'


def _head(title: str, secrets: Sequence[Secret]) -> str:
    rule = (
        f"default-src 'none'; img-src data:; style-src 'sha256-{sheet_digest()}'; base-uri 'none'; form-action 'none'"
    )
    parts = (
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=rule),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="color-scheme", content="light dark"),
        _without(tag("title", title), secrets),
    )
    return f"<head>{''.join(parts)}<style>{SHEET}</style></head>"


def _header(title: str, content: LabContent) -> Markup:
    links = [tag("li", tag("a", words, href=f"#{name}")) for name, (words, _) in PARTS.items()]
    return tag(
        "header",
        tag("h1", title),
        quiet("As it was ", moment(content.at), ", by ", tag("code", content.file)),
        summary(content),
        tag("nav", tag("ul", *links), aria_label="Parts of this page"),
    )


def _sections(content: LabContent) -> list[Markup]:
    parts = []
    for name, (title, write) in PARTS.items():
        parts.append(section(name, title, *write(content)))
    return parts


def _footer(content: LabContent) -> Markup:
    how = ("Written by ", tag("code", "provision report"), " at ", moment(content.at))
    return tag("footer", quiet(*how, ". It needs no other file, and asks nobody anything. Keys are not in it."))


def _without(markup: str, secrets: Sequence[Secret]) -> str:
    """The same without values of secrets, also where they were escaped: the last line of defence, not the first."""
    for form in hidden_forms(secrets):
        for written in (form, markup_text(form), in_picture(form)):
            markup = markup.replace(written, MASK)
    return markup


# The look at a lab for its page, which changes nothing, and goes on where a host does not answer.


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of a lab. ``changes`` is None where no plan can be made, and ``no_plan`` says why.

    ``error``: why hosts could not all be looked at; what is known of them is told all the same.
    """

    containers: tuple[ContainerStatus, ...]
    asked: Mapping[Address, tuple[Asked, ...]] = field(default_factory=dict)
    cards: Mapping[str, Card] = field(default_factory=dict)
    changes: tuple[Change, ...] | None = None
    no_plan: str = ""
    error: ProvisionError | None = None


def look(lab: Lab, effects: Effects) -> Seen:
    """The lab as it is, as far as its hosts answer; changes nothing, and raises nothing for a host that is away."""
    try:
        survey, containers = look_around(lab, effects)
    except ProvisionError as error:
        return Seen(tuple(_outside_statuses(lab, effects.providers)), no_plan=error.message, error=error)
    changes, no_plan = _planned(survey)
    return Seen(containers, _asked(survey), survey.cards, changes, no_plan)


def _planned(survey: Survey) -> tuple[tuple[Change, ...] | None, str]:
    """What ``up`` would do, and why that cannot be told; what gets no card is left out, as it is warned of."""
    try:
        made = survey.plan()
    except ImpossiblePlanError as error:
        return None, error.reasons[0].message if error.reasons else str(error)
    except ProvisionError as error:
        return None, error.message
    return tuple(one for one in made.changes if one.container not in survey.cardless), ""


def _asked(survey: Survey) -> dict[Address, tuple[Asked, ...]]:
    """What units and health pages have said of each service."""
    units, pages = by_address(survey.facts, UnitState), by_address(survey.facts, Health)
    found = {}
    for instance in survey.wanted:
        for service in instance.services:
            own = []
            unit, health = units.get(service.address), pages.get(service.address)
            if unit is not None:
                own.append(Asked(f"systemd: how is {service.unit}?", unit.state, unit.is_well))
            if health is not None:
                question = f"GET {service.health} on port {service.port}"
                own.append(Asked(question, _in_words(health), health.is_well))
            if own:
                found[service.address] = tuple(own)
    return found


def _in_words(health: Health) -> str:
    return f"HTTP {health.answer}" if isinstance(health.answer, int) else health.answer


def _outside_statuses(lab: Lab, providers: Mapping[str, Provider]) -> Iterator[ContainerStatus]:
    """The file's containers as those hosts say that answer; nobody looks into them."""
    names_by_host: dict[str, list[str]] = {}
    for name, container in lab.resolved.containers.items():
        names_by_host.setdefault(host_name(container), []).append(name)
    for host, names in names_by_host.items():
        try:
            fleet = providers[host].observe(lab.name)
        except ProvisionError:
            for name in names:
                yield ContainerStatus(name, host, elsewhere="not seen: its host does not answer")
            continue
        for name in names:
            there = fleet.instance(name)
            if there:
                yield ContainerStatus(name, host, there.status, there.address)
            else:
                moved = [state.moved[name] for state in fleet.hosts.values() if name in state.moved]
                yield ContainerStatus(name, host, elsewhere="".join(moved))


# The look of the page: one style sheet for light and dark, phones and paper; nothing from elsewhere.

DARK = "@media (prefers-color-scheme: dark)"
ON_SCREEN = "@media screen and (prefers-color-scheme: dark)"
"""Paper is white, whatever the screen is."""

OWN = """
:root { color-scheme: light dark; --ink: #1f2328; --paper: #ffffff; --soft: #f6f8fa; --line: #d0d7de; --dim: #59636e;
  --good: #1a7f37; --bad: #cf222e; --mind: #8a5a00; --link: #0550ae; --free: #eaeef2;
  --e0: #0969da; --e1: #bc4c00; --e2: #1a7f37; --e3: #8250df; --e4: #bf3989; --e5: #1b7c83; --on: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --ink: #f0f6fc; --paper: #0d1117; --soft: #151b23; --line: #3d444d;
  --dim: #9198a1; --good: #3fb950; --bad: #f85149; --mind: #d29922; --link: #79c0ff; --free: #2a313c;
  --e0: #4493f8; --e1: #f0883e; --e2: #3fb950; --e3: #ab7df8; --e4: #db61a2; --e5: #39c5cf; --on: #0d1117; } }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; scroll-padding-top: 1rem; }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
body { margin: 0 auto; max-width: 68rem; padding: 1.5rem 1rem 4rem; color: var(--ink); background: var(--paper);
  font: 15px/1.55 ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
a { color: var(--link); }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.8rem 0 .8rem; padding-bottom: .3rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 0 0 .2rem; overflow-wrap: anywhere; }
h4 { font-size: .95rem; margin: 1.1rem 0 .4rem; overflow-wrap: anywhere; }
p { margin: .4rem 0; }
p, li, dd, td, figcaption, summary { overflow-wrap: anywhere; }
header p { margin: .1rem 0; }
nav ul { display: flex; flex-wrap: wrap; gap: .3rem 1rem; list-style: none; padding: 0; margin: 1rem 0 0; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .7rem; padding: 0;
  margin: 1.2rem 0 0; list-style: none; }
.tiles li { border: 1px solid var(--line); border-radius: 10px; padding: .6rem .9rem; background: var(--soft); }
.tiles .number { display: block; font-size: 1.45rem; font-weight: 600; line-height: 1.3; }
.panel { border: 1px solid var(--line); border-radius: 10px; padding: .9rem 1.1rem; margin: .9rem 0; }
.notice { border-left: 4px solid var(--line); padding: .1rem 0 .1rem .8rem; margin: .7rem 0; }
.notice.bad { border-color: var(--bad); } .notice.mind { border-color: var(--mind); }
.notice.good { border-color: var(--good); } .notice p { margin: .15rem 0; }
time { white-space: nowrap; }
.state { font-weight: 600; } .state.dim { font-weight: 400; }
.good.state { color: var(--good); } .bad.state { color: var(--bad); } .mind.state { color: var(--mind); }
.dim { color: var(--dim); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1.1rem; margin: .4rem 0; }
dt { color: var(--dim); } dd { margin: 0; }
table { border-collapse: collapse; width: 100%; min-width: 34rem; font-size: .93em; }
th, td { text-align: left; vertical-align: top; padding: .35rem .7rem .35rem 0; border-bottom: 1px solid var(--line); }
th { font-weight: 600; color: var(--dim); white-space: nowrap; }
td { min-width: 4.5rem; } tr:last-child td { border-bottom: 0; }
td.number, th.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
.wide { overflow-x: auto; margin: .6rem 0; border-radius: 8px; }
.wide:focus-visible, summary:focus-visible, a:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
pre { margin: .4rem 0; padding: .7rem .9rem; border-radius: 8px; background: var(--soft); white-space: pre-wrap;
  overflow-wrap: anywhere; font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, "DejaVu Sans Mono", monospace; }
.wide pre { white-space: pre; overflow-wrap: normal; width: max-content; min-width: 100%; }
details { margin: .5rem 0; } summary { cursor: pointer; color: var(--link); }
td details { margin: 0; } td ul { margin: .2rem 0; padding-left: 1.1rem; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr)); gap: 1rem; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(21rem, 100%), 1fr)); gap: 1rem 1.4rem; }
figure { margin: .6rem 0; } figcaption { margin-top: .3rem; font-size: .93em; }
figure img { display: block; max-width: 100%; height: auto; border: 1px solid var(--line); border-radius: 8px; }
.wide > svg { display: block; max-width: 100%; min-width: 46rem; height: auto; }
.wide.large > svg { max-width: none; }
.wide.fits > svg { min-width: 34rem; width: 100%; max-width: 60rem; }
.bars { display: block; width: 100%; margin: .15rem 0 .7rem; }
.bars .free { fill: var(--free); } .bars .rest { fill: var(--soft); stroke: var(--line); stroke-dasharray: 4 3; }
  .bars .reserved { fill: var(--dim); } .bars .over { fill: var(--bad); }
.bars text { font-size: 12px; font-weight: 600; fill: var(--on); }
.e0 { fill: var(--e0); } .e1 { fill: var(--e1); } .e2 { fill: var(--e2); } .e3 { fill: var(--e3); }
.e4 { fill: var(--e4); } .e5 { fill: var(--e5); }
.key { width: .9em; height: .9em; vertical-align: -.08em; margin-right: .45em; }
.key.free { fill: var(--free); stroke: var(--dim); } .key.reserved { fill: var(--dim); }
.key.over { fill: var(--bad); }
.plot { display: block; width: 100%; height: auto; }
.plot .grid { stroke: var(--line); } .plot .way { fill: none; stroke: var(--e0); stroke-width: 2; }
.plot .between { stroke: var(--e0); stroke-width: 2; opacity: .55; } .plot .point { fill: var(--e0); }
.plot .other { fill: var(--paper); stroke: var(--e0); stroke-width: 2; }
.plot text { font-size: 12px; fill: var(--dim); }
footer { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: .8rem; }
@media (max-width: 34rem) { body { padding: 1rem .8rem 3rem; } .panel { padding: .7rem .8rem; }
  dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .45rem; } h1 { font-size: 1.4rem; }
  .tiles { grid-template-columns: 1fr 1fr; } }
@media print { body { max-width: none; padding: 0; font-size: 10.5pt; } nav { display: none; }
  .wide { overflow: visible; } .wide > svg, .wide.fits > svg, .wide.large > svg { max-width: 100%; min-width: 0; }
  .wide pre { white-space: pre-wrap; width: auto; } table { min-width: 0; } .key,
  .bars { print-color-adjust: exact; } a { color: inherit; }
  .panel, figure, tr, .notice, .tiles li { break-inside: avoid; } h2, h3, h4 { break-after: avoid; }
  details::details-content { content-visibility: visible; display: block; block-size: auto; } }
"""
SHEET = (PICTURES + PROBE + BENCH + OWN).replace(DARK, ON_SCREEN)
"""The rules of the pictures, of which each has its own where it is a file, and those of the page."""


def sheet_digest() -> str:
    """The sheet as a rule about what may be used names it: nothing that is smuggled in can bring a style."""
    return base64.b64encode(hashlib.sha256(SHEET.encode()).digest()).decode("ascii")
