"""The question to an engine's own program what it takes of a card, within narrow limits: heads come from anybody."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from provisioner.lab import ModelFile
from provisioner.lab.opening import Lab, head_file
from provisioner.labfile.whole_files import replace_text
from provisioner.loads.engines import EngineLoads, Question
from provisioner.loads.terms import Load, needed_bytes
from provisioner.models.sources import part_names
from provisioner.services import knowledge_of
from provisioner.serving import confined_program
from provisioner.serving.confined_program import NOT_CONFINED, NOT_RUN
from provisioner.values import paths
from provisioner.values.plain_data import json_value
from provisioner.values.regular_files import text_of
from provisioner.values.state import Artifact

LINE = re.compile(r"(?P<part>model|draft|projector)(?P<sizes>( [0-9]{1,15}){3})")
"""A line of the answer: bytes of weights, of what is kept of tokens, and of what it computes with."""
TIMEOUT_S = 30
NOT_HERE = {
    NOT_CONFINED: "this machine has nothing to confine it with",
    NOT_RUN: "the kernel of this machine does not start it",
    -signal.SIGILL: "it was built for another processor",
}
"""By its exit code why a program does not run here."""
ERROR = re.compile(r"^[0-9.]+ E (.*)", re.MULTILINE)
"""The first error that llama.cpp says, after the time; what follows comes of it."""
OLDER_LIBRARY = "version `GLIBC_"
"""Words of the loader about a program that was built for a newer distribution."""
TOO_NEW = "it was built on a newer distribution, and needs a newer C library (glibc) than this machine has"
TAR_S = 60


class OddAnswerError(ValueError):
    """The answer is none; the text says what came."""


class NotHereError(Exception):
    """The program does not run on this machine; the text says why."""


def asked(engine: EngineLoads, lab: Lab, models: Mapping[str, ModelFile]) -> EngineLoads:
    """Return the engine with its own program's answer; as it was where no build has left the program here.

    Where the program does not run on this machine, the reason is among what is guessed.
    Where the program is there and does not answer, nobody knows what the engine takes, and its words say why.
    """
    question = engine.question
    if question is None:
        return engine
    program = kept_program(question.program)
    if program is None:
        return engine
    answers, halves = dict[str, Mapping[str, int]](), dict[str, Mapping[str, int]]()
    for load in engine.loads:
        files = _file_words(question, load.name, lab, models)
        try:
            answer = _answer(program, question.arguments[load.name], files, question.variables)
            if load.context > 1 and (load.is_guessed or load.uncounted):
                half = _answer(program, question.halves[load.name], files, question.variables)
                halves |= {load.name: half} if half else {}
        except NotHereError as error:
            reason = f"{engine.address}: its own program was not asked, and does not run here: {error}"
            return replace(engine, unread=(*engine.unread, reason))
        except OddAnswerError as error:
            reason = f"{load.name}: its own program does not load what is known of it: {error}"
            return replace(engine, unknown="; ".join(filter(None, (engine.unknown, reason))), question=None)
        if answer is None:
            return engine
        answers[load.name] = answer
    return with_answers(engine, answers, halves)


def _file_words(question: Question, name: str, lab: Lab, models: Mapping[str, ModelFile]) -> list[str] | None:
    """Return the words for files that begin with the heads of a load's models; None where one is not here."""
    words: list[str] = []
    for argument, model in question.files[name].items():
        head = head_file(lab, models, model)
        if head is None:
            return None
        words += [argument, str(head)]
    return words


def _answer(
    program: Path, words: Sequence[str], files: Sequence[str] | None, variables: Mapping[str, str]
) -> dict[str, int] | None:
    """Return what the program says, or has said of the same files; None where they are not on this machine.

    It reads heads of models from anybody, and may come from a host that is not this machine: so it is confined.
    """
    if files is None:
        return None
    command = [words[0], *files, *words[1:]]
    note = _note(program, command, variables)
    told = _kept(note)
    if told is None:
        try:
            told = _told(program, command, variables)
        except OSError:  # such as more words than the kernel takes
            return None
        if told[0] >= 0:  # what a signal ended may have met a machine without memory
            with suppress(OSError):  # where it cannot be kept, it is asked again
                replace_text(note, json.dumps(told))
    code, answer, reason = told
    if code != 0:
        raise OddAnswerError(f"{reason} (exit code {code})")
    return read_answer(answer)


