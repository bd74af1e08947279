"""``provision cuda``: what it says, what it does, and its exit codes; no file and no lab are needed."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from provisioner.cli.app import run
from provisioner.cuda.headers import examine
from tests.case_files import read_cases
from tests.unit.cuda.synthetic import made, texts, write_toolkit
from tests.unit.cuda.test_headers import blog_edit

CASES = read_cases("cuda/verbs")


@dataclass
class Cuda:
    """Toolkits in a folder, and the command."""

    folder: Path
    capture: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output and error of ``provision cuda ARGUMENTS``."""
        code = run(["cuda", *arguments])
        out, err = self.capture.readouterr()
        return code, out, err

    def result(self, *arguments: str) -> dict[str, Any]:
        """The one line that answers, between the version and the summary."""
        code, out, _ = self(*arguments, "--json")
        lines = [json.loads(line) for line in out.splitlines()]
        assert [lines[0]["type"], lines[-1]["type"]] == ["version", "summary"]
        assert lines[-1]["exit_code"] == code
        (line,) = [one for one in lines if one["type"] == "result"]
        return dict(line)


@pytest.fixture
def cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cuda:
    """A toolkit 13.0 as ``old`` and a toolkit 13.2 as ``new`` on a machine with glibc 2.43."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.confstr", lambda _name: "glibc 2.43")
    write_toolkit(tmp_path / "old", "13.0")
    write_toolkit(tmp_path / "new", "13.2")
    return Cuda(tmp_path, capsys)


EDITED = blog_edit(made("13.0"))
STORIES: dict[str, tuple[tuple[int, str], ...]] = CASES["stories"]  # fmt: skip


@pytest.mark.parametrize("steps", STORIES.values(), ids=STORIES)
def test_what_is_said_and_done(cuda: Cuda, steps: tuple[tuple[int, str], ...], snapshot: SnapshotAssertion) -> None:
    folders = [cuda.folder / "old/include", write_toolkit(cuda.folder / "edited", headers=EDITED)]
    said = []
    for code, words in steps:
        answer, out, err = cuda(*words.split())
        assert answer == code, words
        said.append(f"$ provision cuda {words}\n{out}{err}")
    assert "\n".join(said) == snapshot
    assert [texts(folder) for folder in folders] == [made("13.0"), EDITED], "as they were before"
    assert (cuda.folder / "out").exists() == (steps is STORIES["overlay twice"])


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(("old",), 2), (("old", "--glibc", "2.41"), 0), (("old", "--glibc", "2.42"), 2), (("new",), 0)],
)
def test_a_pending_fix_is_an_exit_code_where_it_is_asked_for(cuda: Cuda, arguments: tuple[str, ...], code: int) -> None:
    assert cuda("check", *arguments, "--detailed-exitcode")[0] == code
    assert cuda("check", *arguments)[0] == 0


def test_json_has_the_same(cuda: Cuda) -> None:
    include = str(cuda.folder / "old/targets/x86_64-linux/include")
    seen = {"include": include, "toolkit": "13.0", "gcc_limit": 15, "glibc": "2.43", "edits": []}
    pending = {"state": "bare", "conflicts": ["rsqrt", "rsqrtf"], "pending": True}
    assert cuda.result("check", "old") == {"type": "result", **seen, **pending, "changed": []}
    overlaid = cuda.result("fix", "old", "--overlay", "out")
    assert overlaid["environment"] == f"NVCC_PREPEND_FLAGS=-I{cuda.folder}/out"
    assert overlaid["changed"] == ["out/bits/mathcalls.h"]
    fixed = cuda.result("fix", "old")
    assert fixed["changed"] == [f"{include}/crt/math_functions.h", f"{include}/crt/math_functions.hpp"]
    done = {"state": "fixed", "conflicts": [], "pending": False}
    assert cuda.result("check", "old") == {"type": "result", **seen, **done, "changed": []}


def test_a_hand_edit_after_the_fix_is_not_reverted(cuda: Cuda) -> None:
    cuda("fix", "old")
    declarations = cuda.folder / "old/include/crt/math_functions.h"
    text = declarations.read_text(encoding="latin-1")
    declarations.write_text(f"{text}/* mine */\n", encoding="latin-1")
    code, out, err = cuda("revert", "old")
    assert (code, out) == (4, "")
    assert "Unable to revert" in err


@pytest.mark.parametrize("links", [True, False], ids=["include is a link", "include is a copy"])
def test_every_folder_of_headers_is_fixed_and_named_and_put_back(cuda: Cuda, links: bool) -> None:
    root, plain = cuda.folder / "old", made("13.0")
    own = root / "targets/x86_64-linux/include"
    foreign = root / "targets/sbsa-linux/include"
    shutil.copytree(own, foreign)
    folders = [own, foreign]
    if not links:
        (root / "include").unlink()
        shutil.copytree(own, root / "include")
        folders = [root / "include", *folders]
    seen = cuda.result("check", "old")
    assert (seen["pending"], [one["include"] for one in seen["folders"]]) == (True, list(map(str, folders)))
    code, out, _ = cuda("fix", "old")
    assert code == 0
    assert all(str(folder / "crt/math_functions.h") in out for folder in folders)
    assert all(examine(texts(folder)).state == "fixed" for folder in folders)
    assert cuda.result("check", "old", "--detailed-exitcode")["pending"] is False
    cuda("revert", "old")
    assert all(texts(folder) == plain for folder in folders)


def test_one_folder_of_several_that_is_not_fixed_is_pending(cuda: Cuda) -> None:
    own = cuda.folder / "old/targets/x86_64-linux/include"
    cuda("fix", "old")
    write_toolkit(cuda.folder / "other", "13.0")
    shutil.copytree(cuda.folder / "other/include/", own.parents[1] / "sbsa-linux/include")
    assert cuda("check", "old", "--detailed-exitcode")[0] == 2
    assert cuda.result("fix", "old")["changed"] == [
        str(own.parents[1] / f"sbsa-linux/include/crt/math_functions.{ending}") for ending in ("h", "hpp")
    ]
    edited = blog_edit(made("13.0"))
    (own.parents[1] / "sbsa-linux/include/crt/math_functions.h").write_text(edited.declarations, encoding="latin-1")
    assert cuda("check", "old")[0] == 0


def test_one_folder_that_cannot_be_fixed_leaves_all_as_they_are(cuda: Cuda) -> None:
    own = cuda.folder / "old/targets/x86_64-linux/include"
    foreign = own.parents[1] / "sbsa-linux/include"
    shutil.copytree(own, foreign)
    (foreign / "crt/math_functions.h").write_text(blog_edit(made("13.0")).declarations, encoding="latin-1")
    half = examine(made("13.0")).mended.declarations
    (own / "crt/math_functions.h").write_text(half, encoding="latin-1")
    code, _, err = cuda("fix", "old", "--glibc", "2.36")
    assert (code, str(foreign) in err) == (4, True)
    assert texts(own).definitions == made("13.0").definitions


def test_an_interrupted_fix_is_completed_and_no_overlay_hides_it(cuda: Cuda) -> None:
    declarations = examine(made("13.0")).mended.declarations
    (cuda.folder / "old/include/crt/math_functions.h").write_text(declarations, encoding="latin-1")
    assert cuda("check", "old", "--glibc", "2.36", "--detailed-exitcode")[0] == 2
    code, _, err = cuda("fix", "old", "--overlay", "out")
    assert code == 4
    assert "provision cuda revert" in err
    assert cuda.result("fix", "old")["changed"] == [
        str(cuda.folder / "old/targets/x86_64-linux/include/crt/math_functions.hpp")
    ]
    assert cuda("check", "old", "--detailed-exitcode")[0] == 0


def test_without_glibc_its_version_has_to_be_given(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.confstr", lambda _name: None)
    code, _, err = cuda("fix", "old")
    assert code == 4
    assert "--glibc 2.42" in err
    assert cuda("check", "old", "--glibc", "2.43", "--detailed-exitcode")[0] == 2
