"""A lab's file as it was loaded: its values, where each stood, and how its problems are told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel

from provisioner.loader.document import Document
from provisioner.spec import Spec, path_text
from provisioner.values.errors import InputError, with_hint
from provisioner.values.state import Problem, Secret


@dataclass(frozen=True, slots=True)
class Loaded:
    """A valid file. ``path`` is as the user wrote it; ``warnings`` are problems that stop nothing."""

    path: Path
    spec: Spec
    warnings: tuple[Problem, ...]
    document: Document = field(repr=False)

    def error(self, problems: Iterable[Problem]) -> InputError:
        """The one error that tells every problem, each with file, line and path."""
        return file_error(self.path, problem_lines(self.path, self.document, problems))

    def rendered(self, problem: Problem) -> str:
        """One problem as ``homelab.yml:12: containers.llama.memory: not a size; write "16GiB"``."""
        return problem_lines(self.path, self.document, [problem])[0]

    @property
    def secrets(self) -> Mapping[str, Secret]:
        """Every secret of the file by its name; one in clear is named by its path."""
        found: dict[str, Secret] = {}
        _collect(self.spec, found)
        return found


def problem_lines(file: Path, document: Document, problems: Iterable[Problem]) -> list[str]:
    """The problems as lines of text, in the order of the file, each once."""
    placed = dict.fromkeys(
        sorted((document.line(one.path), path_text(one.path), one.message, one.hint) for one in problems)
    )
    return [problem_line(file, *one) for one in placed]


def problem_line(file: Path, line: int, path: str, message: str, hint: str) -> str:
    """``file:line: path: message; hint``, without what is empty; a hint that is a sentence follows a full stop."""
    where = f"{file}:{line}: {path}: " if path else f"{file}:{line}: "
    return f"{where}{with_hint(message, hint)}"


def file_error(file: Path, lines: list[str], resolution: str = "") -> InputError:
    """The error of a file that is wrong in each of ``lines``."""
    return InputError(
        f"Unable to use {file}",
        details="\n".join(lines),
        resolution=resolution or "Correct the file; nothing was touched.",
    )


def _collect(value: object, found: dict[str, Secret]) -> None:
    if isinstance(value, Secret):
        found[value.name] = value
    elif isinstance(value, BaseModel):
        _collect(dict(value), found)
    elif isinstance(value, dict | list | tuple):
        for one in value.values() if isinstance(value, dict) else value:
            _collect(one, found)
