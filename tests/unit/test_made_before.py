"""A lab that the version before made is not made anew: no container differs, and nothing is built again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from provisioner.catalog import load_catalog
from provisioner.lab import Known, ModelFile, desired_fleet, problems, resolve
from tests.lab_files import spec_of
from tests.made_before import CARD, USUAL, made_of
from tests.maximal_labs import LABS

RECORD = json.loads((Path(__file__).parents[1] / "cases/made_before.json").read_text(encoding="utf-8"))
"""What the first edition made of these labs. It is never renewed: a later version makes nothing of them anew."""
ALL = {name: lab for name, lab in {**LABS, "usual": USUAL}.items() if name in RECORD}
"""Labs of services that the first edition had."""


def made_now(lab: dict[str, Any]) -> dict[str, Any]:
    """What this version would make of it, where each container that wants a card gets one."""
    spec = spec_of(lab)
    cards = {name: CARD for name, container in spec.containers.items() if container.gpu is not None}
    resolved = resolve(spec, load_catalog(), Known(cards=cards))
    files = {
        name: ModelFile(model.source, model.source.rpartition("/")[2], "a" * 64, is_folder=model.format != "gguf")
        for name, model in spec.models.items()
    }
    assert problems(resolved) == []
    fleet = desired_fleet(resolved, files)
    return made_of(fleet.instances, fleet.artifacts)


def but_for_what_is_inside(containers: dict[str, Any]) -> dict[str, Any]:
    """Where a volume is mounted, and where in it a port of the host leads, changes in a container as it is.

    Only which volume, and how, and which port has to be the same.
    """
    found = {}
    for name, container in containers.items():
        volumes, others = list[dict[str, str]](), list[Any]()
        for device in container["devices"]:
            if device["kind"] == "volume":
                volumes.append({key: value for key, value in device["properties"].items() if key != "path"})
            elif device["kind"] == "publish":
                others.append((device["name"], device["properties"]["listen"]))
            else:
                others.append(device)
        volumes.sort(key=lambda properties: properties["volume"])
        found[name] = {**container, "devices": others, "volumes": volumes}
    return found


@pytest.mark.parametrize("name", ALL)
def test_no_container_of_the_version_before_differs(name: str) -> None:
    assert but_for_what_is_inside(made_now(ALL[name])["containers"]) == but_for_what_is_inside(
        RECORD[name]["containers"]
    )


@pytest.mark.parametrize("name", ALL)
def test_nothing_that_the_version_before_built_is_built_again(name: str) -> None:
    """Where files were only reworded, the page's ``built_the_same`` says so; what builds something else may differ."""
    assert made_now(ALL[name])["volumes"] == RECORD[name]["volumes"]
