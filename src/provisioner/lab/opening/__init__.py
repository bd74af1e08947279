"""``open_lab``: a file read, checked against the catalog and its own rules, ready to be planned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from provisioner.catalog import Catalog, load_catalog
from provisioner.lab import ModelFile, problems, resolve
from provisioner.lab.opening.model_files import Found, find_models, missing_files, read_headers
from provisioner.lab.resolved import Known, ResolvedLab, host_name
from provisioner.lab.rules import card_problems, model_option_problems, warnings, weak_passwords
from provisioner.labfile.loader import Loaded, Needs, load
from provisioner.labfile.spec import Model, Spec
from provisioner.models.header import Header
from provisioner.services.base import models_fetched
from provisioner.values import paths
from provisioner.values.address import Address
from provisioner.values.declared import Problem
from provisioner.values.errors import InputError, PreflightError

if TYPE_CHECKING:
    from provisioner.gpus.cards import Card
    from provisioner.labfile.pins import Pin
    from provisioner.models.pulled import Pulled, Wanted
    from provisioner.values.events import Diagnostic
    from provisioner.values.state import HostState
    from provisioner.wheels.known import Stack


@dataclass(frozen=True, slots=True)
class Lab:
    """A valid file and what it asks for."""

    loaded: Loaded
    resolved: ResolvedLab
    """What the file means, as far as its hosts have not been looked at."""
    stacks: Mapping[str, Stack]
    """The stacks of wheels that the file can name; none where no service is installed with one."""

    @property
    def spec(self) -> Spec:
        """The file's content, as it was written."""
        return self.loaded.spec

    @property
    def name(self) -> str:
        """The lab's name, which every mark bears."""
        return self.loaded.spec.name

    @property
    def folder(self) -> Path:
        """``.provision/`` beside the file."""
        return paths.lab_folder(self.loaded.path)

    @property
    def lock_file(self) -> Path:
        """What the file leaves open, as it was found: beside the file."""
        return paths.lock_file(self.loaded.path)

    def on_hosts(
        self,
        cards: Mapping[str, Card] | None = None,
        *,
        addresses: Mapping[str, str] | None = None,
        images: Mapping[str, str] | None = None,
    ) -> ResolvedLab:
        """Return what the file means on its hosts, as they tell of containers; ``InputError`` where a rule is broken.

        ``cards`` are those that containers get; without them none has one, as it is where nobody looked. ``addresses``:
        in the LAN, as far as they are known. ``images``: of which those are made that are there, which the file's
        containers keep where they name none.
        """
        known = replace(self.resolved.known, cards=cards or {}, addresses=addresses or {}, images=images or {})
        resolved = self.resolved.with_known(known)
        if resolved.known.images and (broken := problems(resolved)):
            raise self.loaded.error(broken)
        return resolved

    def cards(self, there: Mapping[str, Sequence[Card]]) -> tuple[dict[str, Card], dict[str, str]]:
        """The card of each container that wants one, of those of each host; and why others get none, with its line."""
        found: dict[str, Card] = {}
        refused: list[Problem] = []
        if self.resolved.wants_cards:
            from provisioner.lab.cards import choose_cards  # nothing that a lab without cards needs

            found, refused = choose_cards(self.resolved, there)
        refused += card_problems(self.resolved.with_known(replace(self.resolved.known, cards=found)))
        refused += self._stacks_elsewhere(found, {})
        why: dict[str, str] = {}
        for problem in refused:
            name = str(problem.path[1])
            why[name] = "\n".join(filter(None, (why.get(name), self.loaded.rendered(problem))))
        return {name: card for name, card in found.items() if name not in why}, why

    def check_stacks(self, hosts: Mapping[str, HostState]) -> None:
        """Raise ``PreflightError`` for stacks that do not run on hosts of these architectures."""
        architectures = {name: host.architecture for name, host in hosts.items()}
        if foreign := self._stacks_elsewhere({}, architectures):
            details = "\n".join(self.loaded.rendered(problem) for problem in foreign)
            raise PreflightError("Unable to use a stack", details=details)

    def _stacks_elsewhere(self, cards: Mapping[str, Card], architectures: Mapping[str, str]) -> list[Problem]:
        """Stacks that do not run with these cards (by container), or on hosts of these architectures (by host)."""
        if not self.stacks:
            return []
        from provisioner.lab.stacks import host_problems, stack_uses

        there = {
            name: architectures.get(host_name(container), "") for name, container in self.resolved.containers.items()
        }
        return list(host_problems(stack_uses(self.resolved), self.stacks, cards, there))

    def used_hosts(self) -> tuple[str, ...]:
        """The hosts of the file; those that hold no container may still hold orphans."""
        named = {container.host for container in self.resolved.containers.values()} | set(self.spec.hosts)
        return tuple(sorted(name for name in named if name))

    def check_targets(self, targets: Sequence[str]) -> None:
        """Raise ``InputError`` when a target is no container of the file."""
        unknown = [name for name in targets if name not in self.spec.containers]
        if unknown:
            raise InputError(
                f"Unable to find container {', '.join(unknown)} in {self.loaded.path}",
                resolution=f"Containers of this file: {', '.join(sorted(self.spec.containers))}",
            )


