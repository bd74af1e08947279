"""``open_lab``: a file read, checked against the catalog and its own rules, ready to be planned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from provisioner import paths
from provisioner.catalog import Catalog, load_catalog
from provisioner.errors import InputError, PreflightError
from provisioner.events import Diagnostic
from provisioner.gguf import Header
from provisioner.gpus.cards import Card
from provisioner.lab import desired_fleet, host_of, problems
from provisioner.lab.cards import given
from provisioner.lab.engine_cards import card_problems, with_cards
from provisioner.lab.engine_options import option_problems, option_warnings
from provisioner.lab.engines import has_stacks, models_of, services_of
from provisioner.lab.hosts import LOCAL_HOST, with_images
from provisioner.loader import Loaded, Needs, load
from provisioner.lockfile import lock_file, read_pins, write_pins
from provisioner.model_files import Found, find_models, missing_files
from provisioner.model_headers import read_headers
from provisioner.remote_headers import cached_headers, fetch_headers
from provisioner.spec import Model, Spec
from provisioner.state import Fleet, Problem


@dataclass(frozen=True, slots=True)
class Lab:
    """A valid file and what it asks for."""

    loaded: Loaded
    catalog: Catalog
    headers: Mapping[str, Header] = field(default_factory=dict)
    """What the models' files say of themselves: those on the controller, and those elsewhere that were read before."""
    _found: list[Found] = field(default_factory=list, init=False, repr=False, compare=False)
    _fetched: dict[str, Header] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def spec(self) -> Spec:
        """The file's content."""
        return self.loaded.spec

    @property
    def name(self) -> str:
        """The lab's name, which every mark bears."""
        return self.loaded.spec.name

    @property
    def folder(self) -> Path:
        """``.provision/`` beside the file."""
        return paths.lab_folder(self.loaded.path)

    def fleet(
        self,
        architectures: Mapping[str, str] | None = None,
        cards: Mapping[str, Card] | None = None,
        *,
        addresses: Mapping[str, str] | None = None,
        images: Mapping[str, str] | None = None,
        needs_wheels: bool = True,
    ) -> Fleet:
        """What the file asks for; reads and hashes the models' files, and asks a hub for what no pin tells.

        ``cards`` are those that its containers get; without them no container has one, as it is where nobody looked.
        ``addresses``: of containers, in the LAN, as far as they are known. ``images``: of which those are made that
        are there, which the file's containers keep where they name none.
        Raises ``PreflightError`` where the wheels of a stack are not locked, unless nobody ``needs_wheels``.
        """
        spec = with_images(self.spec, images or {})
        if images and (broken := problems(spec, self.catalog)):
            raise self.loaded.error(broken)
        spec = self.installed(spec) if needs_wheels else spec
        if foreign := self._stacks_elsewhere({}, architectures or {}):
            raise PreflightError(
                "Unable to use a stack", details="\n".join(self.loaded.rendered(one) for one in foreign)
            )
        return desired_fleet(spec, self.catalog, self.models().files, architectures, cards, addresses=addresses)

    def installed(self, spec: Spec) -> Spec:
        """The content with the wheels of its stacks; raises ``PreflightError`` where they are not locked."""
        if not has_stacks(spec, self.catalog):
            return spec
        from provisioner.stack_pins import installed  # nothing that a lab without stacks needs
        from provisioner.stacks.known import stacks_of

        return installed(spec, self.catalog, self.lock_file, stacks_of(self.loaded.path))

    def cards(self, there: Mapping[str, Sequence[Card]]) -> tuple[dict[str, Card], dict[str, str]]:
        """The card of each container that wants one, of those of each host; and why others get none, with its line."""
        found, refused = given(self.spec, there)
        refused += card_problems(with_cards(self.spec, found), self.catalog, found)
        refused += self._stacks_elsewhere(found, {})
        why: dict[str, str] = {}
        for one in refused:
            name = str(one.path[1])
            why[name] = "\n".join(filter(None, (why.get(name), self.loaded.rendered(one))))
        return {name: card for name, card in found.items() if name not in why}, why

    def _stacks_elsewhere(self, cards: Mapping[str, Card], architectures: Mapping[str, str]) -> list[Problem]:
        """Stacks that do not run with these cards (by container), or on hosts of these architectures (by host)."""
        if not has_stacks(self.spec, self.catalog):
            return []
        from provisioner.lab.stacks import host_problems, stack_uses
        from provisioner.stacks.known import stacks_of

        there = {
            name: architectures.get(host_of(self.spec, container) or LOCAL_HOST, "")
            for name, container in self.spec.containers.items()
        }
        uses = stack_uses(self.spec, self.catalog)
        return list(host_problems(uses, stacks_of(self.loaded.path), cards, there))

    def models(self) -> Found:
        """The files behind the models that services use; found once, so that a run makes and pins what it planned."""
        if not self._found:
            services = services_of(self.spec, self.catalog)
            used = {name for _, service, page in services for name in models_of(service, page)}
            models = {name: model for name, model in self.spec.models.items() if name in used}
            found = find_models(models, read_pins(self.lock_file))
            if found.problems:
                raise self.loaded.error(found.problems)
            self._found.append(found)
        return self._found[0]

    @property
    def known_headers(self) -> Mapping[str, Header]:
        """``headers``, and what ``look_at_models`` read since."""
        return {**self.headers, **self._fetched}

    @property
    def lock_file(self) -> Path:
        """What the file leaves open, as it was found: beside the file."""
        return lock_file(self.loaded.path)

    def look_at_models(self) -> list[Diagnostic]:
        """Read the heads of models elsewhere that are not known yet, and hold the services' options against them.

        What is new to say; raises ``InputError`` with what no server could run with.
        """
        files = {name: file for name, file in self.models().files.items() if name not in self.headers}
        found, notes = fetch_headers(self.spec.models, files)
        self._fetched.update(found)
        if not found:  # the options were held against all that is known when the file was opened
            return [Diagnostic("note", note) for note in notes]
        headers = {**self.headers, **found}
        if broken := list(option_problems(self.spec, self.catalog, headers)):
            raise self.loaded.error(broken)
        told = set(option_warnings(self.spec, self.catalog, self.headers))
        new = [one for one in option_warnings(self.spec, self.catalog, headers) if one not in told]
        warnings = [Diagnostic("warning", self.loaded.rendered(one)) for one in new]
        return [*(Diagnostic("note", note) for note in notes), *warnings]

    def pin(self) -> None:
        """Note in the lock file what the models were found to be; nothing is written where it says so already."""
        there = read_pins(self.lock_file)
        sources = {name: model.source for name, model in self.spec.models.items()}
        kept = {name: pin for name, pin in there.items() if sources.get(name) == pin.source} | self.models().pins
        if kept != there:
            write_pins(self.lock_file, kept)

    def used_hosts(self) -> tuple[str, ...]:
        """The hosts of the file; those that hold no container may still hold orphans."""
        named = {host_of(self.spec, container) for container in self.spec.containers.values()} | set(self.spec.hosts)
        return tuple(sorted(name for name in named if name))

    def check_targets(self, targets: Sequence[str]) -> None:
        """Raise ``InputError`` when a target is no container of the file."""
        unknown = [name for name in targets if name not in self.spec.containers]
        if unknown:
            raise InputError(
                f"Unable to find container {', '.join(unknown)} in {self.loaded.path}",
                resolution=f"Containers of this file: {', '.join(sorted(self.spec.containers))}",
            )


