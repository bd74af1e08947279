"""What role ``kokoro`` does to a checkout: patches by syntax, undone to the byte, and a new one in its place."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from tests.processes import completed
from tests.scenario_programs import module_at

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = ROOT / "roles/kokoro/programs/patches.py"
STANDIN = ROOT / "molecule/kokoro/files"
BACKEND = "api/src/inference/kokoro_v1.py"
PLAYER = "web/src/services/AudioService.js"
IDENTITY = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")

GENERATE = """
class KokoroV1:
    async def generate_from_tokens(self, tokens):
        for result in pipeline.generate_from_tokens(tokens=tokens):
            yield result

    async def generate(self, text, voice_path, speed):
        # split_pattern=r"nothing" is only spoken of: pipeline(text)
        pipeline = self._get_pipeline("a")  # ü, which is two bytes
        for result in {call}:
            yield result
"""
OPEN_CALLS = {
    "as upstream writes it": "pipeline(\n            text, voice=path, speed=speed, model=self._model\n        )",
    "on one line": "pipeline(text, voice=voice_path)",
    "a comma at the end": "pipeline(\n    text,\n    voice=voice_path,  # ü\n    model=self._model,\n)",
    "a bracket in the last one": "pipeline(text, model=self.pick(1, (2)))",
    "only the text": 'pipeline("ü" + text)',
}
OTHER_CALLS = {
    "sentences": ('pipeline(text, split_pattern=r"(?<=[.!?])\\s+")', "fixed", ""),
    "other words for sentences": ('pipeline(text, split_pattern="[.] *")', "fixed", ""),
    "line ends": ("pipeline(text, split_pattern=r'\\n+')", "unknown", "leaves sentences together"),
    "no pattern": ('pipeline(text, split_pattern="(")', "unknown", "which is no pattern"),
    "computed": ("pipeline(text, split_pattern=PATTERN)", "unknown", "computed"),
    "unnamed": ("pipeline(text, **options)", "unknown", "not named"),
    "nothing": ("pipeline()", "unknown", "gives pipeline nothing"),
    "another name": ("self.pipe(text)", "unknown", "calls pipeline 0 times"),
    "twice": ("pipeline(*pipeline(text))", "unknown", "calls pipeline 2 times"),
    "no Python": ("pipeline(", "unknown", "is no Python"),
    "bytes of nothing": ("pipeline(text)\0", "unknown", "is no Python"),
}
OLD_PLAYER = (STANDIN / "older" / PLAYER).read_text(encoding="utf-8")
NEW_PLAYER = (STANDIN / "standin" / PLAYER).read_text(encoding="utf-8")
PLAYERS = {
    "new": (NEW_PLAYER, "fixed", ""),
    "old": (OLD_PLAYER, "open", ""),
    "reformatted": (
        OLD_PLAYER.replace(
            "(stream, response, onProgress, estimatedChunks) {",
            "(\n stream, response,\n onProgress, estimatedChunks )\n{",
        ).replace("'audio/mpeg');", '"audio/mpeg" );'),
        "open",
        "",
    ),
    "spoken of in a comment": (
        OLD_PLAYER.replace("new Audio()", "new Audio() /* x.isTypeSupported('audio/mpeg') */"),
        "open",
        "",
    ),
    "asked": (
        OLD_PLAYER.replace("this.audio = new Audio();", "if (!MediaSource.isTypeSupported( `audio/mpeg` )) return;"),
        "fixed",
        "",
    ),
    "no stream": ("export const play = 'https://x' // nothing\n", "fixed", ""),
    "other arguments": (OLD_PLAYER.replace("estimatedChunks", "chunks"), "unknown", "not known"),
    "two": (OLD_PLAYER.replace("new Audio();", "x.addSourceBuffer('audio/mpeg');"), "unknown", "not known"),
    "missing": ("", "unknown", "is missing"),
}


@pytest.fixture(scope="module")
def patches() -> ModuleType:
    """The program as a module."""
    return module_at(PROGRAM)


@pytest.mark.parametrize("call", OPEN_CALLS.values(), ids=OPEN_CALLS)
def test_a_pipeline_that_is_told_nothing_is_told_and_untold(patches: ModuleType, call: str) -> None:
    patch, source = patches.PATCHES["split"], GENERATE.replace("{call}", call).encode()
    assert patch.probe(source).state == "open"
    patched = patch.within(source)
    assert patch.probe(patched).state == "ours"
    assert patches.pipeline_calls(patches.ast.parse(patched))[0].keywords[-1].arg == "split_pattern"
    assert len(patched) == len(source) + len(patches.SENTENCES)
    assert patch.without(patched) == source


@pytest.mark.parametrize(("call", "state", "reason"), OTHER_CALLS.values(), ids=OTHER_CALLS)
def test_other_shapes_are_left_alone(patches: ModuleType, call: str, state: str, reason: str) -> None:
    patch, source = patches.PATCHES["split"], GENERATE.replace("{call}", call).encode()
    found = patch.probe(source)
    assert (found.state, reason in found.reason) == (state, True)
    with pytest.raises(ValueError, match=state):
        patch.within(source)


def test_a_method_of_another_class_is_not_meant(patches: ModuleType) -> None:
    source = GENERATE.replace("{call}", "pipeline(text)").replace("class KokoroV1", "class Other").encode()
    assert patches.split_probe(source).state == "unknown"
    assert patches.split_probe(b"").reason == f"{BACKEND} is missing"


@pytest.mark.parametrize(("text", "state", "reason"), PLAYERS.values(), ids=PLAYERS)
def test_the_player_is_judged_by_its_code(patches: ModuleType, text: str, state: str, reason: str) -> None:
    patch, source = patches.PATCHES["guard"], text.encode()
    found = patch.probe(source)
    assert (found.state, reason in found.reason) == (state, True)
    if state != "open":
        with pytest.raises(ValueError, match=state):
            patch.within(source)
        return
    patched = patch.within(source)
    assert patch.probe(patched).state == "ours"
    assert patch.without(patched) == source


def test_a_text_of_the_patch_that_does_not_become_ours_is_refused(patches: ModuleType) -> None:
    # The last argument ends inside of brackets of its own, so that the text would become a part of it.
    source = GENERATE.replace("{call}", "pipeline((text))").encode()
    patch = patches.PATCHES["split"]
    with pytest.raises(ValueError, match="does not become what is meant"):
        patch.within(source)


def git(folder: Path, *words: str) -> str:
    """What git says there."""
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True, timeout=60).stdout


def told(*words: str) -> Any:
    """What the program answers."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *words], capture_output=True, text=True, check=True, timeout=120
    )
    return json.loads(done.stdout)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of the stand-in as it was before the fixes."""
    for part in ("standin", "older"):
        subprocess.run(["cp", "-r", f"{STANDIN / part}/.", str(tmp_path)], check=True, timeout=60)
    (tmp_path / "api/src/voices/v1_0").mkdir(parents=True, exist_ok=True)
    (tmp_path / "api/src/voices/v1_0/af_sky.pt").write_bytes(b"")
    git(tmp_path, "init", "--quiet", "--template=")
    git(tmp_path, "add", "--all")
    git(tmp_path, *IDENTITY, "commit", "--quiet", "--message=older")
    return tmp_path


def test_a_checkout_is_patched_and_becomes_the_commit_again(checkout: Path) -> None:
    before = {name: (checkout / name).read_bytes() for name in (BACKEND, PLAYER)}
    seen = told("look", str(checkout))
    assert seen["commit"] == git(checkout, "rev-parse", "HEAD").strip()
    assert (seen["split"]["state"], seen["guard"]["state"], seen["foreign"]) == ("open", "open", [])
    assert seen["voices"] == ["af_sky"]
    assert "absolute_max_tokens" in seen["settings"]
    assert "target_max_tokens" not in seen["settings"]

    assert told("set", str(checkout), "split", "guard") == {"changed": True}
    assert told("set", str(checkout), "split", "guard") == {"changed": False}
    seen = told("look", str(checkout))
    assert (seen["split"]["state"], seen["guard"]["state"], seen["foreign"]) == ("ours", "ours", [])

    assert told("set", str(checkout)) == {"changed": True}
    assert {name: (checkout / name).read_bytes() for name in before} == before
    assert git(checkout, "status", "--porcelain") == ""


def test_what_somebody_else_changed_is_told(checkout: Path) -> None:
    told("set", str(checkout), "split")
    with (checkout / BACKEND).open("a", encoding="utf-8") as file:
        file.write("# mine\n")
    (checkout / "more.py").write_text("", encoding="utf-8")
    assert told("look", str(checkout))["foreign"] == [BACKEND, "more.py"]


def test_nothing_is_written_where_one_of_two_patches_cannot_be(checkout: Path) -> None:
    (checkout / PLAYER).write_text(OLD_PLAYER.replace("estimatedChunks", "chunks"), encoding="utf-8")
    before = (checkout / BACKEND).read_bytes()
    done = completed([sys.executable, str(PROGRAM), "set", str(checkout), "split", "guard"], timeout_s=120)
    assert done.returncode == 1
    assert "is unknown" in done.stderr
    assert (checkout / BACKEND).read_bytes() == before


def test_where_there_is_no_checkout_everything_is_empty(tmp_path: Path) -> None:
    seen = told("look", str(tmp_path / "none"))
    assert (seen["commit"], seen["voices"], seen["settings"], seen["foreign"]) == ("", [], [], [])


def damaged(checkout: Path, how: str) -> None:
    """What a machine leaves whose power went while a folder was removed or written."""
    if how == "no HEAD":
        (checkout / ".git/HEAD").unlink()
    elif how == "a cut index":
        index = checkout / ".git/index"
        index.write_bytes(index.read_bytes()[:5])
    else:
        shutil.rmtree(checkout / ".git")
        (checkout / ".git").mkdir()


@pytest.mark.parametrize("how", ["no HEAD", "a cut index", "an empty .git"])
def test_a_folder_that_git_refuses_is_no_checkout(checkout: Path, how: str) -> None:
    damaged(checkout, how)
    seen = told("look", str(checkout))
    assert (seen["commit"], seen["foreign"], seen["voices"]) == ("", [], ["af_sky"])


@pytest.mark.parametrize("content", [b"class Settings(", b"\0" * 100, b"\xff"], ids=["half", "nothing", "no text"])
def test_a_damaged_file_is_told_as_one_that_differs(checkout: Path, content: bytes) -> None:
    files = ["api/src/core/config.py", BACKEND, PLAYER]
    for name in files:
        (checkout / name).write_bytes(content)
    seen = told("look", str(checkout))
    assert seen["commit"] == git(checkout, "rev-parse", "HEAD").strip()
    assert (sorted(seen["foreign"]), seen["settings"]) == (files, [])


TASKS = Path(__file__).resolve().parents[3] / "roles/kokoro/tasks/install.yml"
NAME = "install | Put it in the place of the one before"
LAST = '#!/bin/sh\nfor last; do :; done\n[ -e "$last" ] || [ {program} = mv ] || exit 0\n'
ENDS = {
    "in the middle of what it removes": ("rm", '/bin/rm "$last/a"; exit 1', "new"),
    "before the new one is there": ("mv", 'case "$last" in *.gone) exec /bin/mv "$@";; esac; exit 1', ""),
    "before anything": ("mv", "exit 1", "old"),
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The one before, two files beside the two of the one that was fetched."""
    for name, content in (("at", "old"), ("at.fetched", "new")):
        (tmp_path / name).mkdir()
        for file in ("a", "b"):
            (tmp_path / name / file).write_text(content, encoding="utf-8")
    return tmp_path / "at"


