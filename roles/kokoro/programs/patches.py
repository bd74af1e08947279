"""Looks at a checkout of Kokoro-FastAPI and patches what its commit lacks; judged by syntax, not by text.

``patches.py look FOLDER`` answers as JSON which commit it is, which files differ from it (``foreign``, our own patches
left out), its settings, its voices and the state of each patch. ``patches.py set FOLDER [NAME …]`` has these patches in
place and no others. States: ``fixed`` upstream does it itself, ``open`` it can be patched, ``ours`` it is, ``unknown``
with a reason.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

FIXED, OPEN, OURS, UNKNOWN = "fixed", "open", "ours", "unknown"
SETTINGS, BACKEND, PLAYER = (
    "api/src/core/config.py",
    "api/src/inference/kokoro_v1.py",
    "web/src/services/AudioService.js",
)
SENTENCES = r', split_pattern=r"(?<=[.!?])\s+|\n+"'
"""Upstream's library parts a text at line ends alone where it is told nothing."""
TWO_SENTENCES = "One. Two."
MP3 = "['\"`]audio/mpeg['\"`]"
ADDED = re.compile(rf"\.addSourceBuffer\(\s*{MP3}\s*\)")
ASKED = re.compile(rf"\.isTypeSupported\(\s*{MP3}\s*\)")
BEGINNING = re.compile(r"\basync\s+\w+\(\s*stream\s*,\s*response\s*,\s*onProgress\s*,\s*estimatedChunks\s*\)\s*\{")
SKIPPED = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
QUOTED = re.compile(r"'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\"|`(?:\\.|[^`\\])*`")
FALLBACK = """ /* provisioner: a browser that streams no MP3 gets all of it at once. */
        if (!window.MediaSource || !MediaSource.isTypeSupported('audio/mpeg')) {
            const parts = [];
            const pieces = stream.getReader();
            for (let piece = await pieces.read(); !piece.done; piece = await pieces.read()) {
                parts.push(piece.value);
                onProgress?.(Math.min(parts.length, estimatedChunks), estimatedChunks);
            }
            this.audio = new Audio(URL.createObjectURL(new Blob(parts, { type: 'audio/mpeg' })));
            this.audio.addEventListener('ended', () => this.dispatchEvent('ended'));
            onProgress?.(estimatedChunks, estimatedChunks);
            this.dispatchEvent('complete');
            if (this.shouldAutoplay) setTimeout(() => this.play(), 100);
            setTimeout(() => this.dispatchEvent('downloadReady'), 800);
            return;
        } /* provisioner: end */"""


@dataclass(frozen=True)
class State:
    """What a probe found, and where something could be inserted (a byte of the file)."""

    state: str
    reason: str = ""
    at: int = -1


def main(words: Sequence[str]) -> None:
    """Look, or set."""
    verb, folder, *names = words
    checkout = Path(folder)
    try:
        answer = look(checkout) if verb == "look" else {"changed": put(checkout, names)}
    except (OSError, ValueError) as error:
        sys.exit(str(error))
    sys.stdout.write(json.dumps(answer))


def look(checkout: Path) -> dict[str, object]:
    """What ``patches.py look`` answers; everything empty where there is no checkout."""
    states = {name: patch.probe(read(checkout / patch.file)) for name, patch in PATCHES.items()}
    try:
        commit, foreign = git(checkout, "rev-parse", "HEAD").decode().strip(), foreign_in(checkout)
    except subprocess.CalledProcessError:
        # A checkout that was damaged is fetched anew, as one that is not there.
        commit, foreign = "", []
    return {
        "commit": commit,
        "foreign": foreign,
        "settings": settings_of(read(checkout / SETTINGS)),
        "voices": sorted(one.stem for one in checkout.glob("api/src/voices/v1_0/*.pt")),
        **{name: asdict(state) for name, state in states.items()},
    }


def git(checkout: Path, *arguments: str) -> bytes:
    """What git says of the checkout, or nothing where there is none; a folder above it is not asked.

    Raises ``CalledProcessError`` where git cannot read it.
    """
    if not (checkout / ".git").is_dir():
        return b""
    command = ["git", f"--git-dir={checkout}/.git", f"--work-tree={checkout}", *arguments]
    return subprocess.run(command, capture_output=True, check=True, cwd=checkout).stdout


def foreign_in(checkout: Path) -> list[str]:
    """The files that differ from the commit by more than our own patches."""
    changed = git(checkout, "status", "--porcelain=v1", "-z", "--ignored", "--untracked-files=all").decode().split("\0")
    return [line[3:] for line in changed if line and not is_ours(checkout, line)]


def read(file: Path) -> bytes:
    """The file, empty where there is none."""
    return file.read_bytes() if file.is_file() else b""


def is_ours(checkout: Path, line: str) -> bool:
    """Whether a file differs from the commit by nothing but a patch of ours."""
    patch = next((one for one in PATCHES.values() if line == f" M {one.file}"), None)
    return patch is not None and patch.without(read(checkout / patch.file)) == git(
        checkout, "show", f"HEAD:{patch.file}"
    )


