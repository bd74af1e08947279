"""How the page that leads through all measuring is made: its commands stay, what they printed is written anew."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks import one_lab, small_models
from benchmarks.labs import Labs
from provisioner.models.gguf import read_header
from tests import documented
from tests.case_files import read_cases

CASES = read_cases("one_lab")

PAGE: str = CASES["page"]


def test_only_what_is_under_commands_changes() -> None:
    said = []

    def run(command: str) -> str:
        said.append(command)
        return f"<{command}>\n"

    written = one_lab.rewritten(PAGE, run)
    assert said == ["echo one", "echo two", "cat homelab.yml"]
    assert "older" not in written
    assert "$ echo one\n<echo one>\n$ echo two\n<echo two>\n```" in written
    assert "```sh\necho three\n```" in written
    assert one_lab.rewritten(written, run) == written


def test_a_command_that_prints_no_last_newline_does_not_end_the_block() -> None:
    written = one_lab.rewritten(PAGE, lambda _command: "no newline")
    assert written.count("```") == PAGE.count("```")
    assert "no newline\n$ echo two\nno newline\n```" in written


def test_of_a_long_output_its_end_is_shown() -> None:
    lines = [f"line {number}\n" for number in range(one_lab.MOST_LINES + 1)]
    assert one_lab.shortened("".join(lines[:-1])) == "".join(lines[:-1])
    assert one_lab.shortened("".join(lines)) == "…\n" + "".join(lines[-one_lab.LAST_LINES :])


def test_the_lab_is_that_of_the_page() -> None:
    assert one_lab.lab_of(PAGE) == "name: small\ncontainers: {}\n"
    with pytest.raises(LookupError):
        one_lab.lab_of("# Nothing")


def test_the_page_is_left_as_it_is_where_a_command_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.replace("cat homelab.yml", "false"), encoding="utf-8")
    ended: list[Path] = []

    def prepare(folder: Path, text: str) -> None:
        (folder / "homelab.yml").write_text(one_lab.lab_of(text), encoding="utf-8")

    monkeypatch.setattr(one_lab, "PAGE", page)
    monkeypatch.setattr(one_lab, "prepare", prepare)
    monkeypatch.setattr(one_lab, "destroy", ended.append)
    with pytest.raises(one_lab.CommandFailedError, match="false: 1"):
        one_lab.rows(Labs(), 1)
    assert page.read_text(encoding="utf-8") == PAGE.replace("cat homelab.yml", "false")
    assert len(ended) == 1, "the lab is destroyed all the same"


def test_the_folder_of_the_run_stands_on_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.replace("cat homelab.yml", "pwd"), encoding="utf-8")
    monkeypatch.setattr(one_lab, "PAGE", page)
    monkeypatch.setattr(one_lab, "prepare", lambda _folder, _text: None)
    monkeypatch.setattr(one_lab, "destroy", lambda _folder: None)
    monkeypatch.setattr(one_lab, "_take_picture", lambda _folder: None)
    rows = one_lab.rows(Labs(), 1)
    assert f"$ pwd\n{one_lab.SHOWN_FOLDER}\n" in page.read_text(encoding="utf-8")
    assert [row.what for row in rows] == ["one lab: echo one", "one lab: echo two", "one lab: pwd"]


def test_the_real_page_asks_every_question_about_measuring() -> None:
    page = one_lab.PAGE.read_text(encoding="utf-8")
    asked = [command.line.split() for command in one_lab.commands_of(page)]
    assert {words[1] for words in asked} >= {"suggest", "fit", "probe", "bench", "top", "report"}
    kinds = {words[words.index("--kind") + 1] for words in asked if "--kind" in words}
    assert kinds == {"engine", "llm", "load", "quality"}
    for command in one_lab.commands_of(page):
        assert command.output.strip(), f"{command.line} was never run"
        assert list(documented.wrong_lines(command.line)) == []
    assert one_lab.LAB_PAGE in page
    assert one_lab.PICTURE.is_file()


def test_the_models_are_whole_and_the_same_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, smaller in {"LAYERS": 1, "TOKENS": 4096}.items():
        monkeypatch.setattr(small_models, name, smaller)
    first = small_models.write_models(tmp_path / "a")
    second = small_models.write_models(tmp_path / "b")
    sizes = []
    for kind, file in first.items():
        assert file.read_bytes() == second[kind].read_bytes()
        header = read_header(file)
        assert header.values["llama.context_length"] == small_models.CONTEXT
        assert header.tokens == small_models.TOKENS
        sizes.append(file.stat().st_size)
    assert sizes == sorted(sizes, reverse=True)


def test_ran_says_what_a_command_that_failed_has_said(tmp_path: Path) -> None:
    with pytest.raises(one_lab.CommandFailedError, match="out\nerr"):
        one_lab.ran("echo out; echo err >&2; exit 3", tmp_path)
    with pytest.raises(subprocess.TimeoutExpired):
        one_lab.ran("sleep 30", tmp_path, timeout_s=0.2)