def swapped(place: Path, programs: str = "") -> int:
    """Run what the task runs, with ``programs`` before the system's; its exit status."""
    tasks = {one["name"]: one for one in yaml.safe_load(TASKS.read_text(encoding="utf-8"))}
    command = tasks[NAME]["ansible.builtin.shell"]["cmd"]
    found = f"{programs}:{os.environ['PATH']}".lstrip(":")
    environment = {"PATH": found, "OLD": str(place), "NEW": f"{place}.fetched"}
    return subprocess.run(["/bin/sh", "-c", command], env=environment, check=False, timeout=60).returncode


def content(place: Path) -> list[str]:
    """What its files hold."""
    return [one.read_text(encoding="utf-8") for one in sorted(place.glob("*"))]


def test_the_new_one_takes_the_place(place: Path) -> None:
    assert swapped(place) == 0
    assert [one.name for one in place.parent.iterdir()] == ["at"]
    assert content(place) == ["new", "new"]


def test_there_may_be_none_before(place: Path) -> None:
    place.rename(place.with_name("at.gone"))
    assert swapped(place) == 0
    assert [one.name for one in place.parent.iterdir()] == ["at"]


@pytest.mark.parametrize(("program", "does", "there"), ENDS.values(), ids=ENDS)
def test_one_that_ends_leaves_a_whole_one_or_none(place: Path, program: str, does: str, there: str) -> None:
    stub = place.parent / "programs" / program
    stub.parent.mkdir()
    stub.write_text(LAST.format(program=program) + does, encoding="utf-8")
    stub.chmod(0o755)
    assert swapped(place, str(stub.parent)) == 1
    assert content(place) == [there] * 2 * bool(there)
