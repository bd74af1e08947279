"""Progress: short steps are silent, long ones are told, nothing is told for ever."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator

import pytest
from rich.console import Console as RichConsole
from syrupy.assertion import SnapshotAssertion

from provisioner.cli.console import Console
from provisioner.cli.live import LiveProgress
from provisioner.cli.progress import HEARTBEAT_S, ApplyEvent, Pace, PlainProgress
from provisioner.report.style import PLAIN
from provisioner.values.events import ApplyComplete, ApplyErrored, ApplyProgress, ApplyStart, Diagnostic


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


def test_who_holds_the_writer_s_lock_can_close_it(
    clock: Clock, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole run hung for ever where it looked at the clock just then."""
    looks, lock = threading.Event(), threading.RLock()
    tick = PlainProgress.tick

    def told(progress: PlainProgress) -> None:
        looks.set()
        tick(progress)

    monkeypatch.setattr("provisioner.cli.progress.TICK_S", 0.01)
    monkeypatch.setattr(PlainProgress, "tick", told)

    def close() -> None:
        with lock:
            progress = PlainProgress(said.append, PLAIN, clock, lock=lock)
            assert looks.wait(10)
            progress.handle(ApplyStart("llama", "create"))
            progress.close()
        clock.now = 1000.0
        progress.tick()

    closing = threading.Thread(target=close, daemon=True)
    closing.start()
    closing.join(20)
    assert not closing.is_alive()
    assert said == ["llama: creating"], "nothing is said once it is closed"


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


def test_what_took_minutes_the_last_time_says_so(plain: PlainProgress, said: list[str]) -> None:
    plain.handle(ApplyStart("llama_cpp", "build", 371.0))
    plain.handle(ApplyStart("llama", "create", 59.9))
    assert said == ["llama_cpp: building (6m 11s the last time)", "llama: creating"]


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


class Screen:
    """A live display of a given size, and its picture as text."""

    def __init__(self, clock: Clock, height: int = 40, encoding: str = "utf-8", width: int = 100) -> None:
        self.file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
        self._width = width
        self._console = RichConsole(file=self.file, width=width, height=height, force_terminal=True)
        self.live = LiveProgress(color=False, clock=clock, console=self._console)

    def __call__(self, *events: ApplyEvent) -> list[str]:
        """The lines of the picture after these events, blanks at their ends left out."""
        for event in events:
            self.live.handle(event)
        last = RichConsole(file=io.StringIO(), width=self._width)
        with last.capture() as captured:
            last.print(self.live.picture())
        return [line.rstrip() for line in captured.get().splitlines()]


@pytest.fixture
def screen(clock: Clock) -> Iterator[Screen]:
    made = Screen(clock)
    yield made
    made.live.close()


def words(line: str) -> list[str]:
    return line.split()


def test_each_container_has_a_block_with_its_roles(screen: Screen, clock: Clock) -> None:
    assert [words(line) for line in screen(ApplyStart("llama", "create"), ApplyProgress("llama", "start"))] == [
        ["llama", "creating", "0.0s", "start"]
    ]
    clock.now = 7.0
    assert words(screen(ApplyComplete("llama", "create", 7.0))[0]) == ["llama", "creating", "done", "7.0s"]
    clock.now = 10.0
    screen(ApplyStart("llama", "configure"), ApplyProgress("llama/base", "Gather facts"))
    clock.now = 12.0
    screen(ApplyProgress("llama/base", ""))
    clock.now = 15.0
    picture = screen(ApplyProgress("llama/llama_cpp", "install | Unpack the archive"))
    assert [words(line) for line in picture] == [
        ["llama", "configuring", "5.0s"],
        ["✓", "creating", "done", "7.0s"],
        ["✓", "base", "2.0s"],
        ["llama_cpp", "install", "0.0s", "Unpack", "the", "archive"],
    ]
    clock.now = 75.0
    assert words(screen()[3]) == ["llama_cpp", "install", "1m", "00s", "Unpack", "the", "archive"]
    picture = screen(ApplyProgress("llama/llama_cpp", ""), ApplyComplete("llama", "configure", 65.0))
    assert [words(line) for line in picture] == [
        ["llama", "configuring", "done", "1m", "05s"],
        ["✓", "creating", "done", "7.0s"],
        ["✓", "base", "2.0s"],
        ["✓", "llama_cpp", "1m", "00s"],
    ]


