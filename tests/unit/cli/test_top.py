"""``top``: one table for scripts, a picture that is drawn anew for people, and nobody is touched by it."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import sys
import termios
import threading
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from provisioner.cli import top
from provisioner.cli.app import run
from provisioner.cli.console import Console
from provisioner.cli.session import Session
from provisioner.hosts.fake import Container
from provisioner.services.llama_cpp import SERIES
from provisioner.values.errors import ProviderError, UnavailableError
from provisioner.values.state import Execution
from tests.raising import raising
from tests.unit.cli.conftest import ENGINE_KEY, GATEWAY_KEY, World, live

FAST = ("--interval", "0.5")


@dataclass
class Lab:
    """A lab that is up, and what its containers say of themselves at each look."""

    world: World
    written: list[int] = field(default_factory=lambda: [0])
    """What the engine's counter says, look by look; the last one stays."""
    said: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By address what else is said."""
    models: tuple[str, ...] = ("",)
    broken: dict[str, Execution | ProviderError] = field(default_factory=dict)
    """By container how its program ends instead."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    commands: list[tuple[str, ...]] = field(default_factory=list)

    def agent(self, container: Container, command: Any, stdin: bytes, _environment: Any) -> Execution:
        """The program's answer."""
        part = zlib.decompressobj()
        part.decompress(stdin)
        asked = json.loads(part.unused_data)
        assert asked["do"] == "live"
        self.asked.append(asked)
        self.commands.append(tuple(command))
        broken = self.broken.get(container.instance.name)
        if isinstance(broken, ProviderError):
            raise broken
        if broken is not None:
            return broken
        found = {one["address"]: self._service(one) for one in asked["services"]}
        return Execution(0, json.dumps({"services": found, "cards": []}).encode(), b"")

    def _service(self, asked: dict[str, Any]) -> dict[str, Any]:
        looks = sum(asked in one["services"] for one in self.asked)
        told = live() | {"running": 2, "waiting": 1, "at_s": 4.0 * looks}
        if asked["metrics"]:
            written = self.written.pop(0) if len(self.written) > 1 else self.written[0]
            numbers = {"read": 10.0, "written": float(written), "running": 1.0, "waiting": 0.0}
            samples = [[SERIES[word], number] for word, number in numbers.items()]
            told["models"] = [{"name": name, "samples": samples, "slots": []} for name in self.models]
        return {**told, **self.said.get(asked["address"], {})}


@pytest.fixture
def up(world: World) -> Lab:
    """The usual lab, up, and looked at without waiting."""
    assert world.command("up", "--yes").code == 0
    made = Lab(world)
    world.host.programs["python3"] = made.agent
    return made


def test_one_table_is_printed_where_there_is_no_terminal(up: Lab) -> None:
    up.written = [100, 500]
    answer = up.world.done("top", *FAST)
    assert answer.printed == up.world.snapshot, "by the clock of the container 4 s went by"
    assert "\x1b" not in answer.out


def test_programs_get_one_result(up: Lab) -> None:
    up.written = [100, 500]
    answer = up.world.command("top", "--once", "--json", *FAST)
    (result,) = answer.of("result")
    told = {one["target"]: one for one in result["services"]}
    assert told["llama/llama_cpp"]["written_per_s"] == 100.0
    assert told["gateway/litellm"]["written_per_s"] is None
    assert answer.of("summary")[0]["exit_code"] == 0


def test_a_counter_that_begins_again_is_no_rate(up: Lab) -> None:
    up.written = [90_000, 10]
    (result,) = up.world.command("top", "--once", "--json", *FAST).of("result")
    told = {one["target"]: one for one in result["services"]}
    assert told["llama/llama_cpp"]["written_per_s"] is None


def test_one_look_is_one_program_in_each_container_and_holds_no_key(up: Lab) -> None:
    before = len(up.world.told)
    assert up.world.command("top", "--once", *FAST).code == 0
    assert len(up.asked) == 4, "two looks in two containers"
    told = json.dumps(up.asked) + json.dumps(up.commands)
    assert ENGINE_KEY not in told
    assert GATEWAY_KEY not in told
    assert len(up.world.told) == before, "no unit is started or stopped"
    (engine,) = up.asked[0]["services"] if up.asked[0]["services"][0]["metrics"] else up.asked[1]["services"]
    assert engine["port"] == 18080, "behind the switch, so that it counts as nobody's request"
    assert engine["socket"] == "/run/switch-llama-server/control.sock"


def test_what_sleeps_and_what_is_stopped_is_told(up: Lab) -> None:
    up.said["llama/llama_cpp"] = {"unit": "asleep", "status": "MAINT", "models": [], "running": 0, "waiting": 0}
    gateway = up.world.host.read("gateway")
    assert gateway is not None
    up.world.host.stop(gateway)
    assert up.world.command("top", "--once", *FAST).printed == up.world.snapshot
    assert {len(one["services"]) for one in up.asked} == {1}


def test_what_is_not_there_yet_is_told(world: World) -> None:
    assert world.command("top", "--once", *FAST).ended(0) == world.snapshot


@pytest.mark.parametrize(
    "broken",
    [
        ProviderError("Unable to run python3 in llama: it took longer than 10 s"),
        Execution(127, b"", b"sh: python3: not found"),
        Execution(0, b"Hello", b""),
        Execution(0, b'{"services": {}, "cards": []}', b""),
        Execution(0, b"[" * 100_000, b""),
        Execution(1, b"", b"\x1b[2Jhostile"),
    ],
    ids=["late", "no python", "words", "nothing", "deep", "hostile"],
)
def test_a_container_that_does_not_answer_stops_no_other(up: Lab, broken: Any) -> None:
    up.broken["llama"] = broken
    answer = up.world.done("top", "--once", *FAST)
    assert answer.printed == up.world.snapshot
    assert "\x1b" not in answer.printed