def _told(program: Path, command: Sequence[str], variables: Mapping[str, str]) -> tuple[int, str, str]:
    """Return the exit code of the program, what it printed, and the first error that it said."""
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as complained:
        try:
            ran = subprocess.run(
                [sys.executable, "-I", confined_program.__file__, str(program), *command],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=complained,
                env={"LC_ALL": "C.UTF-8", **variables},
                cwd="/",
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise OddAnswerError(f"no answer within {TIMEOUT_S} s") from None
        said.seek(0)
        complained.seek(0)
        answer, words = (stream.read().decode(errors="replace") for stream in (said, complained))
    why = TOO_NEW if OLDER_LIBRARY in words else NOT_HERE.get(ran.returncode)
    if why:
        raise NotHereError(why)
    found = ERROR.search(words)
    reason = found[1] if found else words.strip().rpartition("\n")[2]
    return ran.returncode, answer, reason[:200]


def _kept(note: Path) -> tuple[int, str, str] | None:
    """Return what was told before of the same; None where nothing was, or another version keeps it otherwise."""
    try:
        code, answer, reason = json_value(text_of(note))
        return int(code), str(answer), str(reason)
    except (OSError, ValueError, TypeError):
        return None


def _note(program: Path, command: Sequence[str], variables: Mapping[str, str]) -> Path:
    """Return where the answer is kept: by the program, its words, and what of the files changes when they do."""
    seen = []
    for file in (program, *map(Path, _files(command))):
        with suppress(OSError):
            about = file.stat()
            seen.append((str(file), about.st_size, about.st_mtime_ns))
    content = json.dumps([seen, list(command), sorted(variables.items())])
    return program.with_name(f"{hashlib.sha256(content.encode()).hexdigest()}.json")


def _files(command: Sequence[str]) -> Iterator[str]:
    """Yield the files that the words name, each with its other parts."""
    for word in command:
        if word.startswith("/"):
            yield from part_names(word)


def read_answer(text: str) -> dict[str, int]:
    """Return the bytes of each part that lies on the card; raises ``OddAnswerError`` for anything but an answer."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        told = LINE.fullmatch(line)
        if told is None or told["part"] in found:
            raise OddAnswerError(f"it answers {line[:80]!r}")
        sizes = list(map(int, told["sizes"].split()))
        if told["part"] == "model" and not sizes[0]:
            raise OddAnswerError("it has nothing of the model on the card")
        found[told["part"]] = sum(sizes)
    if "model" not in found:
        raise OddAnswerError("it answers nothing")
    return found


def with_answers(
    engine: EngineLoads, answers: Mapping[str, Mapping[str, int]], halves: Mapping[str, Mapping[str, int]]
) -> EngineLoads:
    """Return the engine with what its program has told of each of its loads, by their names.

    ``halves``: the answers for half of the context, where they are needed to know what a token takes. What nobody knew
    is known then, but for what the question leaves open, and what is guessed of images.
    """
    left = engine.question.open if engine.question else ""
    loads = tuple(_with_answer(load, answers[load.name], halves.get(load.name, {})) for load in engine.loads)
    of_models = tuple(f"{name}:" for name in answers)
    unread = tuple(word for word in engine.unread if not word.startswith(of_models))
    return replace(engine, loads=loads, unread=unread, unknown=left, question=None)


def _with_answer(load: Load, told: Mapping[str, int], half: Mapping[str, int]) -> Load:
    """Return the load with what it takes more, or less, than was added up.

    Images are added up of the largest that the engine takes, and the program tells of those for which it makes room at
    its start: whichever is more.
    """
    seeing = load.encoder + load.image_buffer
    more = told["model"] + told.get("draft", 0) - (needed_bytes(load) - seeing)
    each = -((sum(half.values()) - sum(told.values())) // (load.context - load.context // 2)) if half else 0
    return replace(load, told=more + max(told.get("projector", 0) - seeing, 0), told_each=max(each, 0))


def kept_program(name: str) -> Path | None:
    """Return the program of that name; None where no build on this machine has left it."""
    file = _folder() / name
    return file if file.is_file() else None


def keep_program(artifact: Artifact, copy: Path) -> None:
    """Take the program that can be asked out of an artifact's copy, where the artifact has one that is not here yet.

    A copy without it (of another source, or of a version before) leaves none: then nobody can be asked.
    """
    options = {name.removeprefix(f"{artifact.role}_"): value for name, value in artifact.variables.items()}
    path, name = knowledge_of(artifact.role).asked_program(options)
    if not path or kept_program(name):
        return
    command = ["tar", "--extract", "--to-stdout", "--wildcards", f"--file={copy}", f"*/{path}"]
    try:
        ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TAR_S, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired):  # no tar: nobody is asked
        return
    if ran.returncode != 0 or not ran.stdout:
        return
    _folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = _folder() / f".{name}.{os.getpid()}"
    partial.write_bytes(ran.stdout)
    partial.chmod(0o700)
    partial.replace(_folder() / name)


def _folder() -> Path:
    return paths.cache() / "programs"
