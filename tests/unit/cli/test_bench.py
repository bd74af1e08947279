"""``bench`` on a host in memory: the table, the picture, and what is refused before anything is measured."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from provisioner.providers.fake import Container
from provisioner.values.state import Execution, Instance
from tests.unit.cli.conftest import World

FILE = """\
name: homelab
hosts: { box: { incus: local } }
containers:
  voice: { services: { kokoro: {} } }
"""
CHUNKS = [[0.5, 100], [1.0, 100]]


@pytest.fixture
def asked(world: World, lab: Path) -> list[Sequence[str]]:
    """What is run where a service speaks: a container that runs, and answers."""
    ran: list[Sequence[str]] = []

    def answer(_container: Container, command: Sequence[str], _stdin: bytes, _env: Mapping[str, str]) -> Execution:
        ran.append(command)
        told = {"problem": "", "first_s": 0.5, "last_s": 1.0, "bursts": 2, "chunks": CHUNKS}
        return Execution(0, {"python3": json.dumps(told), "sh": "false"}.get(command[0], "1048576").encode(), b"")

    for name in ("python3", "sh", "systemctl"):
        world.host.programs[name] = answer
    lab.write_text(FILE)
    world.host.start(world.host.create(Instance("voice", "box", "homelab", "debian/12")))
    return ran


def test_the_table_is_printed_and_the_picture_is_written(world: World, lab: Path, asked: list[Sequence[str]]) -> None:
    printed = world.command("bench", "--runs=1", "--long=0", "--plot", "speech.svg")
    assert (printed.code, printed.err) == (0, "")
    assert "voice: two sentences are heard after 0.50 of the time that all of them take." in printed.out
    assert len(asked) == 3 + 2
    root = ET.parse(lab.parent / "speech.svg").getroot()  # noqa: S314  # our own file
    assert len(list(root.iter("{http://www.w3.org/2000/svg}circle"))) == 3 * len(CHUNKS)


def test_json_names_the_picture(world: World, asked: list[Sequence[str]]) -> None:
    (result,) = world.command("bench", "--runs=1", "--long=300", "--plot=speech.svg", "--json").of("result")
    assert asked
    assert (result["kind"], result["file"]) == ("tts", "speech.svg")
    assert [one["text"] for one in result["benches"][0]["series"]] == ["short", "short", "short", "long"]


def test_a_picture_without_a_place_is_refused_before_anything_is_measured(
    world: World, lab: Path, asked: list[Sequence[str]]
) -> None:
    missing = world.command("bench", "--plot", "no/such/folder.svg")
    assert (missing.code, asked) == (64, [])
    assert "Unable to write no/such/folder.svg: there is no such folder" in missing.err
    (lab.parent / "folder").mkdir()
    assert (world.command("bench", "--plot", "folder").code, asked) == (64, [])
    assert list((lab.parent / "folder").iterdir()) == []
