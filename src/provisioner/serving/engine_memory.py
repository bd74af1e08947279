"""The question to an engine's own program what it takes of a card, within narrow limits: heads come from anybody."""

from __future__ import annotations

import hashlib
import json
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
from provisioner.models.sources import part_names
from provisioner.serving import confined_program
from provisioner.serving.confined_program import NOT_CONFINED, NOT_RUN
from provisioner.serving.programs import kept_program
from provisioner.serving.told import OddAnswerError, read_answer, with_answers
from provisioner.values.plain_data import json_value
from provisioner.values.regular_files import text_of

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
