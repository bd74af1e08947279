"""Models that are folders, as ``suggest`` finds them: which engine reads them, and what each of its caches takes.

What they take is what ``fit`` says of the same block, by the same code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from provisioner.catalog import load_catalog
from provisioner.gpus.cards import Card
from provisioner.lab import Known, resolve
from provisioner.lab.opening.folder_files import folder_problem
from provisioner.labfile.parsing import parse_spec
from provisioner.labfile.spec import Model
from provisioner.loads.candidates import Candidate, Choice, Server
from provisioner.loads.engines import EngineLoads
from provisioner.loads.exllama import is_recurrent
from provisioner.loads.layers import Shape
from provisioner.loads.suggestions import room_of
from provisioner.loads.terms import Load
from provisioner.models.folders import (
    CONFIG,
    PLAIN,
    SMALL_BYTES,
    format_of,
    header_of,
    method_of,
    selected,
    weight_names,
)
from provisioner.models.header import Header
from provisioner.models.hub import Hub, asked, files_of, part_of
from provisioner.models.sources import ModelPart, format_of_source
from provisioner.report.suggest import name_of
from provisioner.services import knowledge_of
from provisioner.services.base import FolderServing
from provisioner.values.address import Address
from provisioner.values.regular_files import open_file
from provisioner.values.state import Secret

BITS: Mapping[str, float] = {"fp8": 8.0, "bfloat16": 16.0, "float16": 16.0, "float32": 32.0}
"""Bits of a weight where a config.json does not name them, by its format or by its type."""
NUMBER_BYTES = 2
"""Of an embedding: what is quantised leaves them as they are, and vLLM computes in two bytes."""
AT_ONCE = 4
KEY = "k" * 32
"""Stands for those that the file will have: nothing of the sum depends on them."""
UNKNOWN = "unknown"
"""The format of weights that nobody tells."""


def folder_candidate(name: str, source: str, header: Header, form: str | None, size: int) -> Candidate:
    """A model that is a folder, of which ``size`` bytes are weights; ``form``: how they are stored, None where unknown.

    What it takes of a card is not in it yet.
    """
    stored = str(header.values.get("dtype") or "")
    bits = header.values.get("bits") or BITS.get(form or "") or (BITS.get(stored, 0.0) if form == PLAIN else 0.0)
    label = (stored or PLAIN) if form == PLAIN else form or ""
    written = {"source": source}
    if form and format_of_source(source) != form:
        written["format"] = form
    known = replace(header, values={**header.values, "bits": bits})
    load = Load(name, Shape(header.architecture, unread=("it was not added up",)), size, 0)
    unknown = "" if form else "its config.json names a way of storing weights that its name does not explain"
    return Candidate(name, load, known, written, label, form=form or UNKNOWN, unknown=unknown, idle=None)


def folder_here(folder: Path) -> Candidate | None:
    """The model that a folder on this machine is; None where it is none. ``FolderError`` where it is a broken one."""
    names = sorted(one.name for one in folder.iterdir() if one.is_file())
    if CONFIG not in names or not weight_names(names):
        return None
    with open_file(folder / CONFIG) as stream:
        config = stream.read(SMALL_BYTES)
    size = sum((folder / name).stat().st_size for name in weight_names(names))
    form = format_of(method_of(config), folder.name)
    source = f"dir:{folder.resolve()}"
    problem = folder_problem(Model.model_validate({"source": source, "format": form})) if form else None
    if problem is not None:
        raise problem
    candidate = folder_candidate(folder.name, source, header_of(config), form, size)
    if form is None:
        return candidate
    return replace(candidate, parts=tuple(ModelPart(str(folder / name), "") for name in selected(names)))


def folder_of_hub(hub: Hub, repository: str, revision: str) -> Candidate | None:
    """The model that a revision of a repository is; None where it is none.

    Raises ``HubError``, and ``FolderError`` where its config.json is none.
    """
    commit, entries = files_of(hub, repository, revision)
    return folder_among(hub, repository, revision, (commit, entries))


def folder_among(
    hub: Hub, repository: str, revision: str, listed: tuple[str, Mapping[str, Mapping[str, Any]]]
) -> Candidate | None:
    """As ``folder_of_hub`` of what the hub has listed already: its commit and its files."""
    commit, entries = listed
    names = [name for name in entries if "/" not in name]
    weights = weight_names(names)
    if CONFIG not in names or not weights:
        return None
    selected(names)
    size = sum(part_of(name, entries[name], repository).size or 0 for name in weights)
    config = asked(hub, hub.address(repository, commit, CONFIG), repository, SMALL_BYTES)
    place = f"{repository}@{revision}"
    form = format_of(method_of(config), place)
    return folder_candidate(place.rpartition("/")[2], f"hf:{place}", header_of(config), form, size)


def folders_of_hub(hub: Hub, repository: str, revisions: Iterable[str]) -> list[Candidate]:
    """The models that these revisions are; those that are none are left out. Raises as ``folder_of_hub``."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = pool.map(lambda revision: folder_of_hub(hub, repository, revision), revisions)
        return [one for one in found if one is not None]


