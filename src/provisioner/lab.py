"""``open_lab``: a file read, checked against the catalog and its own rules, ready to be planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from provisioner import paths
from provisioner.catalog import Catalog, load_catalog
from provisioner.errors import InputError
from provisioner.gguf import Header
from provisioner.loader import Loaded, load
from provisioner.model_files import local_models, missing_files, read_headers
from provisioner.resolve import desired_fleet, host_of, problems
from provisioner.resolve.engine_options import option_problems, option_warnings
from provisioner.resolve.engines import models_of, services_of
from provisioner.spec import Spec
from provisioner.state import Fleet, Problem


@dataclass(frozen=True, slots=True)
class Lab:
    """A valid file and what it asks for."""

    loaded: Loaded
    catalog: Catalog
    headers: Mapping[str, Header] = field(default_factory=dict)
    """What the models' files on the controller say of themselves."""

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

    def fleet(self, architectures: Mapping[str, str] | None = None) -> Fleet:
        """What the file asks for; reads and hashes the models' files."""
        used = {name for _, service, page in services_of(self.spec, self.catalog) for name in models_of(service, page)}
        models = {name: model for name, model in self.spec.models.items() if name in used}
        files = local_models(models)
        return desired_fleet(self.spec, self.catalog, files, architectures)

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


def open_lab(path: Path, *, run_secret_command: bool = False, needs_secrets: bool = True) -> Lab:
    """The lab of ``path``; raises ``InputError`` with every problem of the file, and touches nothing.

    Without ``needs_secrets`` a secret may have no value: what stops or deletes uses none.
    """
    catalog = load_catalog()
    headers: dict[str, Header] = {}

    def rules(spec: Spec) -> list[Problem]:
        found, broken = read_headers(spec.models)
        headers.update(found)
        options = option_problems(spec, catalog, headers)
        return [*problems(spec, catalog), *missing_files(spec.models), *broken, *options]

    loaded = load(path, catalog, run_secret_command=run_secret_command, needs_secrets=needs_secrets, rules=rules)
    warnings = (*loaded.warnings, *option_warnings(loaded.spec, catalog, headers))
    return Lab(replace(loaded, warnings=warnings), catalog, headers)
