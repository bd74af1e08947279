"""The verb ``suggest``: files and folders that a model could be served from, in a hub, a folder or the lab's file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from provisioner.catalog import load_catalog
from provisioner.gpus.bandwidth import cards_called, near_names
from provisioner.gpus.cards import Card
from provisioner.lab import Known, ModelFile, resolve
from provisioner.lab.opening import Lab
from provisioner.lab.opening.model_files import folder_problem
from provisioner.labfile.parsing import parse_spec
from provisioner.labfile.spec import Model
from provisioner.loads.budgets import Budget, usable_of
from provisioner.loads.engines import EngineLoads
from provisioner.loads.exllama import is_recurrent
from provisioner.loads.layers import Shape
from provisioner.loads.suggestions import Candidate, Choice, Occupied, Served, Server, room_of
from provisioner.loads.terms import MIB, Load, image_buffer
from provisioner.loads.weighing import loaded_tensors, weighed
from provisioner.models.folders import (
    CONFIG,
    PLAIN,
    SMALL_BYTES,
    FolderError,
    format_of,
    header_of,
    method_of,
    selected,
    weight_names,
)
from provisioner.models.gguf import read_header
from provisioner.models.header import GgufError, Header
from provisioner.models.hub import (
    REVISION,
    Hub,
    HubError,
    MissingRevisionError,
    UnreachableHubError,
    asked,
    files_of,
    hub_of_environment,
    label_of,
    part_of,
    revisions_of,
    there,
)
from provisioner.models.remote import NoHeadError, read_remote_head
from provisioner.models.sources import (
    ModelPart,
    format_of_source,
    hub_revision,
    is_folder,
    is_plain_filename,
    part_count,
    part_names,
    whole_stem,
)
from provisioner.services import knowledge_of
from provisioner.services.base import FolderServing
from provisioner.serving.fit import budgets_of, size_of_weights
from provisioner.suggest.text import name_of
from provisioner.values.address import Address
from provisioner.values.errors import InputError, PreflightError
from provisioner.values.regular_files import open_file
from provisioner.values.state import Secret

# Models that are folders: which engine reads them, and what each of its caches takes. That is what `fit` says of the
# same block, by the same code.

BITS: Mapping[str, float] = {"fp8": 8.0, "bfloat16": 16.0, "float16": 16.0, "float32": 32.0}
"""Bits of a weight where a config.json does not name them, by its format or by its type."""
NUMBER_BYTES = 2
"""Of an embedding: what is quantised leaves them as they are, and vLLM computes in two bytes."""
FOLDERS_AT_ONCE = 4
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
    with ThreadPoolExecutor(FOLDERS_AT_ONCE) as pool:
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


# Files that a target names: in a hub, in a folder, or a model of the file; and the card that is named.

Found = TypeVar("Found")
"""What a hub is asked for."""
REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
BITRATE = re.compile(r"\d(\.\d+)?bpw", re.IGNORECASE)
"""How revisions of EXL3 repositories are called, each of which is the model in another size."""
MOST_REVISIONS = 16
EYE, IMATRIX = "mmproj", "imatrix"
MOST_FILES = 64
"""Of a repository or folder; the heads of more are not read."""
AT_ONCE = 4
IMAGES_UNKNOWN = 500 * MIB
"""What stands for the buffers of one image whose size nobody tells, as ``fit`` has it."""


def card_of(memory: int) -> Card:
    """A card of which nothing is known but its memory, in bytes."""
    return Card(pci="", vendor="nvidia", name="", memory=memory)


def card_called(text: str) -> Card:
    """A card that is known by its name, such as "RTX 3060 12GB".

    Raises ``InputError`` where none is called so, or several of different memory are.
    """
    found = cards_called(text)
    if len(found) == 1:
        return found[0].card
    if found:
        labels = " or ".join(f'"{one.label}"' for one in found)
        raise InputError(f"{text} may be several cards", resolution=f"Say {labels}.")
    near = " or ".join(f'"{name}"' for name in near_names(text))
    raise InputError(
        f"{text} is neither a size nor the name of a known card",
        resolution=f"Say {near}." if near else "Say its memory, such as 8GiB.",
    )


def usable_bytes(card: Card) -> int:
    """What an engine can have of it; raises ``InputError`` where nobody tells how much it has."""
    usable = usable_of(card)
    if usable is None:
        raise InputError(
            f"Unable to suggest for {card.title}: nobody tells its memory", resolution="Say it: --gpu 8GiB"
        )
    return usable


def candidates_of(target: str, lab: Lab | None, files: Mapping[str, ModelFile]) -> list[Candidate]:
    """The files that a target names: a model of the file, a folder, a file of GGUF, or ORG/REPO[@REVISION] of a hub.

    ``files``: of the models of the file. Raises ``InputError`` where it names none, ``PreflightError`` where the hub
    gives no answer.
    """
    place = target.removeprefix("hf:")
    if lab is not None and target in lab.spec.models:
        found = [_of_lab(lab, files, target)]
    elif Path(target).is_dir():
        found = list(_of_folder(Path(target)))
    elif Path(target).is_file():
        found = [_here(Path(target), [Path(target)], {}, 0, 0)]
    elif REPOSITORY.fullmatch(place):
        found = asked_hub(place, lambda hub: _of_hub(hub, place))
    elif is_folder(f"hf:{place}"):
        found = asked_hub(place, lambda hub: _of_revision(hub, place))
    else:
        raise InputError(
            f"Unable to find {target}: it is no model of the file, no folder and no repository",
            resolution="Name a model of the file, a folder, ORG/REPO, or ORG/REPO@REVISION.",
        )
    if not found:
        raise InputError(
            f"Unable to suggest anything of {target}: it holds no GGUF, and is no folder of weights",
            resolution="Name another one.",
        )
    return found


def _of_lab(lab: Lab, files: Mapping[str, ModelFile], name: str) -> Candidate:
    """A model of the file, as far as its head is known."""
    header = lab.resolved.known.headers.get(name)
    file = files.get(name)
    if header is None or file is None:
        raise PreflightError(
            f"Unable to suggest anything of model {name}: its head is not known",
            resolution="Run provision lock, and look at what it says of it.",
        )
    model = lab.spec.models[name]
    parts = (ModelPart(file.path, file.sha256, file.size), *file.rest)
    if file.is_folder:
        return replace(folder_candidate(name, model.source, header, model.format, size_of_weights(file)), parts=parts)
    size = sum(part.size or 0 for part in parts)
    found = _candidate(name, header, size, {"source": model.source})
    return replace(found, parts=parts)


def _of_folder(folder: Path) -> Iterator[Candidate]:
    names = sorted(one.name for one in folder.glob("*.gguf") if one.is_file())
    eyes = [name for name in names if name.lower().startswith(EYE)]
    eye, size, buffer = {}, 0, 0
    if eyes:
        file = folder / eyes[0]
        eye = {"source": f"file:{file.resolve()}"}
        size, buffer = file.stat().st_size, _buffer(_head(file))
    try:
        whole = folder_here(folder)
    except FolderError as error:
        raise InputError(f"Unable to read {folder}: {error.message}", resolution=error.hint) from error
    if whole is not None:
        yield whole
    for parts in _models(names):
        yield _here(folder / parts[0], [folder / part for part in parts], eye, size, buffer)


def _here(first: Path, parts: list[Path], eye: Mapping[str, str], eye_size: int, buffer: int) -> Candidate:
    size = sum(part.stat().st_size for part in parts)
    found = _candidate(first.name, _head(first), size, {"source": f"file:{first.resolve()}"}, (eye_size, buffer))
    unhashed = tuple(ModelPart(str(part), "") for part in parts)
    return replace(found, eye=eye, parts=unhashed)


def _head(file: Path) -> Header:
    try:
        return read_header(file)
    except (GgufError, OSError) as error:
        raise InputError(f"Unable to read {file}: {error}", resolution="Take it away, or name another one.") from error


def asked_hub(place: str, ask: Callable[[Hub], Found]) -> Found:
    """What a hub answers; raises ``PreflightError`` where it does not, ``InputError`` where there is no such thing."""
    try:
        return ask(hub_of_environment())
    except UnreachableHubError as error:
        raise PreflightError(f"Unable to ask for {place}: {error.message}", resolution=error.hint) from error
    except (HubError, FolderError) as error:
        raise InputError(f"Unable to ask for {place}: {error.message}", resolution=error.hint) from error


def _of_revision(hub: Hub, place: str) -> list[Candidate]:
    """The folder that a revision is."""
    repository, revision = hub_revision(f"hf:{place}")
    try:
        return folders_of_hub(hub, repository, [revision])
    except MissingRevisionError as error:
        raise HubError(f"{repository} has no revision {revision}", there(hub, repository)) from error


def _of_hub(hub: Hub, repository: str) -> list[Candidate]:
    """All files of GGUF, and the folder that the repository is; else its revisions that are called by their bits."""
    commit, entries = files_of(hub, repository, REVISION)
    found = _ggufs(hub, repository, commit, entries)
    whole = folder_among(hub, repository, REVISION, (commit, entries))
    found += [whole] if whole is not None else []
    if found:
        return found
    try:
        revisions = set(revisions_of(hub, repository))
    except UnreachableHubError:
        raise
    except HubError:  # then it is a repository without a model
        return []
    sizes = sorted(name for name in revisions if BITRATE.search(name))
    return folders_of_hub(hub, repository, sizes[:MOST_REVISIONS])


def _ggufs(hub: Hub, repository: str, revision: str, entries: Mapping[str, Mapping[str, Any]]) -> list[Candidate]:
    models = list(_models(sorted(name for name in entries if name.endswith(".gguf"))))[:MOST_FILES]
    files: dict[str, ModelPart] = {}
    for name in chain.from_iterable(models):
        files[name] = part_of(name, entries[name], repository)
    eye, eye_size, buffer = _eye_of(hub, repository, revision, entries)
    labels = Counter(label_of(parts[0]) for parts in models)

    def found(parts: list[str]) -> Candidate:
        first, label = files[parts[0]], label_of(parts[0])
        header = _remote_head(hub, repository, revision, first.file)
        written = {"source": f"hf:{repository}:{label}"}
        if labels[label] > 1:  # then its label does not say which one is meant
            written = {"source": hub.address(repository, revision, first.file), "sha256": first.sha256}
        own = tuple(files[part] for part in parts)
        size = sum(part.size or 0 for part in own)
        return replace(_candidate(first.file, header, size, written, (eye_size, buffer)), eye=eye, parts=own)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(found, models))


def _eye_of(
    hub: Hub, repository: str, revision: str, entries: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, str], int, int]:
    """What is written of the smallest projector of a repository, its size, and what one image takes besides."""
    eyes = [name for name in entries if name.rpartition("/")[2].lower().startswith(EYE) and name.endswith(".gguf")]
    if not eyes:
        return {}, 0, 0
    parts = [part_of(name, entries[name], repository) for name in eyes]
    part = min(parts, key=lambda one: one.size or 0)
    eye = {"source": hub.address(repository, revision, part.file), "sha256": part.sha256}
    return eye, part.size or 0, _buffer(_remote_head(hub, repository, revision, part.file))


def _remote_head(hub: Hub, repository: str, revision: str, name: str) -> Header:
    """The head of a file; raises ``PreflightError`` where it does not come, ``InputError`` where it is none."""
    token = hub.token.reveal() if hub.token else None
    try:
        return read_remote_head(hub.address(repository, revision, name), token)
    except NoHeadError as error:
        raise PreflightError(f"Unable to read {name} of {repository}: {error}", resolution="Try again.") from error
    except GgufError as error:
        raise InputError(f"Unable to read {name} of {repository}: {error}") from error


def _models(names: list[str]) -> Iterator[list[str]]:
    """The files of each model, the first one first; parts of one that lacks some are left out."""
    known = set(names)
    for name in names:
        base = name.rpartition("/")[2]
        is_model = is_plain_filename(base) and not base.lower().startswith(EYE) and IMATRIX not in base.lower()
        parts = list(part_names(name)) if part_count(name) > 1 else [name]
        if is_model and parts[0] == name and known.issuperset(parts):
            yield parts


def _candidate(
    name: str, header: Header, size: int, written: Mapping[str, str], eye: tuple[int, int] = (0, 0)
) -> Candidate:
    shape, weights = weighed(header, size, "")
    encoder, buffer = eye
    load = Load(
        whole_stem(name.rpartition("/")[2]),
        shape,
        weights,
        shape.context,
        encoder=encoder,
        image_buffer=buffer,
        unified=False,
        unpacks=True,
        outputs=1,
        tensors=loaded_tensors(header) if header.parts == 1 else {},  # those of its first file say too little
    )
    return Candidate(load.name, load, header, written, label_of(name), unknown=header.helps)


def _buffer(header: Header) -> int:
    found = image_buffer(header.values)
    return IMAGES_UNKNOWN if found is None else found


# The card of the lab's hosts that is meant where none is named, with what lies there by the file.


def largest_card(lab: Lab, files: Mapping[str, ModelFile], cards: Mapping[str, Card]) -> Occupied:
    """Return the largest of the cards that containers get, of several the one on which least lies.

    ``files``: of the models; ``cards``: by container, one at least.
    """
    budgets = budgets_of(lab, files, cards)
    found: list[Occupied] = []
    for container, card in cards.items():
        host = lab.resolved.containers[container].host or ""
        found.append(Occupied(card, _budget_on(budgets, card, host)))
    return max(found, key=lambda one: (one.card.memory, -one.total))


def _budget_on(budgets: Iterable[Budget], card: Card, host: str) -> Budget | None:
    """The sum of what lies on that card of that host; None where nothing does."""
    for budget in budgets:
        is_there = budget.card is not None and budget.card.pci == card.pci
        if is_there and budget.engines[0].host == host:
            return budget
    return None


def served_by(lab: Lab, candidates: Iterable[Candidate]) -> list[Served]:
    """The files, each with the services of the lab that answer with it, by where it comes from."""
    found: list[Served] = []
    for candidate in candidates:
        source = candidate.written.get("source")
        names = {name for name, model in lab.spec.models.items() if model.source == source}
        found.append(Served(candidate, _answering_with(lab, names)))
    return found


def _answering_with(lab: Lab, names: set[str]) -> frozenset[Address]:
    services = lab.resolved.services.items()
    return frozenset(address for address, service in services if names.intersection(service.served_models))