def open_lab(path: Path, *, run_secret_command: bool = False, needs: Needs = "all") -> Lab:
    """The lab of ``path``; raises ``InputError`` with every problem of the file, and touches nothing.

    A verb that does not need all secrets reads no lock file either: what stops or deletes uses none.
    """
    catalog = load_catalog()
    headers: dict[str, Header] = {}

    def rules(spec: Spec) -> list[Problem]:
        found, broken = read_headers(spec.models)
        headers.update(found | (_cached(path, spec.models) if needs == "all" else {}))
        options = option_problems(spec, catalog, headers)
        stacks = _stack_problems(spec, catalog, path)
        return [*problems(spec, catalog), *stacks, *missing_files(spec.models), *broken, *options]

    loaded = load(path, catalog, run_secret_command=run_secret_command, needs=needs, rules=rules)
    warnings = (*loaded.warnings, *option_warnings(loaded.spec, catalog, headers))
    return Lab(replace(loaded, warnings=warnings), catalog, headers)


def _cached(path: Path, models: Mapping[str, Model]) -> dict[str, Header]:
    has_pins = any(model.source.startswith("hf:") for model in models.values())
    return cached_headers(models, read_pins(lock_file(path)) if has_pins else {})


def _stack_problems(spec: Spec, catalog: Catalog, path: Path) -> Iterable[Problem]:
    if not has_stacks(spec, catalog):
        return ()
    from provisioner.lab.stacks import stack_problems, stack_uses
    from provisioner.stacks.known import stacks_of

    return stack_problems(stack_uses(spec, catalog), stacks_of(path))