@pytest.mark.parametrize("width", [80, 110, 160])
def test_no_column_gives_way_but_the_message(clock: Clock, width: int, snapshot: SnapshotAssertion) -> None:
    screen = Screen(clock, width=width)
    for name in ("homelab-gateway", "homelab-llama", "homelab-with-a-name-that-is-longer-than-half-a-terminal"):
        screen(ApplyStart(name, "configure"))
    screen(ApplyStart("model-qwen3-coder-30b", "build", 371.0))
    clock.now = 75.0
    picture = screen(
        ApplyProgress("homelab-llama/llama_cpp", "proof | wait until the model is loaded and has answered once"),
        ApplyProgress("homelab-gateway/litellm", "lay its configuration"),
        ApplyProgress("homelab-gateway/litellm", ""),
        ApplyProgress("model-qwen3-coder-30b", "download: 12.1 of 18.2 GiB"),
    )
    screen.live.close()
    assert "\n".join(picture) == snapshot


def test_who_waits_says_for_whom(screen: Screen) -> None:
    screen(ApplyStart("llama", "configure"), ApplyStart("gateway", "configure"))
    screen(ApplyProgress("llama/llama_cpp", "proof | Ask"), ApplyProgress("gateway/litellm", "Lay it"))
    assert "waits for llama" in screen(ApplyProgress("gateway/litellm", ""))[3]
    both = screen(ApplyProgress("llama/llama_cpp", ""))
    assert not any("waits" in line for line in both), "nobody works: there is nobody to wait for"
    assert "waits for gateway" in screen(ApplyProgress("gateway/litellm", "Start it"))[1]
    assert not any("waits" in line for line in screen(ApplyComplete("gateway", "configure", 1.0)))


def test_the_role_that_failed_is_marked_with_its_phase(screen: Screen, clock: Clock) -> None:
    screen(ApplyStart("llama", "configure"), ApplyProgress("llama/base", "Gather facts"))
    screen(ApplyProgress("llama/llama_cpp", "service | Start it"))
    clock.now = 3.0
    picture = screen(ApplyProgress("llama/llama_cpp", ""), ApplyErrored("llama", "configure", "no\nroom"))
    clock.now = 90.0
    assert screen() == picture
    assert [words(line) for line in picture] == [
        ["llama", "configuring", "failed", "3.0s", "no\\nroom"],
        ["✓", "base", "0.0s"],
        ["✗", "llama_cpp", "service", "3.0s"],
    ]


def test_what_is_only_looked_at_is_done_when_the_display_ends(screen: Screen) -> None:
    screen(ApplyProgress("llama/llama_cpp", "verify | Ask"), ApplyProgress("llama/llama_cpp", ""))
    assert words(screen()[1])[:2] == ["llama_cpp", "verify"]
    screen.live.close()
    assert words(screen()[1])[:2] == ["✓", "llama_cpp"]


def test_names_and_messages_do_not_steer_the_terminal(screen: Screen) -> None:
    line = screen(ApplyProgress("llama/llama_cpp", "[bold]install | Unpack\033[2J"))[1]
    assert "[bold]install" in line
    assert "Unpack\\x1b[2J" in line


def test_text_is_printed_above_as_it_is(screen: Screen) -> None:
    assert screen.live.print_above("Warning: \033[31mred\033[0m [bold]not markup[/bold]")
    screen.live.close()
    screen.file.seek(0)
    assert "[bold]not markup[/bold]" in screen.file.read()