def open_lab(
    path: Path, *, run_secret_command: bool = False, needs: Needs = "all", content: bytes | None = None
) -> Lab:
    """The lab of ``path``; raises ``InputError`` with every problem of the file, and touches nothing.

    ``content``: what the file is to hold, where that is asked before it is written.
    A verb that does not need all secrets reads no lock file either: what stops or deletes uses none. One that looks up
    none, to judge the file, reads it.
    """
    catalog = load_catalog()
    knows_models = needs in {"all", "unread"}
    opened: list[tuple[ResolvedLab, Mapping[str, Stack]]] = []

    def rules(spec: Spec) -> list[Problem]:
        headers, broken = read_headers(spec.models)
        if knows_models:
            headers |= _cached(path, spec.models)
        texts, unreadable = _texts(path, spec, catalog)
        pulled = _cached_pulled(spec, catalog) if knows_models else {}
        resolved = resolve(spec, catalog, Known(headers=headers, texts=texts, pulled=pulled))
        stacks = _stacks(resolved, path)
        opened.append((resolved, stacks))
        options = model_option_problems(resolved)
        wheels = _stack_problems(resolved, stacks)
        weak = weak_passwords(resolved) if needs == "all" else ()  # a lab that has one can be stopped and deleted
        return [*problems(resolved), *weak, *wheels, *missing_files(spec.models), *broken, *unreadable, *options]

    loaded = load(path, catalog, run_secret_command=run_secret_command, needs=needs, rules=rules, content=content)
    resolved, stacks = opened[-1]  # with the secrets that only a command gives, where there are such
    return Lab(replace(loaded, warnings=(*loaded.warnings, *warnings(resolved))), resolved, stacks)


def _cached(path: Path, models: Mapping[str, Model]) -> dict[str, Header]:
    elsewhere = {name: model for name, model in models.items() if model.source.startswith(("hf:", "https:"))}
    if not elsewhere:
        return {}
    from provisioner.lab.opening.remote_models import cached_headers  # nothing that models on this machine need
    from provisioner.labfile.pins import read_pins

    has_pins = any(model.source.startswith("hf:") for model in elsewhere.values())
    return cached_headers(elsewhere, read_pins(paths.lock_file(path)) if has_pins else {})


def _fetched_on_cards(spec: Spec, catalog: Catalog) -> tuple[Wanted, ...]:
    """The models that services fetch by themselves whose containers want a card, each once."""
    wanted: dict[Wanted, None] = {}
    for container in spec.containers.values():
        if container.gpu is None:
            continue
        for role, service in container.services.items():
            wanted |= {model: None for _, model in models_fetched(catalog.services[role], service.options)}
    return tuple(wanted)


def _cached_pulled(spec: Spec, catalog: Catalog) -> dict[Wanted, Pulled]:
    wanted = _fetched_on_cards(spec, catalog)
    if not wanted:
        return {}
    from provisioner.lab.opening.remote_models import cached_pulled  # nothing that models of the file need

    return cached_pulled(wanted)


def _stacks(resolved: ResolvedLab, path: Path) -> Mapping[str, Stack]:
    if not resolved.has_stacks:
        return {}
    from provisioner.wheels.known import stacks_of  # nothing that a lab without stacks needs

    return stacks_of(path)


def _stack_problems(resolved: ResolvedLab, stacks: Mapping[str, Stack]) -> Iterable[Problem]:
    if not stacks:
        return ()
    from provisioner.lab.stacks import stack_problems, stack_uses

    return stack_problems(stack_uses(resolved), stacks)