def test_a_host_that_goes_away_stops_no_other(up: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "homelab.yml"
    written = file.read_text().replace("  box: { incus: local }", "  box: { incus: local }\n  far: { incus: local }")
    for name, host in (("gateway", "far"), ("llama", "box")):
        written = written.replace(f"  {name}:\n", f"  {name}:\n    host: {host}\n")
    file.write_text(written)
    far, gateway = up.world.add_host("far"), up.world.host.read("gateway")
    assert gateway is not None
    up.world.host.delete(gateway)
    away = raising(UnavailableError("Unable to reach host far"))
    monkeypatch.setattr(far, "observe", away)
    assert up.world.command("top", "--once", *FAST).ended(0) == up.world.snapshot
    monkeypatch.setattr(up.world.host, "observe", away)
    assert up.world.command("top", "--once", *FAST).code == 4


def test_names_of_containers_limit_it(up: Lab) -> None:
    assert "gateway" not in up.world.command("top", "llama", *FAST).out
    assert up.world.command("top", "nobody", *FAST).code == 64


@pytest.mark.parametrize("interval", ["0", "0.4", "nan", "inf", "-1", "3601", "x"])
def test_an_interval_that_is_none_is_refused(interval: str, world: World) -> None:
    assert world.command("top", "--interval", interval).code == 64


@dataclass
class Screen:
    """A terminal with somebody at its keyboard."""

    outside: int
    inside: int
    shown: bytearray = field(default_factory=bytearray)
    ignored: bool = False
    """True once ``top`` did not end although its user had ended it."""

    def read_until(self, words: bytes) -> None:
        """Read what is drawn until these words are there."""
        deadline = time.monotonic() + 20
        while words not in self.shown and time.monotonic() < deadline:
            if select.select([self.outside], [], [], 0.1)[0]:
                self.shown += os.read(self.outside, 65536)


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Screen]:
    """A terminal."""
    outside, inside = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    yield Screen(outside, inside)
    os.close(outside)
    os.close(inside)


def shown_by(up: Lab, screen: Screen, act: Any) -> tuple[int, str]:
    """What ``top`` gives and shows whose user acts once the table is there."""

    def user() -> None:
        screen.read_until(b"llama/llama_cpp")
        act()
        screen.read_until(top.CLOSED.encode())
        if top.CLOSED not in screen.shown.decode():  # nobody would read what it goes on to draw, and it would wait
            screen.ignored = True
            os.write(screen.outside, b"q")
            screen.read_until(top.CLOSED.encode())

    using = threading.Thread(target=user, daemon=True)
    using.start()
    session = Session(Console(), lambda _lab: {"box": up.world.host}, None)
    with (
        os.fdopen(os.dup(screen.inside), "r") as stdin,
        os.fdopen(os.dup(screen.inside), "w") as stdout,
        up.world.monkeypatch.context() as patched,
    ):
        patched.setattr(sys, "stdin", stdin)
        patched.setattr(sys, "stdout", stdout)
        code = run(("top", *FAST), session)
    using.join(30)
    assert not using.is_alive()
    assert not screen.ignored
    return code, screen.shown.decode()


def test_q_ends_it_and_the_terminal_is_as_before(up: Lab, screen: Screen) -> None:
    before = termios.tcgetattr(screen.inside)
    code, shown = shown_by(up, screen, lambda: os.write(screen.outside, b"xq"))
    assert code == 0
    assert shown.index(top.OPENED) < shown.index("llama/llama_cpp") < shown.index(top.CLOSED)
    assert termios.tcgetattr(screen.inside) == before


def test_ctrl_c_ends_it_and_the_terminal_is_as_before(up: Lab, screen: Screen) -> None:
    before = termios.tcgetattr(screen.inside)
    # Tests that a shell runs in the background were told to ignore it.
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code, shown = shown_by(up, screen, lambda: os.kill(os.getpid(), signal.SIGINT))
    finally:
        signal.signal(signal.SIGINT, usual)
    assert (code, top.CLOSED in shown) == (0, True)
    assert termios.tcgetattr(screen.inside) == before


def test_what_nobody_foresees_leaves_the_terminal_as_before(
    up: Lab, screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = termios.tcgetattr(screen.inside)

    def broken() -> None:
        monkeypatch.setattr("provisioner.measuring.live.Watch.picture", lambda _self: 1 / 0)

    code, shown = shown_by(up, screen, broken)
    assert code not in (0, 130)
    assert top.CLOSED in shown
    assert termios.tcgetattr(screen.inside) == before


def test_without_colours_nothing_is_painted(up: Lab, screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    _, shown = shown_by(up, screen, lambda: os.write(screen.outside, b"q"))
    assert "\x1b[32m" not in shown
    assert "\x1b[1m" not in shown


def test_a_secret_that_a_model_is_named_after_is_not_shown(up: Lab, screen: Screen) -> None:
    up.models = (ENGINE_KEY,)
    _, shown = shown_by(up, screen, lambda: os.write(screen.outside, b"q"))
    assert "answers" in shown
    assert ENGINE_KEY not in shown


def test_a_lab_without_engines_is_refused(world: World, tmp_path: Path) -> None:
    (tmp_path / "homelab.yml").write_text("name: tour\ncontainers:\n  web: { cpu: 1, memory: 512MiB }\n")
    assert world.command("top").ended(64) == world.snapshot
