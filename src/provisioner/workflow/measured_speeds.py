"""What ``bench`` has kept of the files that ``suggest`` looks at: how fast they write on the card in question."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from provisioner.gpus.bandwidth import is_same_card
from provisioner.gpus.cards import Card
from provisioner.lab.artifacts import manifest_digest
from provisioner.lab.opening import Lab
from provisioner.loads.candidates import Candidate
from provisioner.measuring.history import DamagedResultError, Result, files_of, results_in
from provisioner.measuring.writing_speeds import writing_speeds
from provisioner.models.hashes import sha256_of
from provisioner.models.hub.folder import find_folder
from provisioner.models.sources import ModelPart, hub_revision
from provisioner.values.errors import InputError
from provisioner.workflow.suggesting import asked_hub

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
