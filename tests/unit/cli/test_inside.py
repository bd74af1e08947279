"""``exec`` and ``logs`` on a host in memory: which container, which command, which words when it cannot be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from provisioner.cli.exec import LOGIN_SHELL
from provisioner.hosts.fake import Container
from provisioner.values.state import Execution, Instance, InstanceKind
from tests.processes import killed_at_end
from tests.snapshots import case_name
from tests.unit.cli.conftest import ENGINE_KEY, World

JOURNAL = "2026-11-20T12:00:00+0000 box unit[7]: "

OF_THE_SWITCH = ("switch-llama-server.service", "switch-llama-server-keeper.service")


class Programs:
    """What was run in the containers, and what ``journalctl`` gives there."""

    def __init__(self, world: World) -> None:
        self.ran: list[tuple[str, tuple[str, ...], Mapping[str, str]]] = []
        self.journal: dict[str, Execution] = {}
        for name in ("show", "runuser", "/bin/sh", "journalctl"):
            world.host.programs[name] = self._run

    def _run(
        self, container: Container, command: Sequence[str], stdin: bytes, environment: Mapping[str, str]
    ) -> Execution:
        self.ran.append((container.instance.name, tuple(command), environment))
        if command[0] == "journalctl":
            name = container.instance.name
            return self.journal.get(name, Execution(0, f"{JOURNAL}{name} {ENGINE_KEY}\n".encode(), b""))
        return Execution(7, b"out\n" + stdin, b"err\n")


@pytest.fixture
def programs(world: World) -> Programs:
    return Programs(world)


def start(world: World, name: str, **attributes: Any) -> None:
    """A container of the lab that runs."""
    made = world.host.create(Instance(name, "box", "homelab", "debian/12", **attributes))
    world.host.start(made)
    world.host.wait_until_ready(made)


def test_exec_gives_the_commands_own_streams_and_exit_code(
    world: World, programs: Programs, capfd: pytest.CaptureFixture[str]
) -> None:
    start(world, "llama")
    answer = world.command("exec", "homelab.yml", "llama", "--", "show", "-f", "other.yml", "--json")
    assert answer.code == 7
    assert capfd.readouterr() == ("out\n", "err\n")
    assert (answer.out, answer.err) == ("", "")
    assert programs.ran == [("llama", ("show", "-f", "other.yml", "--json"), {})]


def test_exec_without_a_command_is_a_login_shell(world: World, programs: Programs) -> None:
    start(world, "llama")
    world.command("exec", "llama")
    assert programs.ran[0][1] == LOGIN_SHELL


def test_exec_as_another_user_in_another_folder_with_variables(world: World, programs: Programs) -> None:
    start(world, "llama")
    world.command("exec", "-u", "penny", "-w", "/srv/a b", "-e", "A=1=2", "-e", "B=", "llama", "--", "show", "$HOME")
    name, command, environment = programs.ran[0]
    assert name == "llama"
    assert command[:4] == ("runuser", "-u", "penny", "--")
    assert command[-3:] == ("/srv/a b", "show", "$HOME")
    assert environment == {"A": "1=2", "B": ""}


def test_the_dressing_keeps_every_word_apart(tmp_path: Path) -> None:
    from provisioner.cli.exec import _dressed

    folder = tmp_path / "-a 'b"
    folder.mkdir()
    command = _dressed(
        (sys.executable, "-c", "import os, sys; print(os.getcwd(), sys.argv[1:])", "$X; x"), None, str(folder)
    )
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert said == f"{folder} ['$X; x']\n"


@pytest.mark.parametrize(
    "line",
    [
        *("exec", "exec llama gateway", "exec llama -e 1=2 -- show", "exec lama -- show"),
        *("logs lama", "logs llama/litellm", "logs -n many", "logs --run llama"),
    ],
    ids=case_name,
)
def test_wrong_usage_says_what_would_be_right(world: World, programs: Programs, line: str) -> None:
    start(world, "llama")
    start(world, "old")
    start(world, "provision-build-1", kind=InstanceKind.BUILDER)
    assert world.command(*line.split()).ended(64) == world.snapshot
    assert programs.ran == []


@pytest.mark.parametrize("verb", ["exec", "logs"])
def test_a_container_that_does_not_run_says_what_to_do(world: World, verb: str) -> None:
    assert world.command(verb, "llama").ended(4) == world.snapshot
    world.host.create(Instance("llama", "box", "homelab", "debian/12"))
    assert world.command(verb, "llama").printed == world.snapshot
    world.host.create(Instance("old", "box", "homelab", "debian/12"))
    assert world.command(verb, "old").printed == world.snapshot


@pytest.mark.parametrize(("kind", "command"), [("incus", "incus start old"), ("proxmox", "pct start 117")])
def test_a_container_that_is_not_in_the_file_is_started_by_its_own_hosts_program(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str, command: str
) -> None:
    world.host.create(Instance("old", "box", "homelab", "debian/12", settings={"vmid": 117}))
    monkeypatch.setattr(world.host, "kind", kind)
    assert world.command("exec", "old").printed.strip().endswith(f"on host box: {command}")


def test_a_strangers_container_is_not_of_the_lab(world: World, programs: Programs) -> None:
    made = world.host.create(Instance("theirs", "box", "another", "debian/12"))
    world.host.start(made)
    assert world.command("exec", "theirs", "--", "show").code == 64
    assert world.command("exec", "theirs", "--json", "--", "show").code == 64
    assert programs.ran == []


def test_logs_prefix_every_line_and_mask_secrets(world: World, programs: Programs) -> None:
    start(world, "llama")
    start(world, "gateway")
    programs.journal["gateway"] = Execution(0, b"one\n\033[31mtwo\033[0m \033[2J\n", b"")
    answer = world.done("logs")
    assert answer.out.splitlines() == [
        f"llama/llama_cpp | {JOURNAL}llama ********",
        "gateway/litellm | one",
        "gateway/litellm | two \\x1b[2J",
    ]
    units = [[word for word in one[1] if word.startswith("--unit=")] for one in sorted(programs.ran)]
    assert units == [
        ["--unit=litellm.service", "--unit=switch-litellm.service"],
        [f"--unit={unit}" for unit in ("llama-server.service", *OF_THE_SWITCH)],
    ]


def test_logs_have_colours_by_address_on_a_terminal(world: World, programs: Programs) -> None:
    start(world, "llama")
    start(world, "gateway")
    assert programs.ran == []
    lines = world.command("logs", on_terminal=True).out.splitlines()
    colours = {line.partition("m")[0] for line in lines}
    assert len(colours) == 2
    assert all(line.startswith("\033[") for line in lines)


def test_logs_as_json_have_a_line_for_each_entry(world: World, programs: Programs) -> None:
    start(world, "llama")
    programs.journal["llama"] = Execution(0, f'a "{ENGINE_KEY}"\nb\n'.encode(), b"")
    answer = world.command("logs", "--json", "llama/llama_cpp")
    assert [(line["target"], line["line"]) for line in answer.of("log")] == [
        ("llama/llama_cpp", 'a "********"'),
        ("llama/llama_cpp", "b"),
    ]
    assert answer.of("summary")[0]["exit_code"] == 0


def test_a_stopped_container_that_nobody_named_is_told_and_passed_by(world: World, programs: Programs) -> None:
    start(world, "llama")
    assert world.command("logs").ended(0) == world.snapshot
    assert [one[0] for one in programs.ran] == ["llama"]


@pytest.mark.parametrize(
    ("arguments", "choice"),
    [
        ((), ("--lines=100",)),
        (("-n", "5"), ("--lines=5",)),
        (("--since", "10m"), ("--lines=all", "--since=-10m")),
        (("--since", "1 hour ago", "--tail", "3"), ("--lines=3", "--since=1 hour ago")),
    ],
)
def test_logs_ask_for_what_was_chosen(
    world: World, programs: Programs, arguments: tuple[str, ...], choice: tuple[str, ...]
) -> None:
    start(world, "llama")
    assert world.command("logs", "llama", *arguments).code == 0
    assert programs.ran[0][1][4:-3] == choice


def test_an_orphan_has_its_whole_journal(world: World, programs: Programs) -> None:
    start(world, "old")
    assert world.command("logs", "old").printed == world.snapshot
    assert not any(word.startswith("--unit") for word in programs.ran[0][1])


def test_a_journal_that_cannot_be_read_is_an_error_with_its_words(world: World, programs: Programs) -> None:
    start(world, "llama")
    programs.journal["llama"] = Execution(1, b"", b"Failed to parse timestamp: x\n")
    assert world.command("logs", "llama", "--since", "x").ended(1) == world.snapshot


@pytest.mark.parametrize("word", ["-f", "--follow"])
def test_following_merges_all_and_says_when_one_ends(world: World, programs: Programs, word: str) -> None:
    start(world, "llama")
    start(world, "gateway")
    programs.journal["gateway"] = Execution(0, b"one\ntwo without an end", b"")
    answer = world.done("logs", word, "homelab.yml")
    assert sorted(answer.out.splitlines()) == [
        "gateway/litellm | one",
        "gateway/litellm | two without an end",
        f"llama/llama_cpp | {JOURNAL}llama ********",
    ]
    assert "The log of llama/llama_cpp has ended" in answer.err
    assert all("--follow" in one[1] for one in programs.ran)


def test_following_ends_at_ctrl_c_with_130_and_without_a_word(world: World, programs: Programs) -> None:
    start(world, "llama")
    assert programs.journal == {}

    def interrupt(
        _container: Container, _command: Sequence[str], _stdin: bytes, _environment: Mapping[str, str]
    ) -> Execution:
        os.kill(os.getpid(), signal.SIGINT)
        return Execution(0, b"", b"")

    world.host.programs["journalctl"] = interrupt
    heard = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        answer = world.command("logs", "-f", "llama")
    finally:
        signal.signal(signal.SIGINT, heard)
    assert answer.code == 130
    assert "Interrupted" not in answer.err


def test_the_log_of_the_newest_run_is_printed(world: World, lab: Path) -> None:
    assert world.command("logs", "--run").ended(4) == world.snapshot
    folder = lab.parent / ".provision" / "logs"
    folder.mkdir(parents=True)
    for number, name in enumerate(("b-site.log", "a-verify.log")):
        (folder / name).write_text(f"TASK {name} {ENGINE_KEY}\n\nok\n")
        os.utime(folder / name, (number, number))
    assert world.command("logs", "--run").out.splitlines() == ["TASK a-verify.log ********", " ", "ok"]
    assert [line["line"] for line in world.command("logs", "--run", "--json").of("log")][-1] == "ok"


def test_the_log_of_a_run_is_printed_without_colours(world: World, lab: Path) -> None:
    folder = lab.parent / ".provision" / "logs"
    folder.mkdir(parents=True)
    text = "\x1b[0;31mfatal: [llama]: FAILED!\x1b[0m\n\x1b[1;35m\x1b[K[WARNING]\x1b[?25l: x\x1b]0;title\x07\n"
    (folder / "a-site.log").write_text(text, encoding="utf-8")
    assert world.command("logs", "--run").out.splitlines() == ["fatal: [llama]: FAILED!", "[WARNING]: x"]
    lines = [line["line"] for line in world.command("logs", "--run", "--json").of("log")]
    assert lines == ["fatal: [llama]: FAILED!", "[WARNING]: x"]


def test_following_hears_at_once_that_nobody_reads_any_more() -> None:
    reading, writing = os.pipe()
    program = (
        "import os, selectors, sys\n"
        "from provisioner.cli.logs import _own_output\n"
        "with _own_output() as (copy,), selectors.DefaultSelector() as selector:\n"
        "    selector.register(copy, selectors.EVENT_READ)\n"
        "    os.write(1, b'%d' % len(selector.select(0)))\n"
        "    sys.exit(0 if selector.select(20) else 1)\n"
    )
    with killed_at_end(subprocess.Popen((sys.executable, "-c", program), stdout=writing)) as process:
        os.close(writing)
        assert os.read(reading, 1) == b"0"
        os.close(reading)
        assert process.wait(30) == 0
