"""The check that engines fit the memory of their cards before anything is made, and what they really took."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from provisioner.gpus.cards import Card
from provisioner.lab import ModelFile
from provisioner.lab.opening import Lab
from provisioner.lab.resolved import ResolvedContainer
from provisioner.loads.advice import refusals
from provisioner.loads.budgets import Budget, budgets
from provisioner.loads.engines import EngineLoads
from provisioner.loads.measured import corrected, measured, remember
from provisioner.models.folders import weight_names
from provisioner.models.sources import ModelPart
from provisioner.services import knowledge_of
from provisioner.serving.engine_memory import asked, kept_program
from provisioner.values import paths
from provisioner.values.errors import PreflightError
from provisioner.values.events import Diagnostic, Event
from provisioner.values.facts import ContainerFact, DeviceMemory, by_address


def budgets_of(
    lab: Lab, files: Mapping[str, ModelFile], cards: Mapping[str, Card], memory: int | None = None
) -> tuple[Budget, ...]:
    """Return the sums of all engines of the file, by their cards.

    ``files``: of the models; ``cards``: by container; ``memory`` overrules theirs.
    Engines whose own program is on this machine are asked; sums of those that were measured on the same card are
    corrected by that.
    """
    known = measured(lab.name) if cards else {}

    def as_measured(engine: EngineLoads) -> EngineLoads:
        return corrected(asked(engine, lab, files), known.get(engine.address), cards.get(engine.container))

    return budgets(map(as_measured, _engines(lab, files, cards, memory)), cards, memory)


def _engines(
    lab: Lab, files: Mapping[str, ModelFile], cards: Mapping[str, Card], memory: int | None = None
) -> Iterator[EngineLoads]:
    """What each service of the file needs on its card; of some nobody knows."""
    sizes = {name: size_of_weights(file) for name, file in files.items()}
    for service in lab.resolved.services.values():
        card = cards.get(service.container)
        own = card.memory if card is not None else 0
        loads = knowledge_of(service.role).loads(service, sizes, own if memory is None else memory)
        if loads is not None:
            container = lab.resolved.containers[service.container]
            yield replace(loads, host=container.host or "", wish=_wish(container), turns=service.share)


def _wish(container: ResolvedContainer) -> str:
    """What containers say alike that get the same card; empty for one that gets a card of its own."""
    gpu = container.written.gpu
    return "" if gpu is None or gpu.sharing == "exclusive" else repr(gpu)


def check_fit(
    lab: Lab,
    files: Mapping[str, ModelFile],
    cards: Mapping[str, Card],
    emit: Callable[[Event], None],
    targets: Collection[str] = (),
) -> None:
    """Refuse what its card cannot hold, or warn of it, as the file says; raises ``PreflightError``.

    ``files``: of the models; ``cards``: by container; with ``targets`` only the cards of those count, with everything
    that lies there.
    """
    if not cards:
        return
    found = [budget for budget in budgets_of(lab, files, cards) if budget.card and _is_meant(budget, targets)]
    for budget in found:
        _warn_of_unknown(budget, emit)
    refused = refusals(found)
    if lab.spec.fit_check == "warn":
        for refusal in refused:
            emit(Diagnostic("warning", refusal.message, details=refusal.details, resolution=refusal.resolution))
    elif refused:
        first, *rest = refused
        details = [first.details, *(f"{refusal.message}: {refusal.details}" for refusal in rest)]
        raise PreflightError(first.message, details="\n".join(details), resolution=first.resolution)


def unasked_programs(lab: Lab, files: Mapping[str, ModelFile], cards: Mapping[str, Card]) -> frozenset[str]:
    """Return the programs that engines on cards are to be asked by, and that no build has left on this machine yet."""
    questions = [engine.question for engine in _engines(lab, files, cards) if engine.container in cards]
    return frozenset(one.program for one in questions if one and not kept_program(one.program))


def _warn_of_unknown(budget: Budget, emit: Callable[[Event], None]) -> None:
    """Say why nobody can tell whether the engines of a card fit, where that is so."""
    if budget.usable is None:
        reasons = "nobody tells how much memory the card has"
    elif budget.is_undecided:
        reasons = "; ".join(f"{engine.address}: {engine.unknown}" for engine in budget.unknown)
    else:
        return
    emit(Diagnostic("warning", f"Whether {budget.title} fits is not known: {reasons}"))


def remember_use(
    lab: Lab,
    files: Mapping[str, ModelFile],
    cards: Mapping[str, Card],
    facts: Iterable[ContainerFact],
    emit: Callable[[Event], None],
) -> None:
    """Keep what the services take of their cards, of those that a proof has measured."""
    taken = {address: fact.bytes for address, fact in by_address(facts, DeviceMemory).items() if fact.bytes}
    if not taken:
        return
    engines = [engine for engine in _engines(lab, files, cards) if engine.address in taken]
    try:
        for engine in engines:
            remember(lab.name, engine, taken[engine.address], cards.get(engine.container))
    except OSError as error:
        message = f"What {engine.address} takes of its card is not kept: {error}"
        emit(Diagnostic("warning", message, resolution=f"Make {paths.state(lab.name)} writable."))


def _is_meant(budget: Budget, targets: Collection[str]) -> bool:
    return not targets or any(engine.container in targets for engine in budget.engines)


def size_of_weights(file: ModelFile) -> int:
    """Bytes of a model's files, which are here or of which a hub has told; of a folder those of its weights alone."""
    parts = [ModelPart(file.path, file.sha256, file.size), *file.rest]
    if file.is_folder:
        weights = weight_names([part.filename for part in parts])
        parts = [part for part in parts if part.filename in weights]
    total = 0
    for part in parts:
        total += _size(Path(part.file), part.size)
    return total


def _size(path: Path, told: int | None) -> int:
    return path.stat().st_size if path.is_file() else told or 0