def on_card(candidates: Iterable[Candidate], card: Card, usable: int) -> list[Candidate]:
    """The files with what they take of a card, as their engines have it; those of GGUF have it by their heads.

    ``usable``: bytes of the card that engines can have; what others take of it is not there for a file.
    """
    placed: list[Candidate] = []
    for candidate in candidates:
        is_open = candidate.form and not candidate.unknown
        placed.append(_placed(candidate, card, room_of(candidate, usable)) if is_open else candidate)
    return placed


def _placed(candidate: Candidate, card: Card, room: int) -> Candidate:
    role, serving = _serving(candidate.form, card, room)
    if serving is None:
        return replace(candidate, unknown=f"no service reads {candidate.form}")
    server = Server(role, serving.context, serving.keys, serving.image, serving.lock)
    unknown = serving.unknown
    choices: list[Choice] = []
    for cache, options in serving.caches if not unknown else ():
        engine = _added_up(candidate, server, options, card)
        unknown = unknown or engine.unknown or ("" if engine.loads else "nobody tells how large its files are")
        choices += [Choice(load, cache, options) for load in engine.loads]
    if unknown:
        return replace(candidate, server=server, unknown=f"{server.role}: {unknown}")
    idle = _idle(candidate, choices[0].load, has_embeddings=serving.has_embeddings)
    return replace(candidate, server=server, load=choices[0].load, choices=tuple(choices), idle=idle)


def _serving(form: str, card: Card, room: int) -> tuple[str, FolderServing | None]:
    """The first role whose service reads a format, and how; None where there is none."""
    for role in load_catalog().services:
        serving = knowledge_of(role).folder_serving(form, card, room)
        if serving is not None:
            return role, serving
    return "", None


def _added_up(candidate: Candidate, server: Server, options: Mapping[str, Any], card: Card) -> EngineLoads:
    """What ``fit`` adds up for the block with these options, without a context: all that the model has."""
    name = name_of(candidate.name)
    service: dict[str, Any] = {"model": name, **options}
    for key in server.keys:
        service[key] = Secret(key, KEY)
    containers = {name: {"gpu": "any", "services": {server.role: service}}}
    content = {"name": "suggested", "models": {name: dict(candidate.written)}, "containers": containers}
    parsed = parse_spec(content, load_catalog())
    address = Address.of(name, server.role)
    if parsed.spec is None:
        return EngineLoads(address, unknown="; ".join(problem.message for problem in parsed.problems))
    resolved = resolve(parsed.spec, load_catalog(), Known(headers={name: candidate.header}))
    sizes = {name: candidate.load.weights}
    loads = knowledge_of(server.role).loads(resolved.services[address], sizes, card.memory)
    return loads if loads is not None else EngineLoads(address)


def _idle(candidate: Candidate, load: Load, *, has_embeddings: bool) -> int | None:
    """Bytes of the weights on the card that no token is computed with; None where nobody knows them.

    That are encoders of images, and what drafts in models most of whose layers are recurrent. Of embeddings on the
    card it is not known whether the output computes with them: too few bytes are a bound as well.
    """
    if candidate.header.values.get("has_encoder") or is_recurrent(candidate.header):
        return None
    return load.shape.vocabulary * load.shape.embedding * NUMBER_BYTES if has_embeddings else 0