def test_a_terminal_without_utf8_gets_plain_marks(clock: Clock) -> None:
    screen = Screen(clock, encoding="ascii")
    screen(ApplyStart("llama", "configure"), ApplyProgress("llama/base", "Gather facts"))
    picture = screen(ApplyComplete("llama", "configure", 1.0))
    screen.live.close()
    assert words(picture[1])[:2] == ["+", "base"]


def begun(number: int) -> list[ApplyEvent]:
    name = f"c{number:02}"
    return [
        ApplyStart(name, "configure"),
        ApplyProgress(f"{name}/base", "Gather facts"),
        ApplyProgress(f"{name}/llama_cpp", "install | Unpack"),
    ]


def test_twenty_containers_fit_in_24_lines(clock: Clock) -> None:
    screen = Screen(clock, height=24)
    picture = screen(*(event for number in range(20) for event in begun(number)))
    assert len(picture) == 20
    assert words(picture[0]) == ["c00", "configuring", "0.0s", "llama_cpp:", "install:", "Unpack"]
    picture = screen(*(ApplyComplete(f"c{number:02}", "configure", 1.0) for number in range(12)))
    assert len(picture) <= 23
    assert picture[0].strip() == "12 done"
    assert words(picture[1])[0] == "c12"
    picture = screen(ApplyErrored("c19", "configure", "no room"))
    assert any(words(line)[:3] == ["c19", "configuring", "failed"] for line in picture)
    picture = screen(*(ApplyComplete(f"c{number:02}", "configure", 1.0) for number in range(12, 17)))
    screen.live.close()
    assert picture[0].strip() == "17 done"
    assert sum("✓ base" in line for line in picture) == 3


def test_what_failed_is_shown_when_not_even_one_line_each_fits(clock: Clock) -> None:
    screen = Screen(clock, height=10)
    screen(*(event for number in range(30) for event in begun(number)))
    picture = screen(ApplyErrored("c29", "configure", "no room"), ApplyComplete("c03", "configure", 1.0))
    screen.live.close()
    assert len(picture) == 9
    assert words(picture[0])[:3] == ["c29", "configuring", "failed"]
    assert [line.strip() for line in picture[-2:]] == ["22 more", "1 done"]


def counted(done: int) -> ApplyProgress:
    return ApplyProgress("llama_cpp", f"build | Compile: {done} of 222", goes_on=True)


def test_a_step_that_counts_is_told_when_it_is_long_and_then_with_each_heartbeat(
    plain: PlainProgress, said: list[str], clock: Clock
) -> None:
    plain.handle(ApplyStart("llama_cpp", "build"))
    plain.handle(ApplyProgress("llama_cpp", "build | Compile"))
    for second in range(1, 130):
        clock.now = float(second)
        plain.handle(counted(second))
        plain.tick()
    plain.handle(ApplyProgress("llama_cpp", "build | Install"))
    clock.now += 2.0
    plain.tick()
    assert said == [
        "llama_cpp: building",
        "llama_cpp: build | Compile: 2 of 222",
        "llama_cpp: still build | Compile: 32 of 222 (32s)",
        "llama_cpp: still build | Compile: 62 of 222 (1m 02s)",
        "llama_cpp: still build | Compile: 92 of 222 (1m 32s)",
        "llama_cpp: still build | Compile: 122 of 222 (2m 02s)",
        "llama_cpp: build | Install",
    ]


def test_a_short_step_that_counts_is_silent(plain: PlainProgress, said: list[str], clock: Clock) -> None:
    plain.handle(ApplyStart("llama_cpp", "build"))
    plain.handle(ApplyProgress("llama_cpp", "build | Compile"))
    clock.now = 1.9
    plain.handle(counted(222))
    plain.handle(ApplyProgress("llama_cpp", ""))
    clock.now = 60.0
    plain.tick()
    assert said == ["llama_cpp: building"]


