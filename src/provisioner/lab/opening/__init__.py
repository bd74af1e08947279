"""``open_lab``: a file read, checked against the catalog and its own rules, ready to be planned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from provisioner.catalog import Catalog, load_catalog
from provisioner.lab import desired_fleet, problems, resolve
from provisioner.lab.opening.model_files import Found, find_models, hashed, missing_files
from provisioner.lab.opening.model_headers import read_headers
from provisioner.lab.resolved import Known, ResolvedLab, host_name
from provisioner.lab.rules import card_problems, model_option_problems, warnings
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
    from provisioner.values.events import Diagnostic, Event
    from provisioner.values.state import Fleet, HostState


@dataclass(frozen=True, slots=True)
class Lab:
    """A valid file and what it asks for."""

    loaded: Loaded
    resolved: ResolvedLab
    """What the file means, as far as its hosts have not been looked at."""
    _found: list[Found] = field(default_factory=list, init=False, repr=False, compare=False)
    _latest: list[ResolvedLab] = field(default_factory=list, init=False, repr=False, compare=False)
    """What it means with what became known last."""
    _fetched: dict[str, Header] = field(default_factory=dict, init=False, repr=False, compare=False)
    _pulled: dict[Wanted, Pulled] = field(default_factory=dict, init=False, repr=False, compare=False)

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

    def on_hosts(
        self,
        cards: Mapping[str, Card] | None = None,
        *,
        addresses: Mapping[str, str] | None = None,
        images: Mapping[str, str] | None = None,
    ) -> ResolvedLab:
        """What the file means on its hosts, with what they tell of containers; ``InputError`` where that breaks a rule.

        ``cards`` are those that containers get; without them none has one, as it is where nobody looked. ``addresses``:
        in the LAN, as far as they are known. ``images``: of which those are made that are there, which the file's
        containers keep where they name none.
        """
        known = replace(self.resolved.known, cards=cards or {}, addresses=addresses or {}, images=images or {})
        resolved = self._knowing(known)
        if resolved.known.images and (broken := problems(resolved)):
            raise self.loaded.error(broken)
        return resolved

    def fleet(
        self,
        resolved: ResolvedLab | None = None,
        hosts: Mapping[str, HostState] | None = None,
        *,
        needs_wheels: bool = True,
        needs_hashes: bool = True,
        emit: Callable[[Event], None] = lambda _event: None,
    ) -> Fleet:
        """What the file asks for; reads and hashes the models' files, and asks a hub for what no pin tells.

        ``emit`` is told how far the reading of a large file is.

        ``resolved``: what the file means on its hosts; ``hosts``: these as they were observed. Raises
        ``PreflightError`` where the wheels of a stack are not locked, unless nobody ``needs_wheels``. Who does not
        need hashes gets no digests of models.
        """
        wanted = resolved or self.resolved
        if needs_wheels:
            wanted = self.with_wheels(wanted)
        architectures = {name: host.architecture for name, host in (hosts or {}).items()}
        if foreign := self._stacks_elsewhere({}, architectures):
            details = "\n".join(self.loaded.rendered(problem) for problem in foreign)
            raise PreflightError("Unable to use a stack", details=details)
        files = self.models().files
        if needs_hashes:
            files.update({name: hashed(file, emit) for name, file in files.items()})
        return desired_fleet(wanted, files, hosts)

    def with_wheels(self, resolved: ResolvedLab) -> ResolvedLab:
        """The same with the wheels of its stacks; raises ``PreflightError`` where they are not locked."""
        if not resolved.has_stacks:
            return resolved
        from provisioner.lab.opening.stack_pins import pinned_wheels  # nothing that a lab without stacks needs
        from provisioner.wheels.known import stacks_of

        wheels = pinned_wheels(resolved, self.lock_file, stacks_of(self.loaded.path))
        return resolved.with_known(replace(resolved.known, wheels=wheels))

    def cards(self, there: Mapping[str, Sequence[Card]]) -> tuple[dict[str, Card], dict[str, str]]:
        """The card of each container that wants one, of those of each host; and why others get none, with its line."""
        found: dict[str, Card] = {}
        refused: list[Problem] = []
        if self.resolved.wants_cards:
            from provisioner.lab.cards import choose_cards  # nothing that a lab without cards needs

            found, refused = choose_cards(self.resolved, there)
        with_cards = self._knowing(replace(self.resolved.known, cards=found))
        refused += card_problems(with_cards)
        refused += self._stacks_elsewhere(found, {})
        why: dict[str, str] = {}
        for problem in refused:
            name = str(problem.path[1])
            why[name] = "\n".join(filter(None, (why.get(name), self.loaded.rendered(problem))))
        return {name: card for name, card in found.items() if name not in why}, why

    def _stacks_elsewhere(self, cards: Mapping[str, Card], architectures: Mapping[str, str]) -> list[Problem]:
        """Stacks that do not run with these cards (by container), or on hosts of these architectures (by host)."""
        if not self.resolved.has_stacks:
            return []
        from provisioner.lab.stacks import host_problems, stack_uses
        from provisioner.wheels.known import stacks_of

        there = {
            name: architectures.get(host_name(container), "") for name, container in self.resolved.containers.items()
        }
        return list(host_problems(stack_uses(self.resolved), stacks_of(self.loaded.path), cards, there))

    def _pins(self) -> dict[str, Pin]:
        """What the lock file says of models; nothing where there is none."""
        if not self.lock_file.exists():
            return {}
        from provisioner.labfile.pins import read_pins

        return read_pins(self.lock_file)

    def models(self) -> Found:
        """The files behind the models that services use; found once, so that a run makes and pins what it planned."""
        if not self._found:
            used = self.resolved.used_models
            models = {name: model for name, model in self.spec.models.items() if name in used}
            found = find_models(models, self._pins())
            if found.problems:
                raise self.loaded.error(found.problems)
            self._found.append(found)
        return self._found[0]

    def head_file(self, name: str) -> Path | None:
        """Return a file of this machine that begins with the head of a model; None where there is none."""
        file = self.models().files[name]
        if "://" not in file.path:
            return Path(file.path)
        from provisioner.lab.opening.remote_headers import head_file

        return head_file(self.spec.models[name], file)

    @property
    def with_headers(self) -> ResolvedLab:
        """What the file means, with what ``look_at_models`` read of models elsewhere."""
        known = self.resolved.known
        headers, pulled = {**known.headers, **self._fetched}, {**known.pulled, **self._pulled}
        return self._knowing(replace(known, headers=headers, pulled=pulled))

    def _knowing(self, known: Known) -> ResolvedLab:
        """What the file means with that; the same value as before where it was asked for just now."""
        for resolved in (self.resolved, *self._latest):
            if resolved.knows(known):
                return resolved
        made = self.resolved.with_known(known)
        self._latest[:] = [made]
        return made

    @property
    def lock_file(self) -> Path:
        """What the file leaves open, as it was found: beside the file."""
        return paths.lock_file(self.loaded.path)

    def look_at_models(self) -> list[Diagnostic]:
        """Read the heads of models elsewhere that are not known yet, and hold the services' options against them.

        Registries are asked for models that services fetch by themselves, where these get a card: it may not hold them.
        What is new to say; raises ``InputError`` with what no server could run with.
        """
        return [*self._look_at_pulled(), *self._look_at_files()]

    def _look_at_pulled(self) -> list[Diagnostic]:
        wanted = _fetched_on_cards(self.spec, self.resolved.catalog)
        if not wanted:
            return []
        from provisioner.lab.opening.pulled_models import fetch_pulled  # nothing that models of the file need
        from provisioner.values.events import Diagnostic

        found, notes = fetch_pulled(wanted)
        self._pulled.update(found)
        return [Diagnostic("note", note) for note in notes]

    def _look_at_files(self) -> list[Diagnostic]:
        known = self.resolved.known.headers
        files = {name: file for name, file in self.models().files.items() if name not in known}
        if not any("://" in file.path for file in files.values()):
            return []
        from provisioner.lab.opening.remote_headers import fetch_headers  # nothing that models on this machine need
        from provisioner.values.events import Diagnostic

        found, notes = fetch_headers(self.spec.models, files)
        self._fetched.update(found)
        if not found:  # the options were held against all that is known when the file was opened
            return [Diagnostic("note", note) for note in notes]
        resolved = self.with_headers
        if broken := model_option_problems(resolved):
            raise self.loaded.error(broken)
        told = set(warnings(self.resolved))
        new = [problem for problem in warnings(resolved) if problem not in told]
        said = [Diagnostic("warning", self.loaded.rendered(problem)) for problem in new]
        return [*(Diagnostic("note", note) for note in notes), *said]

    def pin(self) -> None:
        """Note in the lock file what the models were found to be; nothing is written where it says so already."""
        there = self._pins()
        sources = {name: model.source for name, model in self.spec.models.items()}
        kept = {name: pin for name, pin in there.items() if sources.get(name) == pin.source} | self.models().pins
        if kept != there:
            from provisioner.labfile.pins import write_pins

            write_pins(self.lock_file, kept)

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
    opened: list[ResolvedLab] = []

    def rules(spec: Spec) -> list[Problem]:
        headers, broken = read_headers(spec.models)
        if knows_models:
            headers |= _cached(path, spec.models)
        texts, unreadable = _texts(path, spec, catalog)
        pulled = _cached_pulled(spec, catalog) if knows_models else {}
        resolved = resolve(spec, catalog, Known(headers=headers, texts=texts, pulled=pulled))
        opened.append(resolved)
        stacks = _stack_problems(resolved, path)
        options = model_option_problems(resolved)
        return [*problems(resolved), *stacks, *missing_files(spec.models), *broken, *unreadable, *options]

    loaded = load(path, catalog, run_secret_command=run_secret_command, needs=needs, rules=rules, content=content)
    resolved = opened[-1]  # with the secrets that only a command gives, where there are such
    return Lab(replace(loaded, warnings=(*loaded.warnings, *warnings(resolved))), resolved)


def _cached(path: Path, models: Mapping[str, Model]) -> dict[str, Header]:
    elsewhere = {name: model for name, model in models.items() if model.source.startswith(("hf:", "https:"))}
    if not elsewhere:
        return {}
    from provisioner.lab.opening.remote_headers import cached_headers  # nothing that models on this machine need
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
    from provisioner.lab.opening.pulled_models import cached_pulled  # nothing that models of the file need

    return cached_pulled(wanted)


def _stack_problems(resolved: ResolvedLab, path: Path) -> Iterable[Problem]:
    if not resolved.has_stacks:
        return ()
    from provisioner.lab.stacks import stack_problems, stack_uses
    from provisioner.wheels.known import stacks_of

    return stack_problems(stack_uses(resolved), stacks_of(path))


def _texts(path: Path, spec: Spec, catalog: Catalog) -> tuple[dict[Address, dict[str, str]], list[Problem]]:
    """What is in the files that options of services name, and what is wrong with these."""
    roles = {role for container in spec.containers.values() for role in container.services}
    kinds = {reference.kind for role in roles for reference in catalog.services[role].references.values()}
    if not kinds & {"file", "files"}:
        return {}, []
    from provisioner.lab.opening.texts import read_texts  # nothing that a lab needs whose services name no files

    return read_texts(path, spec, catalog)
