"""The speeds with which files were measured to write on a card, by which ``suggest`` ranks them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from provisioner.gpus.bandwidth import is_same_card
from provisioner.gpus.cards import Card
from provisioner.lab.artifacts import manifest_digest
from provisioner.lab.opening import Lab
from provisioner.loads.suggestions import Candidate, Measured
from provisioner.measuring import engine, llm
from provisioner.measuring.history import DamagedResultError, Result, files_of, results_in
from provisioner.models.hashes import sha256_of
from provisioner.models.hub import find_folder
from provisioner.models.sources import ModelPart, hub_revision
from provisioner.suggest.suggest import asked_hub
from provisioner.values.errors import InputError

# The results that say how fast a model writes, by the hash of its files.

WRITING = re.compile(r"tg\d+(?: @ d(\d+))?", re.ASCII)
"""The names of series that say how fast is written, and behind how many tokens."""
NO_DEVICE = "none"
ENGINE, CACHE = "engine", "cache"
"""The options by which results of clients say how a folder was served."""
ASKED = frozenset({"model", "p", "n", "d", ENGINE, CACHE})
"""All options of what clients see; a result with others was served in a way that nothing is suggested in."""


def writing_speeds(results: Iterable[Result], is_that_card: Callable[[str], bool]) -> dict[str, list[Measured]]:
    """What was measured on that card, in the order of the results, by the SHA-256 under which each keeps its model.

    ``is_that_card``: of a name that its driver has told; results without one were measured on the CPU. Those of
    ``bench --kind llm`` say what clients see, and of models that are folders by which engine and with which cache; of
    others they do not say how they were served.
    """
    found: dict[str, list[Measured]] = {}
    for result in results:
        setting = result.setting
        if not setting.model or not setting.card or not is_that_card(setting.card):
            continue
        for measured in _measured_in(result):
            found.setdefault(setting.model, []).append(measured)
    return found


def _measured_in(result: Result) -> Iterator[Measured]:
    options = result.setting.options
    is_engine = result.kind == engine.KIND
    if not is_engine and result.kind != llm.KIND:
        return
    if _computes_elsewhere(options) if is_engine else not options.keys() <= ASKED:
        return
    for series in result.series:
        name = WRITING.fullmatch(series.name)
        if name is None:
            continue
        depth = int(name[1] or 0)
        if is_engine:
            yield _as_served(series.middle, result.at, depth, options)
        else:
            yield _as_clients_saw(series.middle, result.at, depth, options)


def _computes_elsewhere(options: Mapping[str, str]) -> bool:
    """Whether llama-bench was told to leave the cache, or everything, off the card."""
    return options.get("nkvo") == "1" or options.get("dev") == NO_DEVICE


def _as_clients_saw(per_s: float, at: str, depth: int, options: Mapping[str, str]) -> Measured:
    """What clients saw, with the engine and the cache where they are told."""
    engine, cache = options.get(ENGINE, ""), options.get(CACHE, "")
    return Measured(per_s, at, depth, is_told=bool(engine and cache), engine=engine, cache=cache, by_clients=True)


def _as_served(per_s: float, at: str, depth: int, options: Mapping[str, str]) -> Measured:
    """With the words of llama-bench; what is not said is its default: all on the card, and a cache that is whole."""
    layers = _number(options.get("ngl", ""))
    return Measured(
        per_s,
        at,
        depth,
        keys=options.get("ctk", "f16"),
        values=options.get("ctv", "f16"),
        gpu_layers=layers,
        experts=_number(options.get("ncmoe", "")) or 0,
    )


def _number(text: str) -> int | None:
    """A count; None for what stands for all, and where nothing is said."""
    return int(text) if text.isdecimal() else None


# The files that are suggested, with what this lab has measured of them.

CPU = "cpu"
HUB = "hf:"


def with_measured(candidates: Iterable[Candidate], lab: Lab | None, card: Card) -> list[Candidate]:
    """The files with what this lab has measured of them on a card of that name.

    Files of this machine are hashed for it, once, and only where anything was measured on such a card; so are the small
    files of a folder of a hub, of which the hub tells no hash. Raises ``InputError`` where a result that was kept is
    damaged, ``PreflightError`` where the hub gives no answer.
    """
    found = list(candidates)
    speeds = writing_speeds(_kept(lab), lambda name: is_same_card(name, card)) if lab is not None else {}
    if not speeds:
        return found
    of_folders = {measured.engine != "" for own in speeds.values() for measured in own}
    measured: list[Candidate] = []
    for candidate in found:
        is_open = bool(candidate.form) in of_folders
        own = speeds.get(_digest_of(candidate), ()) if is_open else ()
        measured.append(replace(candidate, measured=tuple(own)))
    return measured


def _kept(lab: Lab) -> Iterator[Result]:
    """All results of a lab, but those of services that its file has compute on the CPU, whatever card is there."""
    on_cpu: set[str] = set()
    for address, service in lab.resolved.services.items():
        if service.written.get("backend") == CPU:
            on_cpu.add(str(address))
    for file in files_of(lab.name):
        try:
            results = results_in(file)
        except DamagedResultError as error:
            hint = "Take that line out of the file, or the file away."
            raise InputError(f"Unable to read results: {error}", resolution=hint) from error
        yield from (result for result in results if result.service not in on_cpu)


def _digest_of(candidate: Candidate) -> str:
    """Under which SHA-256 results keep the model; empty where nobody tells its files."""
    parts = candidate.parts or _parts_in_hub(candidate)
    files = [(part.sha256 or sha256_of(Path(part.file)), part.filename) for part in parts]
    return manifest_digest(files) if files else ""


def _parts_in_hub(candidate: Candidate) -> tuple[ModelPart, ...]:
    """All files of a folder of a hub with their hashes; none where it is something else."""
    source = candidate.written.get("source", "")
    if not candidate.form or candidate.unknown or not source.startswith(HUB):
        return ()
    repository, revision = hub_revision(source)
    found = asked_hub(source.removeprefix(HUB), lambda hub: find_folder(hub, repository, revision))
    return (ModelPart(found.file, found.sha256, found.size), *found.rest)
