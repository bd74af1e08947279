"""The verb ``doctor`` on hosts with cards: its lines, what of them arrived in containers, and what ``--fix`` mends."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from provisioner.doctor import hosts
from provisioner.gpus.cards import Card, Link, Node
from provisioner.gpus.health import HostDriver
from provisioner.hosts.fake import Container, FakeProvider
from provisioner.hosts.fake.cards import Cards
from provisioner.values.errors import ProviderError, UnavailableError
from provisioner.values.host_facts import HostAnswers, HostFact
from provisioner.values.state import Execution, Instance, Status
from tests.unit.cli.conftest import FILE, World

NODES = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
CARD = Card(
    "0000:01:00.0",
    "nvidia",
    "NVIDIA GeForce RTX 3060",
    "nvidia",
    memory=12 * 2**30,
    capability="8.6",
    driver_version="580.95.05",
    cuda="13.0",
    nodes=tuple(Node(path, 195, number) for number, path in enumerate(NODES)),
    link=Link(2.5, 16, 16.0, 16),
)
DRIVER = HostDriver(module="580.95.05", makers=("provision-gpu.service",))
ARRIVED = "".join(f"node\t{path} 666 0 0\n" for path in NODES) + (
    "library\t/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05\nglibc\tglibc 2.36\nuser\tllama-server.service 998 998\n"
)
WITH_CARD = FILE.replace("  llama:\n", "  llama:\n    gpu: any\n")


class OneCard(Cards):
    """A card, as far as its nodes are there."""

    def __init__(self, host: FakeProvider, card: Card | None) -> None:
        super().__init__(host)
        self.card, self.does = card, DRIVER
        self.repairs: list[str] = []
        self.trouble: Exception | None = None

    def read(self) -> tuple[Card, ...]:
        """The card."""
        if isinstance(self.trouble, UnavailableError):
            raise self.trouble
        return (self.card,) if self.card else ()

    def driver(self) -> HostDriver:
        """What the host does for it."""
        return self.does

    def repair(self) -> str:
        """Make the nodes."""
        if isinstance(self.trouble, ProviderError):
            raise self.trouble
        assert self.card
        self.card = replace(self.card, nodes=CARD.nodes, missing=())
        self.repairs.append("made them")
        return "ran nvidia-modprobe -u -c 0"


class Box(FakeProvider):
    """A host with a card."""

    def __init__(self, card: Card | None = CARD) -> None:
        super().__init__("box")
        self.cards = self.graphics = OneCard(self, card)
        self.facts: tuple[HostFact, ...] = ()
        self.inside = ARRIVED

    def examine(self, images: Collection[str], lab: str) -> tuple[HostFact, ...]:  # noqa: ARG002 - it is always well
        """What was seen of the host itself."""
        return self.facts

    def shell(
        self, _container: Container, command: Sequence[str], _stdin: bytes, _environment: Mapping[str, str]
    ) -> Execution:
        """What a container answers; it has no apt."""
        if command[-1] == hosts.SCRIPT:
            return Execution(0, b"", b"")
        assert command[-1] == "llama-server.service"
        return Execution(0, self.inside.encode(), b"") if self.inside else Execution(2, b"", b"no shell")


@pytest.fixture
def wanting(world: World, lab: Path) -> World:
    """A lab whose container llama wants a card."""
    lab.write_text(WITH_CARD)
    world.host = Box()
    world.host.programs["sh"] = world.host.shell
    return world


def running(world: World) -> None:
    """The container that wants the card is there and runs."""
    made = Instance("llama", "box", "homelab", "debian/12", status=Status.RUNNING)
    world.host.containers["llama"] = Container(made)


def bad(world: World, *arguments: str) -> list[tuple[str, str]]:
    """The target and name of each check that is not well."""
    return [
        (one["target"], one["name"])
        for one in world.command("doctor", "--json", *arguments).of("check")
        if not one["ok"]
    ]


def box(world: World) -> Box:
    """The host."""
    assert isinstance(world.host, Box)
    return world.host


def test_a_kind_of_host_that_tells_nothing_of_its_drivers_is_looked_at_all_the_same(world: World, lab: Path) -> None:
    lab.write_text(WITH_CARD)
    world.host = FakeProvider("box")
    world.host.cards.there = (CARD,)
    assert ("box", "boot") in bad(world)


def test_a_card_that_nobody_wants_is_one_line(world: World) -> None:
    world.host = Box(replace(CARD, driver="nouveau"))
    assert world.command("doctor").ended(0) == world.snapshot


def test_all_is_well(wanting: World) -> None:
    running(wanting)
    answer = wanting.done("doctor")
    names = [line.split(": ")[1] for line in answer.out.splitlines() if line.startswith("ok")]
    host = ["gpu", "driver", "nodes", "slot", "memory", "module", "boot", "tools"]
    assert names == [*host, "device files", "libraries", "cuda"]


def test_a_host_without_the_card(wanting: World) -> None:
    wanting.host = Box(None)
    assert bad(wanting) == [("box", "gpu")]
    assert wanting.command("doctor").code == 3


def test_what_did_not_arrive(wanting: World) -> None:
    running(wanting)
    box(wanting).inside = ARRIVED.replace("580.95.05", "575.51.03").replace("666", "660")
    assert bad(wanting) == [("llama", "device files"), ("llama", "libraries")]


def test_a_container_that_cannot_be_asked_hides_nothing_else(wanting: World) -> None:
    running(wanting)
    box(wanting).inside = ""
    box(wanting).graphics.does = HostDriver(module="580.95.05")
    assert bad(wanting) == [("box", "boot"), ("box", "gpu")]


def test_an_engine_that_has_no_code_for_the_card(wanting: World) -> None:
    box(wanting).graphics.card = replace(CARD, capability="6.1")
    assert bad(wanting) == [("llama/llama_cpp", "cuda")]


def test_a_card_with_less_than_is_required(wanting: World, lab: Path) -> None:
    lab.write_text(WITH_CARD.replace("gpu: any", 'gpu: { vendor: nvidia, require: { driver: "590" } }'))
    assert wanting.command("doctor").ended(3) == wanting.snapshot


def test_a_host_whose_cards_cannot_be_looked_at(wanting: World, lab: Path) -> None:
    box(wanting).graphics.trouble = UnavailableError("Unable to look at the graphics cards", resolution="See: dmesg")
    assert bad(wanting) == [("box", "gpu")]
    lab.write_text(FILE)
    assert bad(wanting) == []


def test_a_host_that_does_not_answer_is_not_asked_for_its_cards(wanting: World) -> None:
    box(wanting).facts = (HostAnswers("box", problem="Unable to reach it"),)
    box(wanting).graphics.trouble = UnavailableError("must not be asked")
    assert bad(wanting) == [("box", "answers")]


def test_fix_makes_missing_nodes_and_looks_again(wanting: World) -> None:
    lacking = replace(CARD, nodes=CARD.nodes[:2], missing=NODES[2:])
    box(wanting).graphics.card = lacking
    assert bad(wanting) == [("box", "gpu"), ("box", "nodes")]
    assert box(wanting).graphics.repairs == []
    assert wanting.command("doctor", "--fix").ended(0) == wanting.snapshot
    assert box(wanting).graphics.repairs == ["made them"]
    wanting.command("doctor", "--fix")
    assert box(wanting).graphics.repairs == ["made them"]


def test_fix_that_fails_says_why(wanting: World) -> None:
    box(wanting).graphics.card = replace(CARD, nodes=CARD.nodes[:2], missing=NODES[2:])
    box(wanting).graphics.trouble = ProviderError("Unable to make the nodes", resolution="sudo provision doctor --fix")
    assert wanting.command("doctor", "--fix").ended(1) == wanting.snapshot


def test_fix_does_nothing_about_what_it_cannot_mend(wanting: World) -> None:
    box(wanting).graphics.does = HostDriver(module="580.95.05")
    assert bad(wanting, "--fix") == [("box", "boot")]
    assert box(wanting).graphics.repairs == []