def test_a_count_after_a_rest_is_a_step_again(plain: PlainProgress, said: list[str], clock: Clock) -> None:
    plain.handle(ApplyStart("llama_cpp", "build"))
    plain.handle(ApplyProgress("llama_cpp", ""))
    clock.now = 60.0
    plain.handle(counted(1))
    clock.now = 62.0
    plain.tick()
    assert said == ["llama_cpp: building", "llama_cpp: build | Compile: 1 of 222"]


def test_verbose_tells_every_step_and_not_every_count(clock: Clock, said: list[str]) -> None:
    progress = PlainProgress(said.append, PLAIN, clock, threshold_s=0.0)
    progress.handle(ApplyProgress("llama_cpp", "build | Compile"))
    for done in range(100):
        progress.handle(counted(done))
    clock.now = HEARTBEAT_S
    progress.tick()
    progress.handle(ApplyProgress("llama_cpp", "build | Install"))
    progress.close()
    assert said == [
        "llama_cpp: build | Compile",
        "llama_cpp: still build | Compile: 99 of 222 (30s)",
        "llama_cpp: build | Install",
    ]


def test_the_live_display_shows_the_newest_count_beside_its_artifact(screen: Screen, clock: Clock) -> None:
    screen(ApplyStart("llama_cpp", "build"), ApplyProgress("llama_cpp", "build | Compile"))
    clock.now = 65.0
    picture = screen(counted(119), counted(120))
    assert [" ".join(words(line)) for line in picture] == ["llama_cpp building 1m 05s build | Compile: 120 of 222"]
    assert words(screen(ApplyComplete("llama_cpp", "build", 66.0))[0]) == ["llama_cpp", "building", "done", "1m", "06s"]


def test_the_stream_has_a_count_now_and_then(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    console = Console({}, clock)
    console.configure(verb="up", json=True, no_color=True, verbose=False)
    console.emit(ApplyStart("llama_cpp", "build"))
    console.emit(ApplyProgress("llama_cpp", "build | Compile"))
    for second in range(1, 3600):
        clock.now = float(second)
        console.emit(counted(second))
        console.emit(ApplyProgress("llama_cpp", ""))
    console.emit(ApplyProgress("llama_cpp", "build | Install"))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    told = [one for one in lines if one["type"] == "apply_progress"]
    assert [one["message"] for one in told[:3]] == ["build | Compile", counted(10).message, counted(20).message]
    assert told[-1]["message"] == "build | Install"
    assert len(told) == 2 + 359
    assert [one["goes_on"] for one in told[:2]] == [False, True]


@pytest.mark.parametrize(("form", "is_told"), [("json", True), ("verbose", True), ("plain", False)])
def test_a_detail_is_for_people_who_ask_for_more_and_always_in_the_stream(
    capsys: pytest.CaptureFixture[str], form: str, is_told: bool
) -> None:
    console = Console({})
    console.configure(verb="up", json=form == "json", no_color=True, verbose=form == "verbose")
    console.emit(Diagnostic("detail", "The module server ran 3 modules"))
    said = "".join(capsys.readouterr())
    assert ('"severity": "detail"' in said, "ran 3 modules" in said) == (form == "json", is_told)


def test_each_target_has_its_own_pace(clock: Clock) -> None:
    pace = Pace(clock)
    assert pace.is_due(counted(1))
    assert not pace.is_due(counted(2))
    assert pace.is_due(ApplyProgress("model-tiny", "1 of 2 GB have come", goes_on=True))
    assert pace.is_due(ApplyProgress("llama_cpp", "build | Install"))


def test_what_waits_for_others_is_silent(plain: PlainProgress, clock: Clock, said: list[str]) -> None:
    plain.handle(ApplyStart("llama", "configure"))
    plain.handle(ApplyProgress("llama", "install"))
    plain.handle(ApplyProgress("llama", ""))
    for clock.now in (3.0, HEARTBEAT_S + 3, 2 * HEARTBEAT_S + 6):
        plain.tick()
    assert said == ["llama: configuring"]
