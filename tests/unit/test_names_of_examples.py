"""The files that we give people name their containers so that all of them can be up on one host."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
import yaml

from provisioner.catalog import load_catalog
from provisioner.labfile.starter import PREFIX, write_starter

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.yml"))


class Loader(yaml.SafeLoader):
    """A loader for which a secret is a text."""


Loader.add_constructor("!secret", lambda _loader, node: str(node.value))


@pytest.fixture
def labs(tmp_path: Path) -> dict[str, set[str]]:
    """The names of the containers of each file's lab."""
    first, _ = write_starter(tmp_path / "homelab.yml", load_catalog())
    files = [first, *EXAMPLES]
    read = [yaml.load(file.read_text(encoding="utf-8"), Loader) for file in files]  # noqa: S506  # a safe one
    return {lab["name"]: set(lab["containers"]) for lab in read}


def test_no_two_labs_name_a_container_alike(labs: dict[str, set[str]]) -> None:
    assert len(labs) == 1 + len(EXAMPLES) > 3
    for (one, names), (other, others) in combinations(labs.items(), 2):
        assert names.isdisjoint(others), (one, other)


def test_names_of_containers_begin_with_that_of_their_lab(labs: dict[str, set[str]]) -> None:
    for lab, names in labs.items():
        assert all(name.startswith(f"{lab}-") for name in names), names
    assert f"{next(iter(labs))}-" == PREFIX
