"""Labs' files as the tests write them, read as the product reads them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from provisioner.catalog import Catalog, load_catalog
from provisioner.lab import ModelFile, desired_fleet
from provisioner.lab.opening import Lab, find_files, with_wheels
from provisioner.lab.opening.model_files import find_models, hashed
from provisioner.labfile.parsing import parse_spec
from provisioner.labfile.pins import Pin
from provisioner.labfile.spec import Model, Spec
from provisioner.values.state import Fleet, HostState


def spec_of(content: Mapping[str, Any], catalog: Catalog | None = None) -> Spec:
    """Return what a file of this content says; it has to have the right form."""
    parsed = parse_spec(dict(content), catalog or load_catalog())
    assert parsed.problems == ()
    assert parsed.spec is not None
    return parsed.spec


def hashed_models(models: Mapping[str, Model], pins: Mapping[str, Pin]) -> dict[str, ModelFile]:
    """Return the files of the models with their hashes, as a plan has them."""
    return {name: hashed(file, lambda _event: None) for name, file in find_models(models, pins).files.items()}


def files_of(lab: Lab) -> Mapping[str, ModelFile]:
    """Return the files of the lab's models, of which nobody needs hashes."""
    return find_files(lab).files


def wanted_fleet(lab: Lab, hosts: Mapping[str, HostState] | None = None) -> Fleet:
    """Return what the lab's file asks for, before anybody has looked at its hosts."""
    files = find_files(lab).hashed(lambda _event: None).files
    return desired_fleet(with_wheels(lab, lab.resolved, hosts or {}), files, hosts)


def lab_text(name: str) -> str:
    """Return the text of ``tests/cases/labs/<name>.yml``; words in capitals are still to be replaced."""
    return (Path(__file__).parent / "cases/labs" / f"{name}.yml").read_text(encoding="utf-8")
