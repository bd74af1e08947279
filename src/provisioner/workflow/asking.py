"""Asking an engine's own program what it takes of a card: by heads of models from anybody, so within narrow limits."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from provisioner.artifacts.programs import kept_program
from provisioner.lab.opening import Lab
from provisioner.labfile.whole_files import replace_text
from provisioner.loads.engines import EngineLoads, Question
from provisioner.loads.told import OddAnswerError, read_answer, with_answers
from provisioner.values import paths
from provisioner.values.plain_data import json_value
from provisioner.values.regular_files import text_of

LIMITS = ("prlimit", f"--as={4 << 30}", "--cpu=20", "--core=0", f"--fsize={64 << 10}", "--")
"""Address space, seconds of the processor, and what it may write; its own filter of system calls leaves it no more than
to read files (``llama_memory.cpp``)."""
TIMEOUT_S = 30
NOT_RUN = frozenset({126, 127, -4})
"""Codes for what cannot run here: ``prlimit``'s, and SIGILL of a program for another processor."""
ERROR = re.compile(r"^[0-9.]+ E (.*)", re.MULTILINE)
"""The first error that llama.cpp says, after the time; what follows comes of it."""
OLDER_LIBRARY = "version `GLIBC_"
"""What the loader says of a program that was built for a newer distribution."""


def asked(engine: EngineLoads, lab: Lab) -> EngineLoads:
    """Return the engine with its own program's answer; as it was where no build has left the program here.

    Where the program is there and does not answer, nobody knows what the engine takes, and its words say why.
    """
    question = engine.question
    program = kept_program(question.program) if question else None
    if question is None or program is None:
        return engine
    answers = {}
    for load in engine.loads:
        command = _command(question, load.name, lab)
        try:
            answer = None if command is None else _answer(program, command, question.variables)
        except OddAnswerError as error:
            reason = f"{load.name}: its own program does not load what is known of it: {error}"
            return replace(engine, unknown="; ".join(filter(None, (engine.unknown, reason))), question=None)
        if answer is None:
            return engine
        answers[load.name] = answer
    return with_answers(engine, answers)


def _command(question: Question, name: str, lab: Lab) -> list[str] | None:
    """Return the words for one load, with files that begin with its models' heads; None where one is not here."""
    device, *words = question.arguments[name]
    command = [device]
    for argument, model in question.files[name].items():
        head = lab.head_file(model)
        if head is None:
            return None
        command += [argument, str(head)]
    return [*command, *words]


def _answer(program: Path, command: Sequence[str], variables: Mapping[str, str]) -> dict[str, int] | None:
    """Return what the program says, or has said of the same files; None where it cannot run on this machine."""
    note = _note(program, command, variables)
    try:
        return read_answer(str(json_value(text_of(note))))
    except (OSError, ValueError):  # not asked yet, or of another version
        pass
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as complained:
        try:
            ran = subprocess.run(
                [*LIMITS, str(program), *command],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=complained,
                env={"LC_ALL": "C.UTF-8", **variables},
                cwd="/",
                timeout=TIMEOUT_S,
                check=False,
            )
        except FileNotFoundError:
            return None
        except subprocess.TimeoutExpired:
            raise OddAnswerError(f"no answer within {TIMEOUT_S} s") from None
        if ran.returncode in NOT_RUN:
            return None
        said.seek(0)
        complained.seek(0)
        text, words = (stream.read().decode(errors="replace") for stream in (said, complained))
    if OLDER_LIBRARY in words:
        return None
    if ran.returncode != 0:
        found = ERROR.search(words)
        reason = found[1] if found else words.strip().rpartition("\n")[2]
        raise OddAnswerError(f"{reason[:200]} (exit code {ran.returncode})")
    answer = read_answer(text)
    note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_text(note, json.dumps(text))
    return answer


def _note(program: Path, command: Sequence[str], variables: Mapping[str, str]) -> Path:
    """Return where the answer is kept: by the program, its words, and what of the files changes when they do."""
    files = [program, *(Path(word) for word in command if word.startswith("/"))]
    seen = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()]
    content = json.dumps([seen, list(command), sorted(variables.items())])
    return paths.cache() / "programs" / f"{hashlib.sha256(content.encode()).hexdigest()}.json"
