"""The manual page and the files of shells: what the command line says, in a form that ``man`` and shells take."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from provisioner import generate
from provisioner.cli.app import VERBS, app
from provisioner.generate import installed_files, manual_page, roff
from provisioner.values.errors import ExitCode
from tests.processes import killed_at_end

ROOT = Path(__file__).resolve().parents[2]
PAGE = manual_page(app)
BASH = ROOT / "docs/share/bash-completion/completions/provision"
TIMEOUT_S = 60


def shown(text: str) -> str:
    """A page without what only the language of ``man`` needs."""
    for written, letter in ((r"\-", "-"), (r"\(aq", "'"), (r"\(dq", '"'), (r"\&", "")):
        text = text.replace(written, letter)
    return text


def verbs(group: click.Group, parent: click.Context) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(parent):
        command = group.get_command(parent, name)
        assert command is not None
        context = click.Context(command, parent=parent, info_name=name)
        yield context.command_path, command
        if isinstance(command, click.Group):
            yield from verbs(command, context)


ALL = dict(verbs(app, click.Context(app, info_name="provision")))


def test_what_lies_in_the_checkout_is_what_the_command_line_says() -> None:
    there = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs/share").rglob("*") if path.is_file()}
    assert there == {str(path) for path in installed_files()}
    stale = generate.stale_files({ROOT / "docs" / path: text for path, text in installed_files().items()})
    assert stale == {}, "run make generate"


def test_the_wheel_takes_that_folder() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    targets = project["tool"]["hatch"]["build"]["targets"]
    assert targets["wheel"]["shared-data"] == {"docs/share": "share"}
    assert "docs/share" in targets["sdist"]["only-include"]


@pytest.mark.parametrize("path", ALL)
def test_each_verb_is_on_the_page_with_all_of_its_options(path: str) -> None:
    heads = re.split(r'^\.S[SH] "?', shown(PAGE), flags=re.MULTILINE)
    (part,) = [one for one in heads if re.match(rf'{re.escape(path)}(?= [^a-z]|")', one)]
    own = {name for one in ALL[path].params if isinstance(one, click.Option) and not one.hidden for name in one.opts}
    names = set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", "\n".join(re.findall(r"^\.B (.*)$", part, re.MULTILINE))))
    assert own - names <= {"--json", "--no-color", "-v", "--verbose"}


def test_it_knows_nested_verbs_and_those_that_are_loaded_late() -> None:
    assert set(VERBS) <= {path.split()[1] for path in ALL}
    assert {"provision cluster rejoin", "provision host prepare"} <= ALL.keys()


def test_a_new_option_changes_the_page() -> None:
    @click.group()
    def program() -> None:
        """A program."""

    @program.command("validate")
    @click.option("--new-one", is_flag=True, help="It's new: 5 % \\ more.")
    def validate() -> None:
        """.Begins with a dot."""

    page = manual_page(program)
    assert "\\-\\-new\\-one\nIt\\(aqs new: 5 % \\e more.\n" in page
    assert "\n\\&.Begins with a dot.\n" in page


def test_every_exit_code_is_said() -> None:
    part = PAGE.partition(".SH EXIT STATUS\n")[2].partition(".SH ")[0]
    assert re.findall(r"^\.B (\d+)$", part, re.MULTILINE) == [str(int(code)) for code in ExitCode]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("a-b", r"a\-b"), (".x", r"\&.x"), ("'x", r"\(aqx"), ("\\n", r"\en"), ("…", r"\[u2026]"), ("a\n .b", "a .b")],
)
def test_nothing_in_a_text_is_a_request(text: str, wanted: str) -> None:
    assert roff(text) == wanted


def test_it_is_the_same_for_everybody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PROVISION_FILE", "other.yml")
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.chdir(tmp_path)
    assert manual_page(app) == PAGE


def warnings_of(page: Path) -> str:
    command = ("man", "--warnings", "--local-file", str(page))
    environment = os.environ | {"MANPAGER": "cat", "PAGER": "cat", "MANWIDTH": "80", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=TIMEOUT_S)
    assert "PROVISION(1)" in done.stdout
    return done.stderr


@pytest.mark.skipif(not (shutil.which("man") and shutil.which("groff")), reason="man-db or groff is not there")
def test_man_shows_it_without_a_warning(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.1"
    wrong.write_text(PAGE + ".nosuchrequest\n", encoding="utf-8")
    assert "nosuchrequest" in warnings_of(wrong)
    assert warnings_of(ROOT / "docs/share/man/man1/provision.1") == ""


@pytest.mark.skipif(not shutil.which("mandoc"), reason="mandoc is not there")
def test_mandoc_finds_nothing_wrong() -> None:
    page = ROOT / "docs/share/man/man1/provision.1"
    command = ("mandoc", "-T", "lint", "-W", "error", str(page))
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout


@pytest.fixture
def path_with_provision(tmp_path: Path) -> str:
    """A PATH whose ``provision`` is this checkout's, run by this Python."""
    program = tmp_path / "bin/provision"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m provisioner "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return f"{program.parent}:/usr/bin:/bin"


def until(terminal: int, wanted: str) -> str:
    """What a terminal shows, once ``wanted`` is in it; a failed assertion where it never comes."""
    said, end = b"", time.monotonic() + TIMEOUT_S
    while wanted.encode() not in said and (rest := end - time.monotonic()) > 0:
        if select.select([terminal], [], [], rest)[0]:
            said += os.read(terminal, 4096)
    text = said.decode(errors="replace")
    assert wanted in text
    return text


@pytest.mark.skipif(not shutil.which("bash"), reason="bash is not there")
def test_bash_completes_a_verb_at_the_tab_key(path_with_provision: str, tmp_path: Path) -> None:
    controller, terminal = pty.openpty()
    environment = os.environ | {"PATH": path_with_provision, "TERM": "dumb", "PS1": "", "HOME": str(tmp_path)}
    command = ("bash", "--norc", "--noprofile", "-i")
    with killed_at_end(
        subprocess.Popen(
            command,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            cwd=tmp_path,
            env=environment,
            start_new_session=True,
        )
    ):
        os.close(terminal)
        try:
            os.write(controller, f"bind 'set bell-style none'; . {BASH}; echo rea''dy\n".encode())
            until(controller, "\nready")
            os.write(controller, b"provision pl\t")
            assert "provision plan " in until(controller, "plan ")
        finally:
            os.close(controller)


@pytest.mark.skipif(not shutil.which("bash"), reason="bash is not there")
def test_without_the_program_the_file_of_bash_says_nothing(tmp_path: Path) -> None:
    command = (shutil.which("bash") or "bash", "--norc", "--noprofile", "-c", f". {BASH}")
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": str(tmp_path)}, timeout=60)
    assert done.stdout + done.stderr == ""


@pytest.mark.parametrize(
    ("shell", "name", "options"),
    [("zsh", "zsh/site-functions/_provision", ("-n",)), ("fish", "fish/vendor_completions.d/provision.fish", ("-n",))],
)
def test_other_shells_take_their_file(shell: str, name: str, options: tuple[str, ...]) -> None:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not there")
    command = (shell, *options, str(ROOT / "docs/share" / name))
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_file_asks_for_what_its_shell_is_given(shell: str) -> None:
    (text,) = [one for path, one in installed_files().items() if path.parts[1].startswith(shell)]
    assert f"_PROVISION_COMPLETE={shell}_source provision" in text
    environment = os.environ | {"_PROVISION_COMPLETE": f"{shell}_source"}
    command = (sys.executable, "-m", "provisioner")
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=TIMEOUT_S)
    assert "_provision_completion" in done.stdout
