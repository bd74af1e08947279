"""An image that a file does not name is a default for new containers: one that is there stays of what it was made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from provisioner.values.host_facts import HostAnswers, HostFact
from tests.case_files import read_cases
from tests.unit.cli.conftest import World

CASES = read_cases("cli/kept_images")

FILE: str = CASES["file"]


def write(lab: Path, image: str = "", more: str = "") -> None:
    """The file of a lab with a desktop."""
    lab.write_text(FILE.format(image=image, more=more), encoding="utf-8")
    secrets = lab.parent / "secrets.env"
    secrets.write_text("penny=canary-penny-1\n", encoding="utf-8")
    secrets.chmod(0o600)


@pytest.fixture
def made_before(world: World, lab: Path) -> World:
    """A lab whose container was made when its service's default was debian/12."""
    write(lab, "image: debian/12")
    assert world.command("up", "--yes").code == 0
    write(lab)
    assert world.host.containers["desk"].instance.image == "debian/12"
    return world


def test_a_new_desktop_is_made_of_debian_13(world: World, lab: Path) -> None:
    write(lab)
    assert world.command("up", "--yes").code == 0
    assert world.host.containers["desk"].instance.image == "debian/13"


def test_one_of_the_version_before_stays_as_it_is_and_is_warned_of(made_before: World) -> None:
    assert made_before.command("plan", "--detailed-exitcode").ended(0) == made_before.snapshot
    assert made_before.command("up", "--yes").code == 0
    assert made_before.host.containers["desk"].instance.image == "debian/12"
    assert made_before.command("status").printed == made_before.snapshot


def test_what_its_role_is_told_is_the_image_that_it_has(made_before: World) -> None:
    assert made_before.command("up", "--yes", "--full").code == 0
    assert 'desktop_image: !unsafe "debian/12"' in made_before.inventories[-1]


def test_a_replacement_that_is_asked_for_is_made_of_the_new_one(made_before: World) -> None:
    made_before.done("up", "--yes", "--replace", "desk")
    assert made_before.host.containers["desk"].instance.image == "debian/13"
    assert "stays" not in made_before.command("plan").err


def test_what_the_image_that_it_keeps_cannot_do_is_refused(made_before: World, lab: Path) -> None:
    write(lab, more=", sound: true")
    assert made_before.command("validate").code == 0
    assert made_before.command("plan").ended(64) == made_before.snapshot


def test_a_mark_without_an_image_is_no_reason_to_keep_any(made_before: World) -> None:
    """A container that was adopted may bear none."""
    container = made_before.host.containers["desk"]
    container.instance = replace(container.instance, image="")
    assert "stays" not in made_before.command("plan").err


def test_doctor_asks_for_the_image_that_is_kept(made_before: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[frozenset[str]] = []

    def examine(images: frozenset[str], _lab: str) -> tuple[HostFact, ...]:
        asked.append(images)
        return (HostAnswers("box"),)

    monkeypatch.setattr(made_before.host, "examine", examine)
    assert made_before.command("doctor").code == 0
    made_before.host.containers.clear()
    assert made_before.command("doctor").code == 0
    assert asked == [frozenset({"debian/12"}), frozenset({"debian/13"})]
