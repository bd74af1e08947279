"""A container's block of a lab's file: copied, and taken out, with every other byte as it was."""

from __future__ import annotations

import pytest

from provisioner.labfile.document import parse_document
from provisioner.labfile.editing import EditError, Setting, with_copy, without_container
from tests.case_files import read_cases

CASES = read_cases("container_blocks")

LAB: str = CASES["lab"]
STREAMING = ("services", "kokoro", "streaming")
COPY_OF = Setting(("copy_of",), "voice")


def said(text: str) -> dict[str, object]:
    found = parse_document(text.encode()).data["containers"]
    assert isinstance(found, dict)
    return found


def test_a_copy_stands_behind_its_original_with_its_comments_and_nothing_else_changes() -> None:
    text = with_copy(LAB, "voice", "trial", [Setting(STREAMING, "off"), COPY_OF])
    block = """\
  trial: # in the kitchen
    copy_of: voice
    host: box
    services:
      kokoro: # by upstream
        streaming: off   # as people hear it
        expose: lan
"""
    before, behind = LAB.split("    # the end of voice")
    assert text == f"{before}{block}    # the end of voice{behind}"


@pytest.mark.parametrize("source", ["voice", "flow", "none", "bare"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_what_was_copied_can_be_taken_out_again(source: str, line_end: str, mark: str) -> None:
    lab = mark + LAB.replace("\n", line_end)
    text = with_copy(lab, source, "trial", [Setting(STREAMING, "off"), Setting(("cpu",), "2"), COPY_OF])
    (trial,) = [said(text)[name] for name in said(text) if name not in said(lab)]
    assert isinstance(trial, dict)
    assert (trial["services"]["kokoro"]["streaming"], trial["cpu"], trial["copy_of"]) == ("off", 2, "voice")
    assert without_container(text, "trial") == lab


def test_a_file_that_does_not_end_its_last_line_gets_a_whole_block() -> None:
    text = with_copy("containers:\n  a: {cpu: 1}", "a", "007", [Setting(("cpu",), "2")])
    assert text == 'containers:\n  a: {cpu: 1}\n  "007": {cpu: 2}'


def test_containers_between_braces_get_one_more_that_nobody_can_take_out() -> None:
    text = with_copy("containers: { a: { cpu: 1 } } # all\n", "a", "b", [Setting(("memory",), "1GiB")])
    assert text == "containers: { a: { cpu: 1 }, b: { memory: 1GiB, cpu: 1 } } # all\n"
    with pytest.raises(EditError, match="in one line with others"):
        without_container(text, "b")


@pytest.mark.parametrize(("text", "path", "value", "words"), CASES["what would change more is refused"])
def test_what_would_change_more_is_refused(text: str, path: tuple[str, ...], value: str, words: str) -> None:
    with pytest.raises(EditError, match=words):
        with_copy(text, "a", "copy", [Setting(path, value)])


def test_the_only_container_stays() -> None:
    with pytest.raises(EditError, match="only container"):
        without_container("containers:\n  a: {}\n", "a")
