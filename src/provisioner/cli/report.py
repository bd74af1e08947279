"""The verb ``report``: the lab on one web page, with the evidence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from provisioner.cli.drawing import check_place
from provisioner.cli.options import Words, complete_files, lab_words, verb
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode, InputError, PreflightError, ProvisionError
from provisioner.values.events import Diagnostic, Event

if TYPE_CHECKING:  # the world is imported when the verb touches it
    from provisioner.lab.opening import Lab
    from provisioner.loads.budgets import Budget
    from provisioner.measuring.history import Result
    from provisioner.measuring.probe import Kept
    from provisioner.page.content import Clients, LabContent, Pending
    from provisioner.page.page import Seen
    from provisioner.values.address import Address
    from provisioner.values.state import ContainerStatus

SUFFIX = ".html"


@click.command()
@verb
@lab_words(names=True, shape="PAGE.html [FILE]", complete=complete_files)
def report(session: Session, words: Words) -> int:
    """Write the lab as it is now as one web page: provision report PAGE.html [FILE].

    Warnings first, then what is connected with what, each service with its proof and the evidence, memory of cards,
    probes and benchmarks, routes, drift, runs, and what clients need. No host is changed. Keys are not in it. Where a
    host does not answer the page says so, and the exit code is that of status.
    """
    if len(words.names) != 1:
        raise click.UsageError("Name one page: provision report PAGE.html.")
    page = page_named(words.names[0])
    return written(session, session.open_lab(words.existing(), with_secrets=True), page)


def written(session: Session, lab: Lab, page: Path) -> int:
    """Write the page and say so; raises what kept hosts from answering, once the page tells it."""
    seen = _write_page(session, lab, page)
    session.console.stop_progress()
    session.console.result(f"Wrote {page}.", file=page, lab=lab.name)
    if seen.error is not None:
        raise seen.error
    return ExitCode.DONE


def page_named(name: str) -> Path:
    """The place of a page; raises ``InputError`` for one that is no page or cannot be written."""
    page = Path(name)
    if page.suffix != SUFFIX:
        raise InputError(f"Unable to write {page}: a page ends in {SUFFIX}", resolution=f"Name it {page}{SUFFIX}.")
    check_place(page)
    return page


def _write_page(session: Session, lab: Lab, page: Path) -> Seen:
    """Look at the lab and write its page, for the owner alone; gives what was seen."""
    from provisioner.labfile.whole_files import replace_text
    from provisioner.page.page import lab_page, look

    warned = [Diagnostic("warning", lab.loaded.rendered(one)) for one in lab.loaded.warnings]

    def emit(event: Event) -> None:
        if isinstance(event, Diagnostic) and event.severity in ("error", "warning"):
            warned.append(event)
        session.console.emit(event)

    effects = replace(session.effects(lab), emit=emit)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    seen = look(lab, effects)
    if seen.error is not None:
        error = seen.error
        warned.append(Diagnostic("error", error.message, error.details, error.resolution))
    content = _content(lab, seen, at, warned)
    replace_text(page, lab_page(content, tuple(lab.loaded.secrets.values())))
    return seen


def _content(lab: Lab, seen: Seen, at: str, warned: list[Diagnostic]) -> LabContent:
    """Everything that the page tells; what cannot be had is warned of, and left out."""
    from provisioner.loads.measured import measured
    from provisioner.page.content import LabContent
    from provisioner.page.topology import topology
    from provisioner.reconcile.journal import runs_in
    from provisioner.reconcile.prove import proofs_in

    kept = _Kept(lab, warned)
    budgets, tried, results = kept.budgets(seen), kept.tried(), kept.results()
    return LabContent(
        lab=lab.name,
        file=str(lab.loaded.path),
        at=at,
        graph=topology(lab.resolved),
        warnings=tuple(warned),
        containers=seen.containers,
        asked=seen.asked,
        proofs=proofs_in(lab.name),
        pictures=dict(_pictures(seen.containers)),
        budgets=budgets,
        measured=measured(lab.name),
        tried=tried,
        results=results,
        pending=_pending(seen),
        pending_unknown=seen.no_plan,
        runs=tuple(runs_in(lab.folder)),
        clients=_clients(lab, seen),
    )


@dataclass(slots=True)
class _Kept:
    """What is known here of a lab; what cannot be read is added to ``warned``."""

    lab: Lab
    warned: list[Diagnostic]

    def budgets(self, seen: Seen) -> tuple[Budget, ...]:
        """The sums of the engines of each card."""
        from provisioner.lab.opening import find_files, look_at_models
        from provisioner.serving.fit import budgets_of

        try:
            files = find_files(self.lab).files
            lab, new = look_at_models(self.lab, files)
            self.warned.extend(one for one in new if one.severity != "note")
            return budgets_of(lab, files, seen.cards)
        except ProvisionError as error:
            self.warned.append(Diagnostic("warning", error.message, error.details, error.resolution))
            return ()

    def tried(self) -> dict[Address, tuple[Kept, ...]]:
        """The contexts that were tried of each service."""
        from provisioner.measuring.probe import file_of, tries_in

        found = {}
        for address in self.lab.resolved.services:
            try:
                tries = tries_in(file_of(self.lab.name, address))
            except (OSError, ValueError) as error:
                self._unreadable(f"what was tried of {address}", error)
                continue
            if tries:
                found[address] = tuple(tries)
        return found

    def results(self) -> dict[Address, tuple[Result, ...]]:
        """The benchmarks of each service, and of whatever else was measured."""
        from provisioner.measuring.history import DamagedResultError, files_of, results_in
        from provisioner.values.address import Address

        found = {}
        for file in files_of(self.lab.name):
            try:
                results = results_in(file)
            except (OSError, ValueError, DamagedResultError) as error:
                self._unreadable(f"the benchmarks in {file}", error)
                continue
            if results:
                found[Address(results[-1].service)] = tuple(results)
        return found

    def _unreadable(self, what: str, error: Exception) -> None:
        self.warned.append(Diagnostic("warning", f"Unable to read {what}", str(error)))


def _pending(seen: Seen) -> tuple[Pending, ...] | None:
    from provisioner.page.content import Pending

    if seen.changes is None:
        return None
    return tuple(Pending(one.action, one.target, one.reason) for one in seen.changes)


def _pictures(containers: tuple[ContainerStatus, ...]) -> Iterator[tuple[str, bytes]]:
    """The pictures of proofs that can be read, by their files."""
    for container in containers:
        for service in container.services:
            for screen in service.screens:
                try:
                    yield screen.file, Path(screen.file).read_bytes()
                except OSError:  # it went between the look and now
                    continue


def _clients(lab: Lab, seen: Seen) -> Clients:
    """Where clients ask, by the addresses that were seen."""
    from provisioner.cli.gateways import answering
    from provisioner.page.content import Clients
    from provisioner.reconcile.addresses import lan_address

    addresses = {one.name: one.address for one in seen.containers}

    def find_address(name: str, /, *, is_on_lan: bool) -> str:
        address = (lan_address(lab, name) if is_on_lan else None) or addresses.get(name)
        if address is None:
            raise PreflightError(f"Container {name}, which clients ask, has no address: it does not run.")
        return address

    try:
        found = answering(lab, find_address)
    except ProvisionError as error:
        return Clients(unknown=error.message)
    return Clients(found.gateway, needs_root=found.needs_root)
