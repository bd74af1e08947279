"""A number written into a lab's file: nothing else of it changes, and what cannot be done so is refused."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from provisioner.labfile.editing import EditError, with_number, write_number
from provisioner.values.errors import InputError
from tests.case_files import read_cases

CASES = read_cases("editing")

PLACE = ("containers", "llama", "services", "llama_cpp", "context")
FLOW = "containers:\n  llama: { services: { llama_cpp: { model: tiny } } } # ours\n"
BLOCK: str = CASES["block"]


FLOW_AFTER = FLOW.replace("{ model", "{ context: 4096, model")
BLOCK_AFTER = BLOCK.replace("        model", "        context: 4096\n        model")
QUOTED = ("llama:", '"llama":', 1)
WIDE = ("ours", "\u00fc\U0001f600")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (FLOW, FLOW_AFTER),
        (FLOW.replace("tiny", "tiny, context: 512"), FLOW.replace("tiny", "tiny, context: 4096")),
        (BLOCK, BLOCK_AFTER),
        (BLOCK + '        context: "0" # all\n', BLOCK + "        context: 4096 # all\n"),
        (BLOCK.replace("\n", "\r\n"), BLOCK_AFTER.replace("\n", "\r\n")),
        ("\ufeff" + FLOW, "\ufeff" + FLOW_AFTER),
        (FLOW.replace(*WIDE), FLOW_AFTER.replace(*WIDE)),
        (BLOCK.replace(*QUOTED), BLOCK_AFTER.replace(*QUOTED)),
    ],
    ids=["flow", "flow there", "block", "block there", "windows", "mark", "wide", "quoted"],
)
def test_nothing_but_the_number_changes(before: str, after: str) -> None:
    assert with_number(before, PLACE, 4096) == after
    assert with_number(after, PLACE, 4096) == after


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (FLOW.replace("llama_cpp", "vllm"), "llama_cpp is not written there"),
        (FLOW.replace("{ model: tiny }", "{}"), "nothing stands there yet"),
        (FLOW.replace("{ model: tiny }", ""), "no options stand there"),
        (FLOW.replace("tiny", "tiny, context: [1]"), "what stands there is no number"),
        (
            "containers:\n  other: &one { services: { llama_cpp: { model: tiny } } }\n  llama: *one\n",
            "something else of the file would change with it",
        ),
        (
            "upstreams: { one: &n 512 }\n" + FLOW.replace("tiny", "tiny, context: *n"),
            "something else of the file would change with it",
        ),
        (
            "x: &one { llama_cpp: { model: tiny } }\ncontainers:\n  llama: { services: { <<: *one } }\n",
            "llama_cpp is not written there",
        ),
    ],
)
def test_what_cannot_be_changed_alone_is_refused(text: str, words: str) -> None:
    with pytest.raises(EditError, match=words):
        with_number(text, PLACE, 4096)


def test_the_file_keeps_who_may_read_it_and_what_points_at_it(tmp_path: Path) -> None:
    real, link = tmp_path / "real.yml", tmp_path / "homelab.yml"
    real.write_text(FLOW)
    real.chmod(0o640)
    link.symlink_to(real)
    assert write_number(link, PLACE, 4096)
    assert not write_number(link, PLACE, 4096)
    assert "context: 4096" in real.read_text()
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert sorted(one.name for one in tmp_path.iterdir()) == ["homelab.yml", "real.yml"]


def test_a_file_that_cannot_be_changed_is_as_it_was_and_the_line_is_told(tmp_path: Path) -> None:
    file = tmp_path / "homelab.yml"
    file.write_text(FLOW.replace("llama_cpp", "vllm"))
    with pytest.raises(InputError) as told:
        write_number(file, PLACE, 4096)
    assert "containers.llama.services.llama_cpp.context" in str(told.value)
    assert told.value.resolution == "Write it yourself: context: 4096"
    assert file.read_text() == FLOW.replace("llama_cpp", "vllm")
