"""The answer of ``data/cluster/look.sh``, taken apart: a section for each thing that was asked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from provisioner.values.errors import ProvisionError

_HEAD = re.compile(r"@ ([a-z-]+) (\d{1,3})")
DIGITS = 18
TIMED_OUT = (124, 137)
"""How ``timeout`` ends when the command did not."""


class UnreadableError(ProvisionError):
    """What came back is not what the script writes: cut off, or from another program."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One section: how the command ended, and what it wrote."""

    code: int
    lines: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """All lines."""
        return "\n".join(self.lines)

    @property
    def why(self) -> str:
        """Why there is no answer, in a line; empty when there is one."""
        if not self.code:
            return ""
        if self.code in TIMED_OUT:
            return "it did not answer in time"
        lines = self.text.strip().splitlines()
        return lines[-1] if lines else f"exit code {self.code}"


def is_number(text: str) -> bool:
    """Whether the text is a whole number of a usual size, which ``int`` takes."""
    return text.isdecimal() and len(text) <= DIGITS


ABSENT = Answer(127, ("the section is missing",))


def answers(text: str) -> Mapping[str, Answer]:
    """The sections by their names; ``UnreadableError`` unless all of it is there."""
    codes = dict[str, int]()
    lines_by_name = dict[str, list[str]]()
    lines = None
    for line in text.split("\n"):
        head = _HEAD.fullmatch(line)
        if head is not None:
            name, code = head.groups()
            lines = list[str]()
            codes[name] = int(code)
            lines_by_name[name] = lines
        elif lines is not None and line.startswith(" "):
            lines.append(line[1:])
        elif line:
            raise UnreadableError("Unable to read what the node says of itself", details=line[:200])
    if "end" not in codes:
        raise UnreadableError("Unable to read what the node says of itself", details="Its answer ends early.")
    return {name: Answer(code, tuple(lines_by_name[name])) for name, code in codes.items()}