def settings_of(source: bytes) -> list[str]:
    """The names that the class ``Settings`` gives a type; none where the file is no Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # ValueError: bytes of nothing, as a machine leaves them that lost its power
        return []
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Settings"]
    fields = [node.target for one in classes for node in one.body if isinstance(node, ast.AnnAssign)]
    return sorted(target.id for target in fields if isinstance(target, ast.Name))


def split_probe(source: bytes) -> State:
    """Whether ``KokoroV1.generate`` tells its pipeline how to part a text."""
    if not source:
        return State(UNKNOWN, f"{BACKEND} is missing")
    try:
        calls = pipeline_calls(ast.parse(source))
    except (SyntaxError, ValueError) as error:
        return State(UNKNOWN, f"{BACKEND} is no Python ({error})")
    if len(calls) != 1:
        return State(UNKNOWN, f"KokoroV1.generate in {BACKEND} calls pipeline {len(calls)} times")
    return call_probe(calls[0], source)


def call_probe(call: ast.Call, source: bytes) -> State:
    """What that call tells the pipeline."""
    names = [keyword.arg for keyword in call.keywords]
    if None in names:
        return State(UNKNOWN, f"KokoroV1.generate in {BACKEND} gives pipeline arguments that are not named")
    if "split_pattern" in names:
        return given(call.keywords[names.index("split_pattern")].value, source)
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    if not arguments:
        return State(UNKNOWN, f"KokoroV1.generate in {BACKEND} gives pipeline nothing")
    line, column = max((one.end_lineno or 0, one.end_col_offset or 0) for one in arguments)
    return State(OPEN, at=sum(map(len, source.splitlines(keepends=True)[: line - 1])) + column)


def pipeline_calls(tree: ast.Module) -> list[ast.Call]:
    """The calls of ``pipeline`` in ``KokoroV1.generate``."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "KokoroV1"]
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [node for one in classes for node in one.body if isinstance(node, functions) and node.name == "generate"]
    nodes = [node for one in found for node in ast.walk(one) if isinstance(node, ast.Call)]
    return [node for node in nodes if isinstance(node.func, ast.Name) and node.func.id == "pipeline"]


def given(value: ast.expr, source: bytes) -> State:
    """What a pattern that is given does with two sentences."""
    if source.count(SENTENCES.encode()) == 1:
        return State(OURS)
    if not isinstance(value, ast.Constant) or not isinstance(value.value, str):
        return State(UNKNOWN, f"KokoroV1.generate in {BACKEND} parts texts by something that is computed")
    parts = f"KokoroV1.generate in {BACKEND} parts texts by {value.value!r}"
    try:
        found = re.split(value.value, TWO_SENTENCES)
    except re.error as error:
        return State(UNKNOWN, f"{parts}, which is no pattern ({error})")
    return State(FIXED) if len(found) > 1 else State(UNKNOWN, f"{parts}, which leaves sentences together")


def guard_probe(source: bytes) -> State:
    """Whether the web player asks the browser before it streams MP3."""
    if not source:
        return State(UNKNOWN, f"{PLAYER} is missing")
    try:
        text = source.decode()
    except UnicodeDecodeError as error:
        return State(UNKNOWN, f"{PLAYER} is no text ({error})")
    if text.count(FALLBACK) == 1:
        return State(OURS)
    code = without_comments(text)
    added = ADDED.search(code)
    if ASKED.search(code) or not added:
        return State(FIXED)
    beginnings = [found.end() for found in BEGINNING.finditer(code) if found.end() < added.start()]
    if len(ADDED.findall(code)) != 1 or not beginnings:
        return State(UNKNOWN, f"{PLAYER} streams MP3 in a way that is not known")
    return State(OPEN, at=len(text[: beginnings[-1]].encode()))


def without_comments(text: str) -> str:
    """The script with blanks for its comments, every other character where it was; quoted text is no comment."""
    both = re.compile(f"({QUOTED.pattern})|{SKIPPED.pattern}", re.DOTALL)
    return both.sub(lambda found: found[1] or re.sub(r"[^\n]", " ", found[0]), text)


@dataclass(frozen=True)
class Patch:
    """A text that is inserted once into a file, and how the file is judged before and afterwards."""

    file: str
    probe: Callable[[bytes], State]
    text: str

    def without(self, source: bytes) -> bytes:
        """The file as it was before."""
        return source.replace(self.text.encode(), b"", 1)

    def within(self, source: bytes) -> bytes:
        """The file with it. Raises ``ValueError`` where that would be anything else than what is meant."""
        state = self.probe(source)
        if state.state != OPEN:
            raise ValueError(f"{self.file} is {state.state}: {state.reason}")
        patched = source[: state.at] + self.text.encode() + source[state.at :]
        if self.probe(patched).state != OURS or self.without(patched) != source:
            raise ValueError(f"{self.file} does not become what is meant")
        return patched


PATCHES: Mapping[str, Patch] = {
    "split": Patch(BACKEND, split_probe, SENTENCES),
    "guard": Patch(PLAYER, guard_probe, FALLBACK),
}


def put(checkout: Path, names: Sequence[str]) -> bool:
    """Have these patches, and undo the others; whether anything changed. All are tried before a file is written."""
    planned = {}
    for name, patch in PATCHES.items():
        source = read(checkout / patch.file)
        is_there = patch.probe(source).state == OURS
        if is_there != (name in names):
            planned[checkout / patch.file] = patch.without(source) if is_there else patch.within(source)
    for file, content in planned.items():
        file.write_bytes(content)
    return bool(planned)


if __name__ == "__main__":
    main(sys.argv[1:])
