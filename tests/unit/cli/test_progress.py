"""Progress: short steps are silent, long ones are told, nothing is told for ever."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from rich.console import Console as RichConsole

from provisioner.cli.live import LiveProgress
from provisioner.cli.progress import HEARTBEAT_S, PlainProgress
from provisioner.events import ApplyComplete, ApplyErrored, ApplyProgress, ApplyStart
from provisioner.report.style import PLAIN


class Clock:
    """A clock that goes when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        """The time that was set."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def plain(clock: Clock, said: list[str]) -> Iterator[PlainProgress]:
    progress = PlainProgress(said.append, PLAIN, clock)
    yield progress
    progress.close()


def test_beginning_and_end_are_told_at_once(plain: PlainProgress, said: list[str]) -> None:
    plain.handle(ApplyStart("llama", "create"))
    plain.handle(ApplyComplete("llama", "create", 12.4))
    plain.handle(ApplyStart("gateway", "create"))
    plain.handle(ApplyErrored("gateway", "create", "no room\nat all"))
    assert said == [
        "llama: creating",
        "llama: creating done after 12s",
        "gateway: creating",
        "gateway: creating failed: no room\\nat all",
    ]


def test_a_short_step_is_silent_and_a_long_one_is_told_once(
    plain: PlainProgress, said: list[str], clock: Clock
) -> None:
    plain.handle(ApplyStart("llama", "create"))
    plain.handle(ApplyProgress("llama", "short"))
    clock.now = 1.9
    plain.tick()
    plain.handle(ApplyProgress("llama", "long"))
    clock.now = 4.0
    plain.tick()
    plain.tick()
    assert said == ["llama: creating", "llama: long"]


def test_a_very_long_step_has_a_heartbeat(plain: PlainProgress, said: list[str], clock: Clock) -> None:
    plain.handle(ApplyStart("llama_cpp", "build"))
    plain.handle(ApplyProgress("llama_cpp", "compile"))
    for clock.now in (2.0, 2.0 + HEARTBEAT_S - 1, 2.0 + HEARTBEAT_S, 2.0 + 2 * HEARTBEAT_S):
        plain.tick()
    assert said[1:] == ["llama_cpp: compile", "llama_cpp: still compile (32s)", "llama_cpp: still compile (1m 02s)"]


def test_a_service_is_told_in_its_container_and_ends_with_it(
    plain: PlainProgress, said: list[str], clock: Clock
) -> None:
    plain.handle(ApplyStart("llama", "configure"))
    plain.handle(ApplyProgress("llama/llama_cpp", "install | Unpack"))
    clock.now = 3.0
    plain.tick()
    plain.handle(ApplyComplete("llama", "configure", 4.0))
    clock.now = 300.0
    plain.tick()
    assert said == ["llama: configuring", "llama: llama_cpp: install | Unpack", "llama: configuring done after 4.0s"]


def test_verbose_tells_every_step(clock: Clock, said: list[str]) -> None:
    progress = PlainProgress(said.append, PLAIN, clock, threshold_s=0.0)
    progress.handle(ApplyProgress("llama/llama_cpp", "one"))
    progress.handle(ApplyProgress("llama/llama_cpp", "two"))
    progress.close()
    assert said == ["llama: llama_cpp: one", "llama: llama_cpp: two"]


def test_live_display_shows_a_row_for_each_target(clock: Clock) -> None:
    screen = io.StringIO()
    live = LiveProgress(color=False, clock=clock, console=RichConsole(file=screen, width=100, force_terminal=True))
    live.handle(ApplyStart("llama", "configure"))
    live.handle(ApplyProgress("llama/llama_cpp", "[bold]install | Unpack\033[2J"))
    live.handle(ApplyStart("gateway", "create"))
    live.handle(ApplyComplete("gateway", "create", 7.2))
    clock.now = 65.0
    assert live.print_above("Warning: \033[31mred\033[0m [bold]not markup[/bold]")
    live.close()
    last = RichConsole(file=io.StringIO(), width=100)
    with last.capture() as captured:
        last.print(live.picture())
    rows = [line.split(maxsplit=2) for line in captured.get().splitlines()]
    assert rows[0][:2] == ["llama", "configuring"]
    assert rows[0][2].strip() == "1m 05s  llama_cpp: [bold]install | Unpack\\x1b[2J"
    assert captured.get().splitlines()[1].split() == ["gateway", "creating", "done", "7.2s"]
    assert "[bold]not markup[/bold]" in screen.getvalue()


def test_what_waits_for_others_is_silent(plain: PlainProgress, clock: Clock, said: list[str]) -> None:
    plain.handle(ApplyStart("llama", "configure"))
    plain.handle(ApplyProgress("llama", "install"))
    plain.handle(ApplyProgress("llama", ""))
    for clock.now in (3.0, HEARTBEAT_S + 3, 2 * HEARTBEAT_S + 6):
        plain.tick()
    assert said == ["llama: configuring"]
