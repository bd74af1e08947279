"""The files that we give people, one after the other on one host: quickstart, that of ``init``, a house, a team.

Each is planned as a whole while the containers of all labs before it are there, with no services in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.integration.up.quickstart_lab import Lab
from tests.lab.incus import Lab as Incus

pytestmark = [pytest.mark.incus, pytest.mark.core]

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
LABS = ("quickstart", "homelab", "full-stack", "agents")
"""In the order in which they come; ``homelab`` is that of ``init``."""
OURS = "beside-"
"""Before all names, as the quickstart itself may be up."""


class Loader(yaml.SafeLoader):
    """A loader for which a secret is a text."""


Loader.add_constructor("!secret", lambda _loader, node: str(node.value))


def with_our_names(text: str, lab: str) -> str:
    """The file as the lab of that name is written, with names of labs and containers that are this test's."""
    assert f"\nname: {lab}\n" in text
    return (
        text.replace(f"\nname: {lab}\n", f"\nname: {OURS}{lab}\n")
        .replace(f" {lab}-", f" {OURS}{lab}-")
        .replace(f"[{lab}-", f"[{OURS}{lab}-")
    )


@pytest.fixture(scope="module")
def labs(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Lab]]:
    """The labs, each in a folder of its own; nothing of them is left afterwards."""
    labs: dict[str, Lab] = {}
    for name in LABS:
        folder = tmp_path_factory.mktemp(name)
        labs[name] = Lab(folder, incus_lab.environment, "debian/12", "debian/12", name=f"{OURS}{name}")
    labs["homelab"].succeeded("init")
    for name, lab in labs.items():
        file = lab.folder / "homelab.yml"
        source = file if file.exists() else EXAMPLES / f"{name}.yml"
        file.write_text(with_our_names(source.read_text(encoding="utf-8"), name), encoding="utf-8")
        lab.succeeded("init", "--secrets")
        lab.provision("destroy", "--prune", "--yes", "--lab", lab.name)  # what an interrupted run has left
    yield labs
    for lab in labs.values():
        lab.succeeded("destroy", "--prune", "--yes", "--lab", lab.name)
        assert lab.made() == []


@pytest.mark.parametrize("name", LABS)
def test_each_lab_is_planned_and_made_beside_those_before_it(labs: dict[str, Lab], name: str) -> None:
    lab = labs[name]
    file = lab.folder / "homelab.yml"
    whole = file.read_text(encoding="utf-8")
    containers = yaml.load(whole, Loader)["containers"]  # noqa: S506  # a safe one
    planned = lab.succeeded("plan", "--json")
    created = {
        line["target"] for line in planned.lines if line["type"] == "planned_change" and line["action"] == "create"
    }
    assert created == set(containers)
    bare = {"name": lab.name, "containers": {each: {"image": "debian/12", "services": {}} for each in containers}}
    file.write_text(yaml.safe_dump(bare), encoding="utf-8")
    lab.succeeded("up", "--yes")
    assert sorted(each["name"] for each in lab.made()) == sorted(containers)


def test_a_name_that_another_lab_has_is_refused_with_that_lab(labs: dict[str, Lab]) -> None:
    lab = labs["homelab"]
    taken = f"{OURS}quickstart-llama"
    file = lab.folder / "homelab.yml"
    before = file.read_text(encoding="utf-8")
    file.write_text(f"name: {lab.name}\ncontainers: {{ {taken}: {{ services: {{}} }} }}\n", encoding="utf-8")
    refused = lab.provision("plan")
    file.write_text(before, encoding="utf-8")
    assert refused.code == 4
    assert f"has a container {taken} of lab {OURS}quickstart" in " ".join(refused.err.split())