def _texts(path: Path, spec: Spec, catalog: Catalog) -> tuple[dict[Address, dict[str, str]], list[Problem]]:
    """What is in the files that options of services name, and what is wrong with these."""
    roles = {role for container in spec.containers.values() for role in container.services}
    kinds = {reference.kind for role in roles for reference in catalog.services[role].references.values()}
    if not kinds & {"file", "files"}:
        return {}, []
    from provisioner.lab.opening.texts import read_texts  # nothing that a lab needs whose services name no files

    return read_texts(path, spec, catalog)


# What an open lab's models and wheels are: read from this machine, or asked of hubs and registries.


def find_files(lab: Lab) -> Found:
    """Return the files behind the models that services use; a hub is asked for what the lock file does not tell.

    Raises ``InputError`` where a source is no model, ``UnavailableError`` where a hub does not answer.
    """
    used = lab.resolved.used_models
    models = {name: model for name, model in lab.spec.models.items() if name in used}
    found = find_models(models, _pins(lab))
    if found.problems:
        raise lab.loaded.error(found.problems)
    return found


def _pins(lab: Lab) -> Mapping[str, Pin]:
    """Return what the lock file says of models; nothing where there is none."""
    if not lab.lock_file.exists():
        return {}
    from provisioner.labfile.pins import read_pins

    return read_pins(lab.lock_file)


def keep_pins(lab: Lab, found: Mapping[str, Pin]) -> None:
    """Note in the lock file what the models were found to be; nothing is written where it says so already."""
    there = _pins(lab)
    sources = {name: model.source for name, model in lab.spec.models.items()}
    kept = {**{name: pin for name, pin in there.items() if sources.get(name) == pin.source}, **found}
    if kept != there:
        from provisioner.labfile.pins import write_pins

        write_pins(lab.lock_file, kept)


def with_wheels(lab: Lab, resolved: ResolvedLab, hosts: Mapping[str, HostState]) -> ResolvedLab:
    """Return the same with the wheels of its stacks, as the lock file names them.

    Raises ``PreflightError`` where it does not, or where a stack does not run on these hosts.
    """
    lab.check_stacks(hosts)
    if not lab.stacks:
        return resolved
    from provisioner.lab.stacks import pinned_wheels  # nothing that a lab without stacks needs

    wheels = pinned_wheels(resolved, lab.lock_file, lab.stacks)
    return resolved.with_known(replace(resolved.known, wheels=wheels))


def look_at_models(lab: Lab, files: Mapping[str, ModelFile]) -> tuple[Lab, list[Diagnostic]]:
    """Return the lab with the heads of models elsewhere, which are read where they are not known yet, and what is new.

    ``files``: of the models. Registries are asked for models that services fetch by themselves, where these get a card:
    it may not hold them. Raises ``InputError`` with what no server could run with.
    """
    known, notes = lab.resolved.known, list[str]()
    wanted = _fetched_on_cards(lab.spec, lab.resolved.catalog)
    if wanted:
        from provisioner.lab.opening.remote_models import fetch_pulled  # nothing that models of the file need

        pulled, notes = fetch_pulled(wanted)
        known = replace(known, pulled={**known.pulled, **pulled})
    elsewhere = {name: file for name, file in files.items() if "://" in file.path and name not in known.headers}
    if elsewhere:
        from provisioner.lab.opening.remote_models import fetch_headers  # nothing that models on this machine need

        headers, unread = fetch_headers(lab.spec.models, elsewhere)
        known, notes = replace(known, headers={**known.headers, **headers}), [*notes, *unread]
    looked = replace(lab, resolved=lab.resolved.with_known(known))
    if not wanted and not elsewhere:
        return looked, []
    from provisioner.values.events import Diagnostic

    said = [Diagnostic("note", note) for note in notes]
    if len(known.headers) > len(lab.resolved.known.headers):
        if broken := model_option_problems(looked.resolved):
            raise lab.loaded.error(broken)
        told = set(warnings(lab.resolved))
        new = [problem for problem in warnings(looked.resolved) if problem not in told]
        said += [Diagnostic("warning", lab.loaded.rendered(problem)) for problem in new]
    return looked, said


def head_file(lab: Lab, files: Mapping[str, ModelFile], name: str) -> Path | None:
    """Return a file of this machine that begins with the head of a model; None where there is none."""
    file = files[name]
    if "://" not in file.path:
        return Path(file.path)
    from provisioner.lab.opening import remote_models  # nothing that models on this machine need

    return remote_models.head_file(lab.spec.models[name], file)
